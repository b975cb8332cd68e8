"""What a solve gives back: probed elements at the asked times, a state, outcomes, figures.

Takes: arrays that `polynomial.py` or `runge_kutta.py` filled while they ran.
Gives: `Trajectory`.
Next file: `bounds.py`, the ellipse that holds the field of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import State
from heomdask.outcome import Outcome
from heomdask.plan import AnyArray

if TYPE_CHECKING:
    from heomdask.solvers.bounds import Bounds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The result of `propagate`, for M members.

    Attributes
    ----------
    times : (T,), ascending; the state given was that at ``times[0]``.
    probed : (T, n_probe, M), float64 or complex128; NaN after a member stopped early.
    state : the backend's state at ``times[-1]`` if it was wanted (where it stopped, for a member
        that did).
    states : the states asked for, by index into `times`.
    outcomes : how each member ended.
    stats : per member, by name: "applications" of G, rejected work included;
        "bound_applications" of G and its adjoint on top; "segments" (or steps) accepted and
        "rejected"; the "method" that finished it; of a driven run, the "scan_resolution", the
        longest time between two samples of its drives; and, if it stopped early, "stopped_at" and
        the "fastest_rate" of the generator.
    growth : (M,), the largest element of any ADO over the largest one at the start, looked at
        between segments, and at the end if the state there was wanted.
    bounds : the ellipses, given or made on the way, for a run that goes on; None if not needed.
    """

    times: Floats
    probed: AnyArray
    state: State
    states: dict[int, State]
    outcomes: tuple[Outcome, ...]
    stats: tuple[Mapping[str, int | float | str], ...]
    growth: Floats
    bounds: Bounds | None
