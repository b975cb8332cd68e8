"""What a run says of its progress, while it goes on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import heomdask as hd
from heomdask import progress, solve

SZ = np.diag([1.0, -1.0])
H = 0.5 * SZ + 0.5 * np.array([[0.0, 1.0], [1.0, 0.0]])
UP = np.diag([1.0, 0.0])
PROBLEM = hd.Problem(H, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5))])
SMALL: dict[str, Any] = {"depth": 2, "expansion": hd.Pade(1)}
SHORT: dict[str, Any] = {**SMALL, "progress": True}


def fractions(times: Any, method: str, problems: list[hd.Problem]) -> list[float]:
    seen: list[float] = []
    prepared = [hd.prepare(p, **SMALL) for p in problems]
    rho0s = [UP] * len(prepared)
    hd.run_batch(prepared, rho0s, times, tol=1e-6, method=method, progress=seen.append)
    return seen


@pytest.mark.parametrize("method", ["faber", "taylor", "rk"])
def test_fractions_ascend_to_one_through_all_chunks(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve, "CHUNK_BYTES", 0)  # 16 times a chunk
    times = np.linspace(-3.0, 60.0, 160) ** 3 / 60**2
    other = hd.Problem(2 * H, PROBLEM.couplings)
    seen = fractions(times, method, [PROBLEM, other])
    assert seen == sorted(seen)
    assert 0 <= seen[0] < 0.05
    assert seen[-1] == 1.0
    ends = (times[15::16] - times[0]) / (times[-1] - times[0])
    assert len(ends) == 10
    assert set(ends) <= set(seen)


def test_a_long_segment_is_told_of_before_its_end() -> None:
    seen, prepared = fractions([0.0, 200.0], "faber", [PROBLEM]), hd.prepare(PROBLEM, **SMALL)
    (stats,) = hd.run_batch([prepared], [UP], [0.0, 200.0], method="faber").stats
    assert seen == sorted(seen)
    assert len(set(seen)) > stats["segments"] + stats["rejected"]


def test_one_time_alone_has_nothing_to_tell() -> None:
    assert fractions([1.0], "auto", [PROBLEM]) == []


def test_a_short_run_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(solve, "QUIET", 1000.0)
    hd.evolve(PROBLEM, UP, [0.0, 5.0], **SHORT)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes it for a terminal
    hd.evolve(PROBLEM, UP, [0.0, 5.0], **SHORT)
    assert capsys.readouterr().err == ""


def test_a_longer_run_shows_a_bar_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(solve, "QUIET", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    hd.evolve(PROBLEM, UP, [0.0, 50.0], **SHORT)
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert "6 ADOs" in shown
    hd.evolve(PROBLEM, UP, [0.0, 50.0], **{**SHORT, "progress": False})
    assert capsys.readouterr().err == ""


def test_a_longer_run_has_lines_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    hd.converge(PROBLEM, UP, [0.0, 50.0], error=1e-2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(r"[\d:]{8}  \d+ %: [\d,]+ ADOs, about .* left", line)
