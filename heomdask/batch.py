"""Many members in one run: like beside like, each with as many digits as its tolerance needs.

Takes: members that share a hierarchy, and what `solve.py` is asked for.
Gives: `run_batch`.
Next file: `ensemble/`, which does this for a whole sweep.

Single precision halves the bytes and doubles the numbers in a register. A member is computed in it
if the plan is in its real form, the tolerance is at least what the backends promise of a trajectory
in single precision, rounding stays below the tolerance as `solvers/bounds.py` estimates it, and the
system oscillates faster than its baths decay. That is a property of the member alone. Where the run
then tells of anything but success, or of ADOs that grew so that rounding may have mattered after
all, it is done again in double precision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.backends import registry
from heomdask.backends.traits import TRAJECTORY_TOLERANCE, BackendTraits
from heomdask.errors import InputError
from heomdask.generator.build import build_plan
from heomdask.outcome import Outcome
from heomdask.preparation import Prepared
from heomdask.results.solution import BatchResult
from heomdask.solve import Request, refuse_if_too_large, run
from heomdask.solvers import Bounds, field_of_values, rounding

Complex = NDArray[np.complex128]
Ints = NDArray[np.intp]


def run_batch(
    prepared: Sequence[Prepared],
    rho0s: Sequence[Any] | Complex,
    times: Any,
    *,
    tol: float = 1e-6,
    observables: Mapping[str, Any] | None = None,
    save: Sequence[str] = ("rho", "observables"),
    method: str = "auto",
    backend: str | BackendTraits = "auto",
    threads: int | None = None,
    final_ados: bool = False,
    progress: Callable[[float], None] | None = None,
) -> BatchResult:
    """Propagate members that share one hierarchy (equal `key`), all in one batch.

    The numbers of a member do not depend on its companions, to the last bit (with a backend by
    name; an instance brings its own layout, which should be "batch"). With a `tol` of 1e-5 or more
    a member may be computed in single precision, if its rounding errors stay below `tol`:
    then ``stats[m]["bits"]`` is 32.

    Parameters
    ----------
    prepared : M of them, from `prepare`.
    rho0s : (M, d, d), or M of whatever `evolve` takes.
    final_ados : keep the whole hierarchy at the last time, to restart from.
    progress : called now and then with the fraction of the work that is done, up to 1.
    others : as in `evolve`.
    """
    if len({p.key for p in prepared}) != 1:
        raise InputError(
            "`prepared` must be a non-empty list of members with one `key`, got "
            f"{len({p.key for p in prepared})} different ones; batch them by key."
        )
    if len(rho0s) != len(prepared):
        raise InputError(f"`rho0s` must hold {len(prepared)} states, got {len(rho0s)}.")
    grid = checks.times("times", times)
    report = None if progress is None else _rising(progress)
    request = Request(
        grid, tol, observables, save, method, backend, threads, "batch", final_ados, report
    )
    order = _by_likeness(prepared)
    ordered = [prepared[m] for m in order], [rho0s[m] for m in order]
    bounds = _bounds(ordered[0], request)
    found = run(*ordered, request) if bounds is None else _Batch(*ordered, request, bounds).solve()
    return found.take(np.argsort(order))


def _rising(report: Callable[[float], None]) -> Callable[[float], None]:
    """What never tells less than before, though some work may have to be done again."""
    most = 0.0

    def tell(fraction: float) -> None:
        nonlocal most
        most = max(most, fraction)
        report(most)

    return tell


def _by_likeness(prepared: Sequence[Prepared]) -> Ints:
    """The members in an order in which neighbours take about as many terms of a series.

    Kernels take several side by side, and as long as the longest. What counts is the strength of
    the baths, and then how far the energies of the system lie apart.
    """
    energies = np.linalg.eigvalsh(np.array([p.problem.H for p in prepared]))
    strength = [p.expanded.strength for p in prepared]
    return np.lexsort((energies[:, -1] - energies[:, 0], np.array(strength)))


@dataclass(frozen=True, eq=False)
class _Batch:
    """Members of which some may be computed in single precision."""

    prepared: Sequence[Prepared]
    rho0s: Sequence[Any]
    request: Request
    bounds: Bounds

    def solve(self) -> BatchResult:
        """All members, in single precision where that will do."""
        narrow = self.narrow()
        parts: list[tuple[Ints, BatchResult]] = []
        if narrow.any():
            who = np.flatnonzero(narrow)
            found = self.run(who, "float32", 0.0)
            kept = self.holds(who, found)
            parts.append((who[kept], found.take(np.flatnonzero(kept))))
            narrow[who[~kept]] = False
        if not narrow.all():
            who = np.flatnonzero(~narrow)
            parts.append((who, self.run(who, "float64", float(np.mean(narrow)))))
        return BatchResult.joined(parts)

    @property
    def rounding(self) -> NDArray[np.float64]:
        """The error to be expected of single precision; (M,)."""
        times = self.request.times
        return rounding(self.bounds, float(times[-1] - times[0]), "float32")

    def narrow(self) -> NDArray[np.bool_]:
        """Who may be computed in single precision; (M,).

        Where decay is faster than all else the terms of a series are larger than their sum: single
        precision would need so many short segments that it is no faster.
        """
        swift = self.bounds.real <= self.bounds.imag
        return np.asarray(swift & (self.rounding <= self.request.tol))

    def run(self, who: Ints, precision: str, begin: float) -> BatchResult:
        """Some of the members, where `begin` is the fraction of all that is done before them."""
        report, share = self.request.progress, len(who) / len(self.prepared)
        return run(
            [self.prepared[m] for m in who],
            [self.rho0s[m] for m in who],
            dataclasses.replace(
                self.request,
                precision=precision,
                bounds=self.bounds.take(who),
                progress=report and (lambda fraction: report(begin + share * fraction)),
            ),
        )

    def holds(self, who: Ints, found: BatchResult) -> NDArray[np.bool_]:
        """Which results of members in single precision are as good as they should be."""
        growth = np.array([max(1.0, own["growth"]) for own in found.stats])
        small = growth * self.rounding[who] <= self.request.tol
        return np.asarray(small & [outcome is Outcome.DONE for outcome in found.outcomes])


def _bounds(prepared: Sequence[Prepared], request: Request) -> Bounds | None:
    """The ellipses of all members, if they may decide for single precision; else None."""
    first = prepared[0]
    whole_states = request.final_ados or "ados" in request.save
    if (
        request.tol < TRAJECTORY_TOLERANCE["float32"]
        or whole_states  # from which a run restarts as if it had not stopped
        or first.expanded.form != "real"  # in which a state stays Hermitian to the last bit
        or first.shapes  # depends on time: no ellipse
        or request.method in ("rk", "taylor")
    ):
        return None
    plan = build_plan([p.expanded for p in prepared], first.index_set)
    backend = registry.resolve(
        request.backend, threads=request.threads, layout=request.layout, plan=plan
    )
    if "float32" not in backend.info.dtypes:
        return None
    refuse_if_too_large(first, len(prepared), request, backend)
    return field_of_values(backend, backend.compile(plan))
