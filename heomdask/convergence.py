"""Convergence, really run: the same problem with a deeper hierarchy and with a finer expansion.

Takes: a problem as for `evolve`, and the error that is wanted.
Gives: `converge` and `Convergence`.
Next file: `ensemble/convergence_check.py`, the same for a sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.advice import Advice, advise
from heomdask.backends.traits import BackendTraits
from heomdask.errors import InputError
from heomdask.expansion import Expansion
from heomdask.hierarchy.truncation import Depth
from heomdask.model.problem import Problem
from heomdask.results.solution import Solution
from heomdask.solve import evolve

_SOLVER_SHARE = 0.01  # of the error aimed at, left to the time integration


@dataclass(frozen=True)
class Step:
    """One depth and expansion that was run, and the changes that made it grow.

    `depth_change` is the largest change of any output from `depth` to `depth` + 1,
    `expansion_change` that to the next finer expansion (0 where there is nothing to refine).
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
    """

    steps: tuple[Step, ...]
    error: float
    solution: Solution

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
) -> Convergence:
    """Raise depth and expansion until neither changes the outputs by more than `error`.

    Parameters
    ----------
    problem, rho0, times : as for `evolve`.
    observables : name -> operator; what must converge. None: every element of rho.
    error : largest change that is allowed, of any output at any time, absolute.
    start : where to begin; None takes `advise(problem, times, error=error)`.
    most_steps : give up after so many; the result says so.
    backend, threads : as for `evolve`.
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
    runs: dict[tuple[int, Expansion | None], Solution] = {}

    def solved(level: int, method: Expansion | None) -> Solution:
        if (level, method) not in runs:
            runs[level, method] = evolve(
                problem, rho0, grid, depth=level, expansion=method, tol=_SOLVER_SHARE * error,
                observables=observables, save=("rho",) if observables is None else ("observables",),
                backend=backend, threads=threads, throw=False,
            )  # fmt: skip
        return runs[level, method]

    steps: list[Step] = []
    method = advice.expansion
    while True:
        here = solved(depth, method)
        deeper = _change(here, solved(depth + 1, method)) if problem.couplings else 0.0
        finer = 0.0 if method is None else _change(here, solved(depth, method.finer()))
        steps.append(Step(depth, method, deeper, finer))
        if steps[-1].error <= error or len(steps) == most_steps:
            return Convergence(tuple(steps), error, here)
        if method is not None and finer > error / 2:
            method = method.finer()
        if deeper > error / 2:
            depth += 1


def _change(one: Solution, other: Solution) -> float:
    """The largest difference of two runs' outputs; infinite where one of them did not end well."""
    changes = [
        float(np.max(np.abs(a - b))) for a, b in zip(_outputs(one), _outputs(other), strict=True)
    ]
    largest = max(changes)
    return largest if np.isfinite(largest) else np.inf


def _outputs(solution: Solution) -> list[NDArray[Any]]:
    return list(solution.observables.values()) if solution.rho is None else [solution.rho]
