"""A program that stands for compute-sanitizer on a host: g++'s sanitizers, its summary lines.

Arguments: ``--tool memcheck|racecheck`` and, after ``--error-exitcode 9``, a Python program that
takes ``--watched``: what its kernels, compiled for the host, are checked for.
"""

from __future__ import annotations

import os
import subprocess
import sys

PRELOADED = {"memory": "libasan.so", "races": "libtsan.so"}
REPORTS = {"memory": ("ERROR: AddressSanitizer", "runtime error:"), "races": ("data race",)}
WATCHED = {"memcheck": "memory", "racecheck": "races"}
SUMMARY = {
    "memcheck": "ERROR SUMMARY: {} errors",
    "racecheck": "RACECHECK SUMMARY: {} hazards displayed",
}


def variables(watched: str) -> dict[str, str]:
    """The environment of a process that is watched."""
    found = {
        **os.environ, "ASAN_OPTIONS": "detect_leaks=0", "OMP_NUM_THREADS": "1",
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 exitcode=0",
    }  # fmt: skip
    if watched:
        asked = ["g++", f"-print-file-name={PRELOADED[watched]}"]
        found["LD_PRELOAD"] = subprocess.check_output(asked, text=True).strip()
    return found


def main(tool: str, *command: str) -> int:
    watched = WATCHED[tool]
    result = subprocess.run(
        [*command, "--watched", watched], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=variables(watched), check=False,
    )  # fmt: skip
    found = sum(result.stdout.count(report) for report in REPORTS[watched])
    sys.stdout.write(f"{result.stdout}========= {SUMMARY[tool].format(found)}\n")
    return 9 if found else result.returncode


if __name__ == "__main__":
    _, _, tool, _, _, *command = sys.argv
    sys.exit(main(tool, *command))
