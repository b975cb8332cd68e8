"""Whole trajectories of an independent sparse solver, each at its own hierarchy.

The coefficients are given, so nothing but the equations and the propagation is compared.
"""

from __future__ import annotations

import numpy as np
import pytest
from support import cplx, load, populations

import heomdask as hd

BASELINES = load("baselines")
TOLERANCE = 1e-6
CHEAP = {"DIMER": "6", "FMO300": "3", "SB": "10", "LAM3": "6"}  # for numpy
SLOW = {("FMO77", "5"), ("FMO300", "9"), ("FMO300", "10"), ("FMO77", "6")}


def problem_of(data):
    couplings = []
    for bath in data["baths"]:
        Q = np.diag(bath["Q_diag"]) if bath["Q"] is None else np.array(bath["Q"])
        exponents = hd.Exponents(
            c=cplx(bath["c"]), cbar=cplx(bath["cbar"]), gamma=cplx(bath["nu"]), delta=bath["delta"]
        )
        couplings.append(hd.Coupling(Q, exponents))
    return hd.Problem(np.array(data["H"]), couplings)


def assert_matches(name, depth, backend):
    data = BASELINES[name]
    expected = data["depths"][depth]
    sol = hd.evolve(
        problem_of(data),
        np.array(data["rho0"]),
        expected["times"],
        depth=int(depth),
        expansion=None,
        backend=backend,
        tol=1e-8,
        throw=False,
    )
    assert np.max(np.abs(populations(sol.rho) - expected["populations"])) < TOLERANCE
    assert np.max(np.abs(sol.rho[:, 0, 1] - cplx(expected["rho01"]))) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        pytest.param(n, d, marks=[pytest.mark.slow] if (n, d) in SLOW else [])
        for n, data in BASELINES.items()
        for d in sorted(data["depths"], key=int)
    ],
)
def test_native(name, depth):
    assert_matches(name, depth, "native")


@pytest.mark.parametrize(("name", "depth"), CHEAP.items())
def test_numpy(name, depth):
    assert_matches(name, depth, "numpy")
