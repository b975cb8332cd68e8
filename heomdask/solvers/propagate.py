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
from heomdask.solvers.polynomial import Run
from heomdask.solvers.record import Task
from heomdask.solvers.runge_kutta import Stepper
from heomdask.solvers.trajectory import Floats, Trajectory

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
    whole: float | None = None,
    drives: Drives | None = None,
    save_states: Sequence[int] = (),
    wants_end: bool = True,
    progress: Callable[[float], None] | None = None,
    max_applications: int = MAX_APPLICATIONS,
) -> Trajectory:
    """Integrate ``dX/dt = G(t) X`` for all members of a compiled plan.

    Every member has its own segments, degrees and steps: its numbers do not depend on its
    companions, to the last bit (within one backend).

    Parameters
    ----------
    x0 : the state at ``times[0]``; left as it is.
    times : (T,), ascending, repeats allowed.
    probe : the elements that are wanted at every time.
    tol : bound on the error of every probed element at every time, absolute; a number or (M,).
    method : "faber" or "taylor" for a constant generator, "rk" for any; "auto" takes "rk" if
        there are named scalars, else "taylor" where few applications will do, else "faber".
    bounds : the ellipses of a constant generator, if known; else they are computed if needed.
    whole : the length of the run that this is a part of: errors are allowed to add up to `tol`
        over that time. By default that of `times`.
    drives : values of the plan's named scalars.
    save_states : indices into `times` at which the whole state is kept.
    wants_end : whether the state at the last time is wanted; without, ``Trajectory.state`` is one
        of an earlier time, which saves passes over memory.
    progress : called now and then with the fraction of the time that is done, up to 1.
    max_applications : of G per member, after which it stops with TOO_MANY_STEPS.

    Returns
    -------
    Trajectory
        With one outcome per member; nothing is raised for what happens on the way.
    """
    grid = checks.times("times", times)
    checks.choice("method", method, METHODS)
    names = compiled.plan.names
    if names and drives is None:
        raise checks.refuse("drives", f"given: the plan has the named scalars {names}", None)
    if names and method in ("faber", "taylor"):
        raise checks.refuse("method", "'auto' or 'rk' for a generator that depends on time", method)
    members = compiled.plan.n_members
    saved = tuple(range(len(grid))[i] for i in save_states)
    task = Task(
        backend,
        compiled,
        grid,
        probe,
        _tolerances(tol, members),
        method,
        bounds,
        drives if names else None,
        saved,
        progress,
        max_applications,
        float(grid[-1] - grid[0]) if whole is None else whole,
        wants_end or len(grid) - 1 in saved,
    )
    solver = Stepper(task, x0) if names or method == "rk" else Run(task, x0)
    return solver.to_end()


def _tolerances(tol: float | NDArray[np.float64], members: int) -> Floats:
    """One tolerance per member, (M,)."""
    array = np.broadcast_to(np.asarray(tol, dtype=np.float64), (members,)).copy()
    for value in array.tolist():
        checks.real_number("tol", value, low=0.0, strict=True)
    return array
