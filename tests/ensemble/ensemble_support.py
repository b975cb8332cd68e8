"""Sweeps of one qubit in a Drude bath, whose coherence is known exactly.

``H = (e/2) sz``, ``Q = sz``, from ``|+><+|``: ``rho01(t) = exp(-i e t) exp(-4 Re g(t)) / 2``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import heomdask as hd

SZ = np.diag([1.0, -1.0])
PLUS = np.full((2, 2), 0.5)
COHERENCE = np.array([[0.0, 0.0], [1.0, 0.0]])  # Tr(A rho) = rho01
TIMES = [0.0, 0.5, 1.0, 2.0, 4.0]
LAM, GAMMA, T = 0.02, 0.5, 1.0
DEPHASING = np.array(
    [1.0, 0.9795688375172146, 0.9299081533402664, 0.7841720575838208, 0.4783502168927941]
)  # of case A07, at TIMES
TIMING = ("seconds",)  # the one variable that differs from run to run


def problem(e: float, T: float = T, lam: float = LAM) -> hd.Problem:
    bath = hd.DrudeLorentz(lam=lam, gamma=GAMMA, T=T)
    return hd.Problem(e / 2 * SZ, [hd.Coupling(SZ, bath)])


def build(e: float) -> Any:
    return problem(e), PLUS


def disordered(T: float, rng: np.random.Generator) -> Any:
    return problem(0.3 * rng.standard_normal(), T), PLUS


class Logged:
    """`disordered`, with a line in a file for every call: process and point.

    Calls wait while the file has as many lines as a second file has bytes.
    """

    def __init__(self, log: Path, allowed: Path) -> None:
        self.log, self.allowed = log, allowed

    def __call__(self, T: float, rng: np.random.Generator) -> Any:
        e = 0.3 * rng.standard_normal()
        while len(self.log.read_text().splitlines()) >= self.allowed.stat().st_size:
            time.sleep(0.01)
        with self.log.open("a") as log:
            log.write(f"{os.getpid()} {T!r} {e!r}\n")
        return problem(e, T), PLUS


def sweep(function: Any = build, **changes: Any) -> hd.Sweep:
    keywords: dict[str, Any] = {
        "times": TIMES,
        "depth": 5,
        "expansion": hd.Pade(4),
        "tol": 1e-8,
        "observables": {"c": COHERENCE, "Z": SZ},
        "save": ("rho", "observables"),
    }
    return hd.Sweep(function, **(keywords | changes))


def exact(e: float) -> Any:
    return 0.5 * np.exp(-1j * e * np.array(TIMES)) * DEPHASING


def assert_same_bits(a: xr.Dataset, b: xr.Dataset) -> None:
    """All results and outcomes equal to the last bit; only timings may differ."""
    assert set(a.variables) == set(b.variables)
    for name in a.variables:
        if name not in TIMING:
            left, right = a[name], b[name]
            assert left.dims == right.dims
            if left.dtype.kind in "fcui":
                assert left.values.tobytes() == right.values.tobytes(), name
            else:
                assert left.values.tolist() == right.values.tolist(), name
