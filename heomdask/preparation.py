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
from heomdask.advice import advise
from heomdask.expansion import Keyed, expand_once, warn
from heomdask.generator.build import Expanded, structure
from heomdask.hierarchy.index_set import IndexSet, index_set
from heomdask.hierarchy.truncation import Depth, Truncation, as_truncation
from heomdask.model.bath import Bath
from heomdask.model.exponents import Exponents
from heomdask.model.problem import Problem

WORKING_STATES = {"constant": 9, "driven": 11, "steady": 85}  # state vectors held at once
LINK_BYTES = 128  # per ADO and mode: index tables of the plan and of a backend

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
    """

    problem: Problem
    expanded: Expanded
    index_set: IndexSet
    key: Hashable
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


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
    return Prepared(problem, expanded, ados, (structure(expanded), ados.bounds), shapes, report)


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


def predicted_bytes(
    prepared: Prepared,
    n_members: int = 1,
    n_times: int = 1,
    *,
    columns: int | None = None,
    save: Sequence[str] = ("rho", "observables"),
    final_ados: bool = False,
    steady: bool = False,
) -> int:
    """What a run of so many members of this hierarchy takes at its peak.

    Parameters
    ----------
    prepared : one of the members, which are alike in size.
    n_members : of the batch.
    columns : members that a state of the backend has room for; default: no more than there are.
    n_times, save, final_ados : as for `run_batch`.
    steady : of a steady state, whose solver keeps a Krylov space.
    """
    n_ado, d = prepared.index_set.n_ado, prepared.problem.d
    element = 8 if prepared.expanded.form == "real" else 16
    full = 16 * d * d * n_ado * n_members  # unscaled and complex, as a user gets it
    kind = "steady" if steady else "driven" if prepared.shapes else "constant"
    vectors = WORKING_STATES[kind]
    need = vectors * element * d * d * n_ado * (columns or n_members)
    need += LINK_BYTES * n_ado * prepared.index_set.n_modes
    need += 2 * full * final_ados + (n_times + 16) * full * ("ados" in save)
    need += 16 * d * d * n_times * n_members * ("rho" in save)
    return need


def _count_first(depth: Truncation, rates: Sequence[float], d: int) -> None:
    """Refuse a hierarchy that cannot fit, before its tables are built."""
    n_ado = depth.n_ado(len(rates), rates)
    memory.require(
        3 * 8 * d * d * n_ado + LINK_BYTES * len(rates) * n_ado,
        f"The hierarchy has {n_ado:,} ADOs of {d} x {d} for {len(rates)} modes and {depth}: it",
        "lower `depth`, use fewer exponents, or a weighted truncation (hd.Weighted)",
    )
