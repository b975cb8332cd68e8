"""What a log shows of a running sweep."""

from __future__ import annotations

import re

import pytest

from heomdask.ensemble import progress


def test_a_log_has_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.Progress(100, show=True).shown() as bar:
        for _ in range(100):
            clock[0] += 1.0
            bar.add(1, 0)
    lines = capsys.readouterr().err.splitlines()
    assert [int(line.split()[1]) for line in lines] == [5, 15, 35, 75]
    assert re.fullmatch(r"\d\d:\d\d:\d\d  75 of 100 points, 0 failed, about 25.0 s left", lines[-1])


def test_points_that_need_not_be_computed_leave_the_total(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.Progress(100, show=True).shown() as bar:
        clock[0] = 10.0
        bar.add(20, 0)
        bar.drop(60)
        clock[0] = 30.0
        bar.add(10, 0)
    first, second = capsys.readouterr().err.splitlines()
    assert "20 of 100 points" in first
    assert second.endswith("30 of 40 points, 0 failed, about 10.0 s left")
