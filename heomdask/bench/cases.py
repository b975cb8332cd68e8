"""The systems and hierarchies that are measured, by name.

Takes: nothing.
Gives: `CASES`, of a `System`, a depth and a number of members each.
Next file: `work.py`, how much one application of a case's plan is.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.expansion import Expansion, Matsubara, Pade
from heomdask.generator.build import build_plan
from heomdask.hierarchy.truncation import Depth
from heomdask.model import Coupling, DrudeLorentz, Problem
from heomdask.plan import Plan
from heomdask.preparation import Prepared, prepare
from heomdask.units import K, cm1, fs

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class System:
    """A Hamiltonian, a coupling operator for each bath, one bath for all of them."""

    name: str
    d: int
    modes: int
    hamiltonian: Callable[[], Matrix]
    couplings: Callable[[], list[Any]]
    bath: DrudeLorentz
    expansion: Expansion
    disorder: float  # standard deviation of the energies, between the members of a batch

    def problem(self, member: int = 0) -> Problem:
        h = self.hamiltonian()
        own = np.random.default_rng(member).standard_normal(len(h))
        energies = np.diag(self.disorder * own * (member > 0))
        return Problem(h + energies, [Coupling(q, self.bath) for q in self.couplings()])


@dataclass(frozen=True)
class Case:
    """A system at one depth, for one member or a batch; `quick` ones are in the short run."""

    system: System
    depth: int
    members: int = 1
    quick: bool = False

    @property
    def name(self) -> str:
        batch = "" if self.members == 1 else f"x{self.members}"
        return f"{self.system.name}-{self.system.modes}-{self.depth}{batch}"

    @property
    def n_ado(self) -> int:
        return Depth(self.depth).n_ado(self.system.modes, None)

    def prepared(self, member: int = 0) -> Prepared:
        return prepare(
            self.system.problem(member), depth=self.depth, expansion=self.system.expansion
        )

    def plan(self, members: int | None = None) -> Plan:
        """The plan of the first members of the batch; by default of all."""
        batch = [self.prepared(m) for m in range(self.members if members is None else members)]
        return build_plan([p.expanded for p in batch], batch[0].index_set)


def _spin_boson() -> Matrix:
    return np.array([[0.25, 0.5], [0.5, -0.25]])


@functools.cache
def _fmo() -> Matrix:
    text = (resources.files("heomdask.examples") / "fmo.toml").read_text(encoding="utf-8")
    return cm1 * np.array(tomllib.loads(text)["system"]["hamiltonian"])


def _ring() -> Matrix:
    """Sixteen sites, neighbours coupled alternately, dipoles along the ring for all others."""
    site = np.arange(16)
    apart = np.abs(site[:, None] - site)
    apart = np.minimum(apart, 16 - apart)
    h = -100.0 / np.maximum(apart, 1) ** 3
    first = np.minimum(site[:, None], site)
    h = np.where(apart == 1, np.where(first % 2, 320.0, 363.0), h)
    np.fill_diagonal(h, 100.0 * np.cos(1.7 * site))
    return cm1 * h


def _sites(d: int) -> list[Any]:
    return [np.diag(row) for row in np.eye(d)]


def _fmo_with(modes: int, temperature: float, expansion: Expansion) -> System:
    bath = DrudeLorentz(lam=35 * cm1, gamma=1 / (50 * fs), T=temperature * K)
    return System("fmo", 7, modes, _fmo, lambda: _sites(7), bath, expansion, 80 * cm1)


SPIN_BOSON = System(
    "spinboson", 2, 3, _spin_boson, lambda: [np.diag([1.0, -1.0])],
    DrudeLorentz(lam=0.2, gamma=0.5, T=0.5), Pade(2), 0.3,
)  # fmt: skip
FMO_7 = _fmo_with(7, 300, Matsubara(0))
FMO_14 = _fmo_with(14, 77, Pade(1))
FMO_21 = _fmo_with(21, 77, Pade(2))
RING = System(
    "ring", 16, 16, _ring, lambda: _sites(16),
    DrudeLorentz(lam=200 * cm1, gamma=1 / (100 * fs), T=300 * K), Matsubara(0), 100 * cm1,
)  # fmt: skip

CASES = (
    *(Case(SPIN_BOSON, depth, quick=depth < 40) for depth in (10, 20, 40)),
    *(Case(FMO_7, depth, quick=depth in (4, 6)) for depth in range(4, 9)),
    *(Case(FMO_14, depth, quick=depth == 4) for depth in range(3, 7)),
    *(Case(RING, depth, quick=depth == 3) for depth in (3, 4)),
    *(
        Case(system, depth, members, quick=members == 64 and depth != 4)
        for system, depth in ((SPIN_BOSON, 10), (FMO_7, 3), (FMO_7, 4))
        for members in (64, 1024)
    ),
)
