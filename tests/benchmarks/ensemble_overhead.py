"""How much of a sweep's time is spent outside the solver: 1,000 points of about 5 ms each.

On two workers that are already there, from the first probe to the last commit:

    python tests/benchmarks/ensemble_overhead.py [--points 1000] [--workers 2]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import heomdask as hd
from heomdask.ensemble.cluster import connect

SZ = np.diag([1.0, -1.0])
PLUS = np.full((2, 2), 0.5)


def build(T: float, rng: np.random.Generator) -> Any:
    H = 0.3 * rng.standard_normal() * SZ + 0.5 * np.array([[0, 1], [1, 0]])
    return hd.Problem(H, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.1, gamma=0.5, T=T))]), PLUS


def sweep(samples: int, depth: int) -> hd.Sweep:
    return hd.Sweep(
        build, over={"T": [0.5, 1.0]}, samples=samples // 2, times=np.linspace(0, 40, 201),
        depth=depth, expansion=hd.Pade(3), observables={"Z": SZ}, save=("rho", "observables"),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--depth", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, connect(workers=options.workers) as client:
        sweep(8, options.depth).run(Path(folder, "warm.zarr"), client=client, progress=False)
        what = sweep(options.points, options.depth)
        started = time.perf_counter()
        ds = what.run(Path(folder, "s.zarr"), client=client, progress=False)
        wall = time.perf_counter() - started
        solver = float(ds["seconds"].sum()) / options.workers
    per_point = 1e3 * float(ds["seconds"].mean())
    print(
        f"{options.points} points of {per_point:.2f} ms on {options.workers} workers: {wall:.2f} s"
    )
    print(f"in the solver {solver:.2f} s, outside {100 * (1 - solver / wall):.1f} %")


if __name__ == "__main__":
    main()
