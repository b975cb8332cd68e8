"""The front of the solvers: a state at the first time in, values at all times out.

Takes: a backend, a compiled plan, a state, output times.
Gives: `propagate`.
Next file: `results/solution.py`, what a user sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.backends.traits import BackendTraits, Compiled, Selection, State
from heomdask.solvers.bounds import Bounds
from heomdask.solvers.drives import Drives
from heomdask.solvers.polynomial import Run, Task, save_indices
from heomdask.solvers.trajectory import Trajectory

METHODS = ("auto", "faber", "taylor", "rk")
MAX_APPLICATIONS = 1_000_000


def propagate(
    backend: BackendTraits,
    compiled: Compiled,
    x0: State,
    times: Sequence[float] | NDArray[np.float64],
    probe: Selection,
    *,
    tol: float | NDArray[np.float64] = 1e-6,
    method: str = "auto",
    bounds: Bounds | None = None,
    drives: Drives | None = None,
    save_states: Sequence[int] = (),
    progress: Callable[[float], None] | None = None,
    max_applications: int = MAX_APPLICATIONS,
) -> Trajectory:
    grid = checks.times("times", times)
    members = compiled.plan.n_members
    tolerance = np.broadcast_to(np.asarray(tol, dtype=np.float64), (members,)).copy()
    task = Task(backend, compiled, grid, probe, tolerance, method, bounds,
                save_indices(save_states, len(grid)), progress, max_applications)
    return Run(task, x0).to_end()
