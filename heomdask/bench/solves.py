"""Whole solves at equal error: ours against QuTiP's default method and its best one.

Takes: a `Solve`, a case over its output times.
Gives: `Solved`, seconds from the problem to the states.
Next file: `construction.py`, what comes before the first step.

The error is the largest of any element of rho at any output time, against a run of ours at a
tolerance far below. Of each of QuTiP's methods the loosest tolerance that reaches it is taken,
and "best" is the method that is then fastest. Both sides build their hierarchy anew.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.bench import peers
from heomdask.bench.cases import FMO_7, SPIN_BOSON, Case
from heomdask.bench.timing import Action, Effort, Spread
from heomdask.solve import evolve
from heomdask.units import fs

ERROR = 1e-6
_TIGHT = 1e-11
DEFAULT = "adams"
_METHODS = (DEFAULT, "tsit5", "vern7", "vern9")
_TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)

States = NDArray[np.complex128]


@dataclass(frozen=True)
class Solve:
    """A case over its output times, from the first level or site."""

    case: Case
    times: NDArray[np.float64]
    quick: bool = False

    @property
    def name(self) -> str:
        return f"solve-{self.case.name}"

    def ours(self, tol: float, threads: int | None = None) -> States:
        system, d = self.case.system, len(self.case.system.hamiltonian())
        solution = evolve(
            system.problem(), np.eye(d)[0], self.times, depth=self.case.depth,
            expansion=system.expansion, tol=tol, save=("rho",), threads=threads,
        )  # fmt: skip
        assert solution.rho is not None
        return solution.rho

    def qutip(self, method: str, rtol: float) -> States:
        from qutip import basis

        expanded = self.case.prepared().expanded
        options = {
            "method": method, "rtol": rtol, "atol": rtol * 1e-2, "nsteps": 100_000,
            "progress_bar": "", "store_states": True,
        }  # fmt: skip
        solver = peers.qutip_solver(expanded, self.case.depth, options)
        states = solver.run(basis(expanded.d, 0).proj(), self.times).states
        return np.array([rho.full() for rho in states])


@dataclass(frozen=True)
class Setting:
    """Who solved it and how, the error, seconds, and how many times longer than ours it took."""

    name: str
    error: float
    seconds: Spread
    ratios: dict[int, Spread]  # by our number of threads; of our own, empty


@dataclass(frozen=True)
class Solved:
    """All settings of one solve."""

    name: str
    n_ado: int
    settings: list[Setting]


_PICOSECOND = np.linspace(0, 1000 * fs, 101)
SOLVES = (
    Solve(Case(SPIN_BOSON, 10), np.linspace(0, 50, 101)),
    Solve(Case(FMO_7, 4), _PICOSECOND, quick=True),
    Solve(Case(FMO_7, 6), _PICOSECOND),
)


def expected_seconds(solve: Solve, effort: Effort) -> float:
    """A guess: QuTiP once for each setting that is tried, and twice in every round."""
    once = 3e-5 * solve.case.n_ado * solve.case.system.d**2
    return 1 + once * (12 + 2 * effort.rounds)


def measure(solve: Solve, effort: Effort, threads: list[int]) -> Solved:
    """Choose QuTiP's settings, then time all in turns."""
    reference = solve.ours(_TIGHT)

    def error(states: States) -> float:
        return float(np.max(np.abs(states - reference)))

    theirs = _settings(solve, error) if peers.has_qutip() else {}
    actions: dict[int | str, Action] = {
        n: Action(functools.partial(solve.ours, ERROR, n), n) for n in threads
    }
    for name, (method, rtol, _) in theirs.items():
        actions[name] = Action(functools.partial(solve.qutip, method, rtol))
    seconds = effort.interleave(actions)
    own = error(solve.ours(ERROR))
    settings = [Setting(f"heomdask on {n}", own, Spread.of(seconds[n]), {}) for n in threads]
    for name, (_, _, off) in theirs.items():
        ratios = {n: Spread.of(seconds[name] / seconds[n]) for n in threads}
        settings.append(Setting(name, off, Spread.of(seconds[name]), ratios))
    return Solved(solve.name, solve.case.prepared().index_set.n_ado, settings)


def _settings(
    solve: Solve, error: Callable[[States], float]
) -> dict[str, tuple[str, float, float]]:
    """QuTiP's default method and its best one by name: method, tolerance, error."""
    reached: dict[str, tuple[float, float, float]] = {}  # seconds, tolerance, error
    for method in _METHODS:
        for rtol in _TOLERANCES:
            started = time.thread_time()
            off = error(solve.qutip(method, rtol))
            if off <= ERROR:
                reached[method] = (time.thread_time() - started, rtol, off)
                break
    best = min(reached, key=lambda method: reached[method][0], default=None)
    labels: dict[str, list[str]] = {DEFAULT: ["default"]}
    if best is not None:
        labels.setdefault(best, []).append("best")
    return {
        f"QuTiP, {' and '.join(names)}: {method} {reached[method][1]:.0e}": (
            method, *reached[method][1:],
        )
        for method, names in labels.items()
        if method in reached
    }  # fmt: skip
