"""Convergence, really run: the same problem with a deeper hierarchy and with a finer expansion.

Takes: a problem as for `evolve`, and the error that is wanted.
Gives: `converge` and `Convergence`.

Where a larger hierarchy does not fit into memory, what does fit stands in for it: the change from
one level less (which is more than that to the next one, once the depth converges), and the change
with the expansion at a smaller depth (on which it hardly depends).
Next file: `ensemble/convergence_check.py`, the same for a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.advice import Advice, advise
from heomdask.backends.traits import BackendTraits
from heomdask.errors import InputError, TooLarge
from heomdask.expansion import Expansion
from heomdask.expansion.notices import collected, warn
from heomdask.hierarchy.truncation import Depth
from heomdask.model.problem import Problem
from heomdask.preparation import DOUBT
from heomdask.results.solution import Solution
from heomdask.solve import evolve

_SOLVER_SHARE = 0.01  # of the error aimed at, left to the time integration


@dataclass(frozen=True)
class Step:
    """One depth and expansion that was run, and the changes that made it grow.

    `depth_change` is the largest change of any output from `depth` to `depth` + 1 (from
    `depth` - 1 where that does not fit), `expansion_change` that to the next finer expansion
    (0 where there is nothing to refine; infinite where it fits at no depth).
    """

    depth: int
    expansion: Expansion | None
    depth_change: float
    expansion_change: float

    @property
    def error(self) -> float:
        """Sum of the two changes: the estimate of what this step's own answer is off by."""
        return self.depth_change + self.expansion_change


@dataclass(frozen=True)
class Convergence:
    """What `converge` found.

    Attributes
    ----------
    steps : all that was tried, in order; the last one counts.
    error : what was aimed at.
    solution : the run of the last step.
    too_large : first depth and expansion that did not fit into memory; None if all did.
    """

    steps: tuple[Step, ...]
    error: float
    solution: Solution
    too_large: tuple[int, Expansion | None] | None = None

    @property
    def converged(self) -> bool:
        """Whether the last step's changes lie within `error`."""
        return self.steps[-1].error <= self.error

    @property
    def depth(self) -> int:
        return self.steps[-1].depth

    @property
    def expansion(self) -> Expansion | None:
        return self.steps[-1].expansion

    def __str__(self) -> str:
        lines = [f"converged to {self.error:.1e}" if self.converged else "NOT converged"]
        for step in self.steps:
            lines.append(
                f"  depth={step.depth}, expansion={step.expansion}: changes by "
                f"{step.depth_change:.1e} with the depth, {step.expansion_change:.1e} with the "
                "expansion"
            )
        if self.too_large is not None:
            depth, expansion = self.too_large
            lines.append(f"  depth={depth}, expansion={expansion} does not fit into memory")
        return "\n".join(lines)


def converge(
    problem: Problem,
    rho0: Any,
    times: ArrayLike,
    observables: Mapping[str, Any] | None = None,
    error: float = 1e-3,
    *,
    start: Advice | None = None,
    most_steps: int = 10,
    backend: str | BackendTraits = "auto",
    threads: int | None = None,
    progress: bool = False,
) -> Convergence:
    """Raise depth and expansion until neither changes the outputs by more than `error`.

    It ends with the largest hierarchy that fits into memory, and warns, if that is not enough.

    Parameters
    ----------
    problem, rho0, times : as for `evolve`.
    observables : name -> operator; what must converge. None: every element of rho.
    error : largest change that is allowed, of any output at any time, absolute.
    start : where to begin; None takes `advise(problem, times, error=error)`.
    most_steps : give up after so many; the result says so.
    backend, threads, progress : as for `evolve`; each run shows a bar of its own.
    """
    grid = checks.times("times", times)
    error = checks.real_number("error", error, low=0, strict=True)
    most_steps = checks.whole_number("most_steps", most_steps, low=1)
    advice = advise(problem, grid, error=error) if start is None else start
    depth = advice.depth.depth if isinstance(advice.depth, Depth) else advice.depth
    if not isinstance(depth, int):
        raise InputError(
            f"`start` must be of a whole-number depth, got {depth!r}; give hd.advise none."
        )

    def run(level: int, method: Expansion | None) -> Solution:
        with collected() as notices:
            solution = evolve(
                problem, rho0, grid, depth=level, expansion=method, tol=_SOLVER_SHARE * error,
                observables=observables, backend=backend, threads=threads, throw=False,
                save=("rho",) if observables is None else ("observables",), progress=progress,
            )  # fmt: skip
        for notice in notices:
            if DOUBT not in notice:  # here the error itself is found
                warn(notice)
        return solution

    runs = _Runs(run)
    method = advice.expansion
    depth, here = runs.deepest(depth, method)
    steps: list[Step] = []
    while True:
        deeper = runs.depth_change(depth, method) if problem.couplings else 0.0
        finer = 0.0 if method is None else runs.expansion_change(depth, method)
        steps.append(Step(depth, method, deeper, finer))
        if steps[-1].error <= error or len(steps) == most_steps:
            break
        larger = runs.larger(steps[-1], error / 2)
        if larger is None:
            break
        depth, method, here = larger
    found = Convergence(tuple(steps), error, here, runs.too_large)
    if not found.converged and found.too_large is not None:
        warn(f"hd.converge was stopped by memory. {found}")
    return found


class _Runs:
    """The runs that were made, by depth and expansion; None for those that do not fit."""

    def __init__(self, run: Callable[[int, Expansion | None], Solution]) -> None:
        self._run = run
        self._made: dict[tuple[int, Expansion | None], Solution | None] = {}
        self.too_large: tuple[int, Expansion | None] | None = None

    def get(self, depth: int, method: Expansion | None) -> Solution | None:
        key = depth, method
        if key not in self._made:
            try:
                self._made[key] = self._run(depth, method)
            except TooLarge:
                self._made[key] = None
                self.too_large = self.too_large or key
        return self._made[key]

    def deepest(self, depth: int, method: Expansion | None) -> tuple[int, Solution]:
        """The largest depth that fits, from `depth` down, and its run."""
        for level in range(depth, 0, -1):
            found = self.get(level, method)
            if found is not None:
                return level, found
        return 0, self._run(0, method)

    def larger(self, step: Step, aim: float) -> tuple[int, Expansion | None, Solution] | None:
        """The first that fits: refined in all that changes by more than `aim`, or in the worst."""
        depth, method = step.depth, step.expansion
        choices: list[tuple[float, int, Expansion | None]] = []
        if step.depth_change > aim:
            choices.append((step.depth_change, depth + 1, method))
        if method is not None and step.expansion_change > aim:
            choices.append((step.expansion_change, depth, method.finer()))
            if step.depth_change > aim:
                choices.append((np.inf, depth + 1, method.finer()))
        for _, level, finer in sorted(choices, key=lambda choice: -choice[0]):
            found = self.get(level, finer)
            if found is not None:
                return level, finer, found
        return None

    def depth_change(self, depth: int, method: Expansion | None) -> float:
        """From `depth` to the next one, or to `depth` from the one before."""
        here, deeper = self.get(depth, method), self.get(depth + 1, method)
        if deeper is None:
            deeper = self.get(depth - 1, method) if depth else None
        return _change(here, deeper)

    def expansion_change(self, depth: int, method: Expansion) -> float:
        """To the next finer expansion, at the largest depth at which that fits."""
        finer = method.finer()
        level = next((n for n in range(depth, -1, -1) if self.get(n, finer) is not None), 0)
        return _change(self.get(level, method), self.get(level, finer))


def _change(one: Solution | None, other: Solution | None) -> float:
    """The largest difference of two runs' outputs; infinite where one of them did not end well."""
    if one is None or other is None:
        return np.inf
    changes = [
        float(np.max(np.abs(a - b))) for a, b in zip(_outputs(one), _outputs(other), strict=True)
    ]
    largest = max(changes)
    return largest if np.isfinite(largest) else np.inf


def _outputs(solution: Solution) -> list[NDArray[Any]]:
    return list(solution.observables.values()) if solution.rho is None else [solution.rho]
