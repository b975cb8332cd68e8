"""From a problem to a hierarchy: the first step of every run.

Takes: a `Problem`, a `depth` and an `expansion` (values, or "auto" from the point alone).
Gives: `Prepared`: exponents, index set, and the key by which members may share a batch.
Next file: `solve.py`, which runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, memory
from heomdask.advice import advise, rough_error
from heomdask.errors import InputError
from heomdask.expansion import Keyed, expand_once, warn
from heomdask.generator.build import Expanded, structure
from heomdask.hierarchy.index_set import IndexSet, index_set
from heomdask.hierarchy.truncation import Depth, Truncation, as_truncation
from heomdask.model.bath import Bath
from heomdask.model.exponents import Exponents
from heomdask.model.problem import Problem

DOUBT = "is estimated to be off by"
DOUBTFUL = 0.1  # estimated error of an element of rho from which a run is called into question
SAMPLED = 256  # times at which a pulse is remembered

Shape = tuple[Callable[[float], float], tuple[float, ...]]  # a pulse and where it jumps


@dataclass(frozen=True, eq=False)
class Prepared:
    """One problem, ready to be put into a batch.

    Attributes
    ----------
    problem : as given.
    expanded : the problem in exponents, as `generator.build_plan` takes it.
    index_set : its hierarchy, shared with every member of equal `key`.
    key : members with equal key may run in one batch.
    shapes : name of a time-dependent factor -> (callable t -> number, breakpoints).
    report : what was chosen: depth, expansion, number of ADOs, estimated error.
    sampled : (name of a factor, times, its values there when this was prepared), of each.
    """

    problem: Problem
    expanded: Expanded
    index_set: IndexSet
    key: Hashable
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    sampled: Sequence[tuple[str, list[float], list[float]]] = ()

    def require_same_pulses(self) -> None:
        """Refuse functions of time that changed since, by a global that another point set, say."""
        for name, times, values in self.sampled:
            f = self.shapes[name][0]
            now = [f(t) for t in times]
            if not np.array_equal(now, values, equal_nan=True):
                raise InputError(
                    f"`{name}` must be a function of time that stays what it is, got one whose "
                    "values changed after its problem was made; give it what it needs as "
                    "arguments (functools.partial), not by a global or an attribute that changes."
                )

    @property
    def size(self) -> memory.Size:
        """What decides how much memory it takes; equal for equal keys."""
        ados, expanded = self.index_set, self.expanded
        real, driven = expanded.form == "real", bool(self.shapes)
        return memory.Size(ados.n_ado, expanded.d, ados.n_modes, real, driven)


def prepare(
    problem: Problem,
    *,
    depth: Any = None,
    expansion: Any = None,
    times: NDArray[np.float64] | None = None,
    error: float = 1e-3,
) -> Prepared:
    """Expand the baths and lay out the hierarchy.

    Parameters
    ----------
    problem : the physics.
    depth : a whole number, a truncation (`hd.Depth`, `hd.ModeLimits`, `hd.Weighted`) or "auto".
    expansion : `hd.Pade(N)`, `hd.Matsubara(N)`, `hd.AAA(tol)`, `hd.ESPRIT(K)` or "auto"; not
        needed where every coupling brings its own.
    times : output times; "auto" needs them.
    error : what "auto" aims at, in elements of the reduced density matrix.
    """
    if not isinstance(problem, Problem):
        raise checks.refuse("problem", "an hd.Problem", type(problem).__name__)
    baths = problem.baths()
    depth, expansion, estimate = _choose(problem, baths, depth, expansion, times, error)
    quiet = tuple(
        (q, _exponents(bath, own or expansion), None if f is None else f"f{k}")
        for k, (q, bath, f, own) in enumerate(baths)
    )
    shapes: dict[str, Shape] = {
        f"f{k}": (f, tuple(getattr(f, "breakpoints", ())))
        for k, (_, _, f, _) in enumerate(baths)
        if f is not None
    }
    drives = []
    for name, f, operator, breakpoints in problem.hermitian_drives:
        drives.append((name, operator))
        shapes[name] = (f, tuple(breakpoints))
    expanded = Expanded(problem.H, tuple(drives), tuple(problem.lindblad), quiet)
    _count_first(depth, expanded.rates, problem.d)
    ados = index_set(depth, expanded.n_modes, expanded.rates)
    report = {"depth": depth, "expansion": expansion, "n_ado": ados.n_ado, **estimate}
    key = (structure(expanded), ados.bounds)
    return Prepared(problem, expanded, ados, key, shapes, report, _sample(shapes, times))


def _sample(
    shapes: Mapping[str, Shape], times: NDArray[np.float64] | None
) -> list[tuple[str, list[float], list[float]]]:
    """Every function of time at some times of the run."""
    if times is None or not shapes:
        return []
    some = np.linspace(times[0], times[-1], SAMPLED).tolist()
    return [(name, some, [f(t) for t in some]) for name, (f, _) in shapes.items()]


def doubt(prepared: Prepared, times: NDArray[np.float64]) -> str | None:
    """What is to be said of a hierarchy that is estimated to be far too small; else None.

    The estimate is some times too large as a rule: only one that is far off is worth a warning.
    Depth 0 is a choice to leave the memory of the baths out.
    """
    report, problem = prepared.report, prepared.problem
    off = report.get("estimated_error")
    if off is None and problem.couplings and prepared.index_set.n_ado > 1:
        depth, expansion = report["depth"], report["expansion"]
        off = rough_error(problem, times, depth=depth, expansion=expansion)
    if off is None or off <= DOUBTFUL:
        return None
    return (
        f"`depth` = {report['depth']} with `expansion` = {report['expansion']} {DOUBT} {off:.2g} "
        "in elements of rho. hd.advise says what it takes, and hd.converge how large the error "
        "really is."
    )


def _choose(
    problem: Problem, baths: list[Any], depth: Any, expansion: Any, times: Any, error: float
) -> tuple[Any, Any, dict[str, float]]:
    """Depth as a truncation, expansion as a method or None, and what `advise` estimated."""
    open_baths = [b for _, b, _, own in baths if own is None and not isinstance(b, Exponents)]
    if expansion is None and open_baths:
        raise checks.refuse(
            "expansion",
            'an expansion or "auto"',
            None,
            'there is no default: give expansion=hd.Pade(1), or expansion="auto" to have '
            "hd.advise choose",
        )
    if depth is None and baths:
        raise checks.refuse(
            "depth",
            'a whole number, a truncation or "auto"',
            None,
            'there is no default: give depth=5, or depth="auto" to have hd.advise choose',
        )
    estimate: dict[str, float] = {}
    if "auto" in (depth, expansion) and baths:
        if times is None:
            raise checks.refuse("times", 'given where `depth` or `expansion` is "auto"', None)
        advice = advise(problem, times, error=error, expansion=expansion or "auto", depth=depth)
        depth, expansion = advice.depth, advice.expansion
        estimate = {"estimated_error": advice.estimated_error}
    if not baths:
        return Depth(0), expansion, estimate
    return as_truncation(depth), expansion, estimate


def _exponents(bath: Bath, method: Any) -> Exponents:
    """The bath's exponents, with the warnings that belong to them, each time."""
    exponents, notices = expand_once(Keyed.of(bath), method)
    for message in notices:
        warn(message)
    return exponents


def _count_first(depth: Truncation, rates: Sequence[float], d: int) -> None:
    """Refuse a hierarchy that cannot fit, before its tables are built."""
    n_ado = depth.n_ado(len(rates), rates)
    memory.require(
        3 * 8 * d * d * n_ado + memory.LINK_BYTES * len(rates) * n_ado,
        f"The hierarchy has {n_ado:,} ADOs of {d} x {d} for {len(rates)} modes and depth {depth}: "
        "it",
        "lower `depth`, use fewer exponents, or a weighted truncation (hd.Weighted)",
    )
