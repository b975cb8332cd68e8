"""A plain list of numbers beside an axis with a unit: warned of where it is used as it stands."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import heomdask as hd
from heomdask.units import K, cm1, fs

P1 = np.diag([1.0, 0.0])
TIMES = hd.axis([0, 10], "fs")
LAM = hd.axis([5, 35], "cm^-1")


def dimer(
    T: float = 300 * K, lam: float = 35 * cm1, e: float = 90 * cm1, ratio: float = 0.0, n: int = 1
) -> tuple[hd.Problem, Any]:
    """`n` and `ratio` have no dimension."""
    mixing = 0.1 * e * (ratio + n)
    H = np.array([[e / 2, mixing], [mixing, -e / 2]])
    bath = hd.DrudeLorentz(lam=lam, gamma=1 / (100 * fs), T=T)
    return hd.Problem(H, [hd.Coupling(P1, bath)]), P1


def in_kelvin(T: float, lam: float) -> tuple[hd.Problem, Any]:
    return dimer(T=T * K, lam=lam)


def messages(over: Any, *, build: Any = dimer, times: Any = TIMES, depth: Any = 2) -> list[str]:
    sweep = hd.Sweep(build, over=over, times=times, depth=depth, expansion=hd.Pade(1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sweep.plan(workers=1)
    assert all(w.category is hd.HeomdaskWarning for w in caught)
    assert all(w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize(
    ("over", "name", "carrier", "use", "remedy"),
    [
        ({"T": [100, 300], "lam": LAM}, "T", "`lam`", "`T` of a bath", '([100, 300], "K")'),
        ({"T": [0.5, 1.0]}, "T", "`times`", "`T` of a bath", '([0.5, 1], "K")'),
        ({"T": hd.axis([100, 300])}, "T", "`times`", "`T` of a bath", '([100, 300], "K")'),
        ({("T", "lam"): ([100, 300], LAM)}, "T", "`lam`", "`T` of a bath", '([100, 300], "K")'),
        (
            hd.Table({"lam": [5, 6, 7, 8], "T": hd.axis([77, 77, 300, 300], "K")}),
            "lam", "`T`", "`lam` of a bath", '([5, 6, 7, ...], "cm^-1")',
        ),
        ({"e": [0, 90], "lam": LAM}, "e", "`lam`", "Hamiltonian", '([0, 90], "cm^-1")'),
    ],
)  # fmt: skip
def test_a_forgotten_unit_is_warned_of(
    over: Any, name: str, carrier: str, use: str, remedy: str
) -> None:
    (said,) = messages(over)
    assert said.startswith(f"The axis `{name}` has no unit while {carrier} has one")
    assert use in said
    assert f"hd.axis{remedy}, or hd.axis(" in said and '"rad/fs") if that is meant' in said


@pytest.mark.parametrize(
    ("over", "options"),
    [
        ({"T": hd.axis([100, 300], "K"), "lam": LAM}, {}),
        ({"T": hd.axis([0.02, 0.04], "rad/fs"), "lam": LAM}, {}),
        ({"T": [0.02, 0.04], "lam": [0.001, 0.002]}, {"times": [0.0, 10.0]}),
        ([{"T": 0.02, "lam": 0.001}, {"T": 0.04, "lam": 0.001}], {}),
        ({"T": [100, 300], "lam": LAM}, {"build": in_kelvin}),
        ({"n": [1, 2, 3], "lam": LAM}, {}),
        ({"ratio": [0.0, 0.5], "lam": LAM}, {}),
        ({"depth": [1, 2], "tol": [1e-6, 1e-5], "lam": LAM}, {"depth": None}),
    ],
    ids=["kelvin", "meant", "all plain", "points", "converted", "count", "ratio", "solver"],
)
def test_what_is_right_is_not_warned_of(over: Any, options: dict[str, Any]) -> None:
    assert messages(over, **options) == []


def test_a_name_is_not_a_number() -> None:
    assert messages({"T": hd.axis({"cold": 0.01, "hot": 0.04}), "lam": LAM}) == []


def test_a_run_warns_too(tmp_path: Any) -> None:
    sweep = hd.Sweep(
        dimer, over={"T": [0.03, 0.04], "lam": LAM}, times=TIMES, depth=2, expansion=hd.Pade(1)
    )
    with pytest.warns(hd.HeomdaskWarning, match="axis `T` has no unit"):
        sweep.run(tmp_path / "s.zarr", client=hd.SerialRunner(), progress=False)
