"""Seconds from the command `heomdask run` to the first task handed out, and to its end.

    python tests/benchmarks/startup.py [CONFIG] [--repeats N] [--workers N]

Each run is a process of its own in an empty folder; then one more on the store of the last, which
has nothing left to compute. Prints each and the median.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

# in place of `python -m heomdask`: the same command, which tells when the first task goes out
TOLD = """
import sys, time
from heomdask.cli.main import main
from heomdask.ensemble.runner import DaskRunner

submit = DaskRunner.submit
def first(self, *task):
    print(f"first task {time.time()}", file=sys.stderr)
    DaskRunner.submit = submit
    submit(self, *task)
DaskRunner.submit = first
main()
"""


def run(folder: str, config: str, workers: int) -> tuple[float | None, float]:
    """Seconds until the first task (None without one), and until the end."""
    started = time.time()
    done = subprocess.run(
        [sys.executable, "-c", TOLD, "run", config, "--workers", str(workers)],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    ended = time.time()
    told = [float(x.split()[-1]) for x in done.stderr.splitlines() if x.startswith("first task")]
    return told[0] - started if told else None, ended - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?", default="spinboson")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    firsts = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            first, end = run(folder, options.config, options.workers)
            again = run(folder, options.config, options.workers)[1]
        assert first is not None
        firsts.append(first)
        print(f"first task {first:5.2f} s, end {end:5.2f} s, nothing left to do {again:5.2f} s")
    print(f"median to the first task: {statistics.median(firsts):.2f} s")


if __name__ == "__main__":
    main()
