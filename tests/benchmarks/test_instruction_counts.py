"""How many instructions one application takes: a slower kernel shows, whatever else is running.

Counts belong to a compiler; those below are of GCC 12. With another one the test is skipped, and
says what it counted. AVX-512 has no counts: valgrind does not know it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heomdask._native import _core

SCRIPT = Path(__file__).with_name("apply_once.py")
FUNCTION = (
    "heomdask::Engine<double>::apply(double const*, double*, double*, double const*, "
    "double const*, long, long) const"
)
COMPILER = "GCC: (Debian 12"
BAND = 0.05
RECORDED = {
    ("spinboson-3-10", "avx2"): 29_612,
    ("spinboson-3-10", "generic"): 70_992,
    ("fmo-7-4", "avx2"): 433_870,
    ("fmo-7-4", "generic"): 3_036_498,
}


def counted(folder: Path) -> dict[tuple[str, str], int]:
    """Instructions within one application, for each of RECORDED."""
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'out'}",
        "--collect-atstart=no", f"--toggle-collect={FUNCTION}", f"--dump-after={FUNCTION}",
        sys.executable, str(SCRIPT), *(":".join(key) for key in RECORDED),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = []
    for number in range(1, len(RECORDED) + 1):
        text = (folder / f"out.{number}").read_text(encoding="utf-8")
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        assert total is not None
        found.append(int(total[1]))
    return dict(zip(RECORDED, found, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("valgrind") and len(_core.instruction_sets()) > 1),
    reason="needs valgrind and an x86-64 processor",
)
def test_instructions_of_one_application(tmp_path: Path) -> None:
    missing = [n for n, runs in _core.instruction_sets() if n in ("avx2", "generic") and not runs]
    if missing:
        pytest.skip(f"this processor does not run {missing}")
    found = counted(tmp_path)
    for (case, isa), count in found.items():
        print(f"{case}, {isa}: {count:,} instructions, recorded {RECORDED[case, isa]:,}")
    if COMPILER.encode() not in Path(str(_core.__file__)).read_bytes():
        pytest.skip(f"counts are of another compiler than {COMPILER}); found {found}")
    for key, count in found.items():
        assert abs(count / RECORDED[key] - 1) < BAND, (
            f"{key}: {count}; a gain is as worth recording as a loss is worth finding"
        )
