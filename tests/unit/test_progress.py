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


def test_a_notebook_has_one_bar_which_ends_with_the_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("IPython", reason="needs IPython, of the extra docs")
    clock, calls = [0.0], []

    class Handle:
        def display(self, data: dict[str, str], raw: bool) -> None:
            calls.append(("display", data))

        def update(self, data: dict[str, str], raw: bool) -> None:
            calls.append(("update", data))

    monkeypatch.setattr("IPython.display.DisplayHandle", Handle)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.shown(True, unit="points") as update:
        for done in range(101):
            clock[0] = done / 10
            update(done, 100, f"{done} of 100 points, <1 failed")
    assert [what for what, _ in calls] == ["display"] + ["update"] * 20
    middle, last = calls[10][1], calls[-1][1]
    said = r"50 %: 50 of 100 points, <1 failed, 10 points/s, about 5.0 s left"
    assert middle["text/plain"] == said
    assert '<progress value="0.5000" max="1"' in middle["text/html"]
    assert "&lt;1 failed" in middle["text/html"]
    assert last["text/plain"] == "100 of 100 points, <1 failed, in 10.0 s"


def test_the_speed_is_that_of_the_last_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    pace, done = progress._Pace("points"), 0.0
    for second in range(4000):
        clock[0] += 1.0
        done += 1.0 if second < 2000 else 0.1
        pace.see(done)
    assert abs(pace.speed(done) - 0.1) < 1e-9
    assert len(pace._seen) <= 110
