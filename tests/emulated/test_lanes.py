"""The vector layer of the kernels, and what stands in for AVX-512 where no processor has it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from heomdask._native import _core

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "heomdask/_native/src"
AVX2 = ["-mavx2", "-mfma"]
FLAGS = {
    "avx2": AVX2,
    "avx512": [*AVX2, "-mavx512f"],
    "avx512-emulated": [*AVX2, "-include", str(HERE / "avx512.hpp")],
}
LANES = {"avx2": "4 and 8", "avx512": "8 and 16", "avx512-emulated": "8 and 16"}
RUNS = {name for name, runs in _core.instruction_sets() if runs}

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None or "avx2" not in RUNS,
    reason="needs g++ and a processor with AVX2",
)
emulated = pytest.param(
    "avx512-emulated",
    marks=pytest.mark.skipif(
        not Path("/usr/include/simde").exists(), reason="needs SIMDe: Debian's package libsimde-dev"
    ),
)


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `lanes.cpp`, named after what it is compiled for."""
    kind = str(request.param)
    target = tmp_path_factory.mktemp("lanes") / kind
    command = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-w", f"-I{SOURCES}", *FLAGS[kind]]
    subprocess.run([*command, str(HERE / "lanes.cpp"), "-o", str(target)], check=True)
    return target


@pytest.mark.parametrize("program", [*sorted(RUNS & {"avx2", "avx512"}), emulated], indirect=True)
def test_operations_are_those_of_single_numbers(program: Path) -> None:
    """Bit by bit: multiply-adds are rounded once, and NaN goes the processor's way."""
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.stdout == f"{LANES[program.name]} lanes, 0 wrong\n"


@pytest.mark.parametrize("program", [emulated], indirect=True)
def test_an_address_that_is_not_aligned_is_found(program: Path) -> None:
    for off, fault in [(0, ""), (32, "not aligned"), (8, "not aligned")]:
        done = subprocess.run([program, str(off)], capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == bool(fault)
        assert fault in done.stderr
