"""Probe points: a few points built on the client, so that a store knows its own physics.

Takes: a `Sweep`.
Gives: `Probe`s: what the problems at some points look like, and their digests, which are rebuilt
    and compared when a store is opened again; and the `variables` of the store.
Next file: `session.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heomdask import initial
from heomdask.ensemble.forgotten import warn_of_forgotten_units
from heomdask.ensemble.grid import Index
from heomdask.ensemble.sweep import Point, Sweep, digest_of_bytes
from heomdask.errors import HeomdaskError, InputError
from heomdask.observables import canonical, is_hermitian
from heomdask.preparation import Prepared, prepare
from heomdask.results.chunks import Variable
from heomdask.results.solution import Ados
from heomdask.results.store import status_variable

KEPT = 4  # probes in a store
TRIED = 16  # points tried until one can be built

DIAGNOSTICS = {
    "n_ado": "auxiliary density operators of the hierarchy",
    "applications": "applications of the generator",
    "bits": "bits of the numbers it was computed with",
    "seconds": "computing time of the point, its share of a batch",
}


@dataclass(frozen=True)
class Probe:
    """One point as seen from the client.

    Attributes
    ----------
    index : in the sweep's grid.
    digest : of the problem and the initial state, or "failed: <error type>".
    point : None if it could not be built; `error` tells why.
    prepared : its hierarchy, or None if that could not be laid out; `error` tells why.
    d : dimension of the system.
    hermitian : whether the initial state is Hermitian.
    """

    index: Index
    digest: str
    point: Point | None = None
    prepared: Prepared | None = None
    error: Exception | None = None
    d: int = 0
    hermitian: bool = True


def probe(sweep: Sweep, index: Index) -> Probe:
    """Build one point and look at it."""
    try:
        point = sweep.point(index)
        d = point.problem.d
        if isinstance(point.rho0, Ados):
            rho0 = np.asarray(point.rho0.values, dtype=np.complex128)
        else:
            rho0 = initial.operator(point.rho0, d)
    except Exception as error:
        return Probe(index, f"failed: {type(error).__name__}", error=error)
    digest = digest_of_bytes(point.problem.digest.encode() + rho0.tobytes())
    defect = np.max(np.abs(rho0 - rho0.conj().swapaxes(-1, -2)))
    hermitian = bool(defect <= initial.HERMITIAN_TO * np.max(np.abs(rho0)))
    prepared, problem = None, None
    try:
        prepared = prepare_point(sweep, point)
    except Exception as error:
        problem = error
    return Probe(index, digest, point, prepared, problem, d, hermitian)


def prepare_point(sweep: Sweep, point: Point) -> Prepared:
    """The hierarchy of a point."""
    return prepare(
        point.problem,
        depth=point.depth,
        expansion=point.expansion,
        times=sweep.times.vector,
        error=point.error,
    )


def probes(sweep: Sweep) -> list[Probe]:
    """The first point, the last, and some between; at least one of them has a hierarchy.

    If none has, nothing in the sweep is likely to: then the first error is raised. One that names
    another argument than `build` is raised as it is.
    """
    found: list[Probe] = []
    for index in _spread(sweep.grid.shape):
        if len(found) >= KEPT and any(p.prepared for p in found):
            break
        found.append(probe(sweep, index))
    warn_of_forgotten_units(sweep, [(p.index, p.point) for p in found if p.point is not None])
    if not any(p.prepared for p in found):
        error = found[0].error
        if found[0].point is not None and isinstance(error, HeomdaskError):
            raise error
        raise InputError(
            "`build` must return problems that can be solved, got an error at each of "
            f"{len(found)} points tried, first at {sweep.grid.describe(found[0].index)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    for seen in found:
        if seen.point is not None:
            canonical(sweep.observables, seen.d)
        if seen.prepared is not None:  # now that all others are built
            seen.prepared.require_same_pulses()
    return found


def _spread(shape: Index) -> Iterator[Index]:
    """At most TRIED different indices: corners first, then evenly spread ones."""
    last = tuple(n - 1 for n in shape)
    size = int(np.prod(shape, dtype=np.int64))
    corners = [tuple(0 for _ in shape), last, tuple(n // 2 for n in shape)]
    more = np.unravel_index(np.linspace(0, size - 1, min(size, TRIED)).astype(np.int64), shape)
    seen: set[Index] = set()
    for index in [*corners, *(tuple(int(i) for i in p) for p in zip(*more, strict=True))]:
        if index not in seen and len(seen) < TRIED:
            seen.add(index)
            yield index


def variables(sweep: Sweep, found: list[Probe]) -> tuple[Variable, ...]:
    """The arrays of the sweep's store, in the order in which a shard is written."""
    built = [p for p in found if p.point is not None]
    d = built[0].d
    real = all(p.hermitian for p in built)
    n_times = len(sweep.times)
    kept: list[Variable] = []
    if "rho" in sweep.save:
        tail = (("time", n_times), ("i", d), ("j", d))
        kept.append(Variable("rho", "complex128", tail, {"long_name": "reduced density matrix"}))
    if "observables" in sweep.save:
        for name, observable in sweep.observables.items():
            dtype = "float64" if real and is_hermitian(observable) else "complex128"
            kept.append(Variable(name, dtype, (("time", n_times),)))
    for name, text in DIAGNOSTICS.items():
        attrs: dict[str, Any] = {"long_name": text}
        if name == "seconds":
            attrs["units"] = "s"
        kept.append(Variable(name, "float64", (), attrs))
    return (*kept, status_variable())
