"""Digests of what a user's functions hold: different baths, different digests, in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.interpolate

from heomdask.expansion import AAA
from heomdask.model import Coupling, Problem, SpectralDensity
from heomdask.preparation import prepare


def test_splines_that_keep_their_coefficients_in_slots_have_their_own_digests() -> None:
    w = np.linspace(0, 50, 200)
    for spline in (scipy.interpolate.CubicSpline, scipy.interpolate.PchipInterpolator):
        weak, strong, again = (
            SpectralDensity(spline(w, lam * w * np.exp(-w)), T=0.5, points=[1.0])
            for lam in (0.1, 1.0, 0.1)
        )
        assert weak.digest != strong.digest
        assert weak.digest == again.digest


SPLINES = """
import numpy as np
from scipy.interpolate import Akima1DInterpolator, CubicSpline
from heomdask.model import SpectralDensity
from heomdask.model.digest import digest_of

class Slotted:
    __slots__ = ("__lam", "unset")
    def __init__(self, lam): self.__lam = lam
    def __call__(self, w): return self.__lam * w / (1 + w**4)

w = np.linspace(0, 50, 200)

def enclosed(lam):
    spline = CubicSpline(w, lam * w * np.exp(-w))
    return lambda x: spline(x)

def digests(lam):
    J = lam * w * np.exp(-w)
    functions = CubicSpline(w, J), Akima1DInterpolator(w, J), enclosed(lam), Slotted(lam)
    return [SpectralDensity(f, T=0.5, points=[1.0]).digest for f in functions]

every = digests(0.1) + digests(0.2)
"""


def test_digests_of_slots_differ_and_are_the_same_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", SPLINES + "print(*every)"],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 8


def test_two_splines_have_two_sets_of_exponents() -> None:
    w = np.linspace(0, 50, 200)
    expanded = []
    for lam in (0.1, 0.2, 0.1):
        spline = scipy.interpolate.CubicSpline(w, lam * w * np.exp(-w))
        bath = SpectralDensity(
            lambda x, s=spline: np.where(x < 50, s(np.minimum(x, 50)), 0), T=0.5, points=[1.0]
        )
        problem = Problem(np.diag([0.0, 1.0]), [Coupling(np.diag([1.0, 0.0]), bath)])
        expanded.append(prepare(problem, depth=1, expansion=AAA(1e-4)).expanded)
    weak, strong, again = (e.baths[0][1] for e in expanded)
    assert weak.digest == again.digest
    assert strong.reorganisation == pytest.approx(2 * weak.reorganisation, rel=0.05)
