"""The script for a machine with a GPU, on the stand-in: no GPU shall wait for a typo."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpuless.tools import need

SCRIPT = Path(__file__).parents[2] / "deploy" / "gpu_check.py"


def check(out: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, the report, and what was printed."""
    result = subprocess.run(
        [sys.executable, SCRIPT, "--out", out, *options],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert not result.stderr
    return result.returncode, json.loads((out / "report.json").read_text()), result.stdout


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_stage_passes_on_the_stand_in(tmp_path: Path, script: ModuleType) -> None:
    need("g++")
    status, report, said = check(tmp_path, "--dry", "--scale", "3")
    ends = {name: (stage["end"], stage["why"]) for name, stage in report["stages"].items()}
    assert ends == dict.fromkeys(script.STAGES, ("passed", ""))
    assert status == 0
    assert "predicted" in said
    assert report["stages"]["golden"]["facts"]["real-d2-M1-K2L2"] == "as on the host"


def test_stages_that_are_late_are_told_and_the_next_goes_on(tmp_path: Path) -> None:
    status, report, _ = check(
        tmp_path, "--dry", "--scale", "0.001", "--only", "detection", "streams", "nccl"
    )
    assert [stage["end"] for stage in report["stages"].values()] == ["out of time"] * 3
    assert status == 1


def test_without_a_card_it_says_why_and_stops(tmp_path: Path) -> None:
    hidden = "import sys, runpy; sys.modules['cupy'] = None; sys.argv[0] = {!r}; "
    code = hidden.format(str(SCRIPT)) + f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, "--out", tmp_path, "--stage", "detection"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    end = json.loads((tmp_path / "detection.facts").read_text().splitlines()[-1])
    assert end[1][0] == "failed"
    assert "The backend 'cupy' cannot run here: CuPy is not installed" in end[1][1]


@pytest.mark.parametrize(
    ("raised", "end"),
    [("Failed", "failed"), ("LeftOut", "left out"), (None, "passed")],
)
def test_what_a_stage_found_is_kept_however_it_ends(
    tmp_path: Path, script: ModuleType, raised: str | None, end: str
) -> None:
    def stage(lab: Any) -> Iterator[tuple[str, Any]]:
        yield "first", 1
        if raised:
            raise getattr(script, raised)("a reason")

    script.STAGES["stage"] = (1, stage)
    lab = script.Lab(argparse.Namespace(out=tmp_path, dry=True, watched=""))
    script.run_stage(lab, "stage")
    lines = [json.loads(line) for line in (tmp_path / "stage.facts").read_text().splitlines()]
    assert lines == [["first", 1], ["end", [end, "a reason" if raised else ""]]]
