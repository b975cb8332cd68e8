"""The kernels are clean under sanitizers, and who owes it finds each fault put into them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpuless.faults import CASES, FAULTS, Fault
from gpuless.sanitizer import REPORTS, variables
from gpuless.tools import need

from heomdask._cuda.device import source

HERE = Path(__file__).parent
TOOL = {"": "result", "memory": "memory", "races": "races"}


@pytest.fixture(scope="module", params=["", "memory", "races"], ids=TOOL.get)
def check(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def told(check: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Fault -> what was printed, for those that this tool owes, and for none."""
    need("g++")
    names = ["none", *(f.name for f in FAULTS if TOOL[check] in f.owed_by)]
    folder = tmp_path_factory.mktemp("kernels")
    result = subprocess.run(
        [sys.executable, HERE / "under_check.py", folder, check, *names],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables(check),
        cwd=HERE.parents[1], timeout=600, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:]
    parts = result.stdout.split("== ")[1:]
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


def test_kernels_are_clean(check: str, told: dict[str, str]) -> None:
    lines = told["none"].splitlines()
    orders = 1 if check else 3
    expected = lines[: len(CASES)] * orders + (["places True"] if check == "memory" else [])
    assert lines == expected
    assert all(len(line) == 64 for line in lines[: len(CASES)])


def test_every_fault_is_found_by_who_owes_it(check: str, told: dict[str, str]) -> None:
    right = told["none"].splitlines()[0]
    missed = []
    for fault in FAULTS:
        if TOOL[check] in fault.owed_by:
            lines = told[fault.name].splitlines()
            found = any(report in told[fault.name] for report in REPORTS.get(check, ()))
            if check == "":
                found = any(line != right for line in lines)
            if not found:
                missed.append(fault.name)
    assert not missed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_a_fault(fault: Fault) -> None:
    """Its text stands once in the kernels."""
    texts = [source("apply"), source("vectors")]
    assert sum(text.count(fault.text) for text in texts) == 1
