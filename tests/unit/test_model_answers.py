"""What user functions read from elsewhere: never a result of other values, never silently."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import pytest

from heomdask import Coupling, Drive, Pade, Problem, Sweep
from heomdask.errors import InputError
from heomdask.expansion import AAA
from heomdask.model import SpectralDensity
from heomdask.model.digest import digest_of
from heomdask.preparation import prepare

settings = types.ModuleType("settings")
SX = np.array([[0.0, 1.0], [1.0, 0.0]])
SZ = np.diag([1.0, -1.0])


class Cfg:
    lam = 0.1


def shape(w: Any) -> Any:
    return w / (1 + w**4)


class ByInstance:
    def __call__(self, w: Any) -> Any:
        return Cfg.lam * shape(w)


known = {"lam": 0.1}
SOURCES = {
    "class attribute": lambda w: Cfg.lam * shape(w),
    "module attribute": lambda w: settings.lam * shape(w),  # type: ignore[attr-defined]  # made above
    "bound builtin": lambda w, get=known.get: get("lam") * shape(w),
    "partial": functools.partial(lambda get, w: get("lam") * shape(w), known.get),
    "function inside": lambda w: (lambda: Cfg.lam)() * shape(w),
    "method": ByInstance(),
    "by name": lambda w: getattr(globals()["Cfg"], "la" + "m") * shape(w),
}
FOLLOWED = [name for name in SOURCES if name not in ("method", "by name")]


def set_all(monkeypatch: pytest.MonkeyPatch, lam: float) -> None:
    monkeypatch.setattr(Cfg, "lam", lam)
    monkeypatch.setattr(settings, "lam", lam, raising=False)
    monkeypatch.setitem(known, "lam", lam)


def reorganisation(bath: SpectralDensity) -> float:
    problem = Problem(SZ, [Coupling(SZ, bath)])
    return prepare(problem, depth=1, expansion=AAA(1e-3)).expanded.baths[0][1].reorganisation


@pytest.mark.parametrize("source", SOURCES)
def test_an_expansion_is_of_the_density_as_it_is_now(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for lam in (0.1, 0.2):
        set_all(monkeypatch, lam)
        found.append(reorganisation(SpectralDensity(SOURCES[source], T=0.5, points=[1.0])))
    assert found[1] == pytest.approx(2 * found[0], rel=1e-6)


@pytest.mark.parametrize("source", FOLLOWED)
def test_a_digest_follows_what_a_function_names(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for lam in (0.1, 0.2, 0.1):
        set_all(monkeypatch, lam)
        found.append(digest_of(SOURCES[source]))
    assert found[0] == found[2] != found[1]


def test_a_bath_that_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bath = SpectralDensity(SOURCES["class attribute"], T=0.5, points=[1.0])
    reorganisation(bath)
    monkeypatch.setattr(Cfg, "lam", 0.3)
    with pytest.raises(InputError, match=r"`bath` must be one whose J\(w\) stays what it is"):
        reorganisation(bath)


def test_drives_that_all_points_share_by_a_global_are_refused(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def driven(a: float) -> Any:
        monkeypatch.setattr(Cfg, "lam", a)
        return Problem(SZ, drives=[Drive(lambda t: Cfg.lam * np.cos(t), SX)]), np.diag([1.0, 0.0])

    over = {"a": [0.1, 0.2]}
    sweep = Sweep(driven, over=over, times=[0.0, 1.0], depth=0, expansion=Pade(0))
    with pytest.raises(InputError, match="`drive0` must be a function of time that stays"):
        sweep.plan()


def test_drives_that_bring_their_numbers_are_taken() -> None:
    def driven(a: float) -> Any:
        drive = Drive(lambda t: a * np.cos(t), SX)
        return Problem(SZ, drives=[drive]), np.diag([1.0, 0.0])

    over = {"a": [0.1, 0.2]}
    assert Sweep(driven, over=over, times=[0.0, 1.0], depth=0, expansion=Pade(0)).plan().points == 2
