"""Digests of what a user's functions hold: different baths, different digests, in any process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import scipy.interpolate

from heomdask.errors import InputError
from heomdask.expansion import AAA
from heomdask.model import Coupling, Problem, SpectralDensity
from heomdask.model.digest import digest_of
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
from scipy.interpolate import Akima1DInterpolator, CubicSpline, UnivariateSpline
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
    functions = (
        CubicSpline(w, J), Akima1DInterpolator(w, J), enclosed(lam), Slotted(lam),
        *(UnivariateSpline(w, J, **how) for how in ({"s": 0}, {"s": 1e-3}, {"s": 0, "k": 2})),
    )
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
    assert len(set(runs[0])) == 14


def test_a_fitpack_spline_counts_by_its_numbers_and_not_by_its_work_space() -> None:
    w = np.linspace(0, 50, 200)
    digests = set()
    for k in range(20):
        rubbish = [np.full(n, 0.1 * k) for n in range(200, 210) for _ in range(20)]
        del rubbish  # what the next arrays find in their memory
        spline = scipy.interpolate.UnivariateSpline(w, w * np.exp(-w), s=0)
        digests.add(SpectralDensity(spline, T=0.5, points=[1.0]).digest)
    assert len(digests) == 1


def test_what_holds_itself_has_a_digest() -> None:
    class Circular:
        def __init__(self, lam: float) -> None:
            self.lam, self.own = lam, self

        def __call__(self, w: float) -> float:
            return self.lam * w / (1 + w**4)

    digests = {SpectralDensity(Circular(x), T=0.5, points=[1.0]).digest for x in (1.0, 2.0, 1.0)}
    assert len(digests) == 2


def test_what_hides_its_numbers_is_refused_by_the_name_of_the_argument() -> None:
    numbers = iter([1.0] * 10)
    lock = threading.Lock()

    def counting(w: float) -> float:
        return next(generator)

    def guarded(w: float) -> float:
        with lock:
            return w / (1 + w**4)

    generator = (x for x in numbers)
    bath = SpectralDensity(counting, T=0.5, points=[1.0])
    with pytest.raises(InputError, match=r"`density` must be a function whose .* got <generator"):
        _ = bath.digest
    sz = np.diag([1.0, -1.0])
    with pytest.raises(InputError, match=r"`f` must .* or give samples"):
        _ = Problem(sz, drives=[(lambda t: next(generator), sz)]).digest
    assert SpectralDensity(guarded, T=0.5, points=[1.0]).digest  # a lock is no number


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


def test_packages_count_by_name_wherever_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a system, a user or another environment: what is imported besides changes nothing."""
    folder = tmp_path / "lib/python3/dist-packages"
    folder.mkdir(parents=True)
    (folder / "faraway.py").write_text(
        "import sys\n\n\ndef j(w):\n    return len(sys.modules) * w\n"
    )
    monkeypatch.syspath_prepend(folder)
    far = importlib.import_module("faraway")
    before = digest_of(far.j)
    monkeypatch.setitem(sys.modules, "another", types.ModuleType("another"))
    assert digest_of(far.j) == before
