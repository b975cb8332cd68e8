"""Which backends there are, which can run here, and which one is the fastest for a plan.

Takes: a name, "auto" with a `Plan`, and what the caller wants of it (threads, layout).
Gives: a backend, or `BackendUnavailable` with the reason and a remedy; never a silent fallback.
Next file: `solvers/`, numerics on any backend.

A backend is imported when it is asked for and not before: this is the one place for that.
"""

from __future__ import annotations

import functools
import importlib
import logging
import warnings
from dataclasses import dataclass
from typing import Literal, cast

from heomdask import checks, topology
from heomdask.backends.traits import BackendInfo, BackendTraits
from heomdask.brief import install
from heomdask.errors import BackendUnavailable, HeomdaskWarning
from heomdask.plan import Operator, Plan

Layout = Literal["auto", "batch"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Entry:
    """Where a backend lives, how to get it, and its measured cost of one application.

    seconds = fixed + per_shift * shifts + per_work * work / threads, work being `multiplications`;
    all of them in one run on one machine, since only ratios count.
    """

    module: str
    factory: str
    needs: str
    remedy: str
    has_layout: bool = False
    has_threads: bool = True
    fixed: float = 0.0
    per_shift: float = 0.0
    per_work: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether its cost is known, so that "auto" may choose it."""
        return self.fixed + self.per_shift + self.per_work > 0


_ENTRIES = {
    "native": _Entry(
        "heomdask.backends.native",
        "NativeBackend",
        "its compiled extension",
        "install heomdask again with a C++ compiler that knows OpenMP (g++ is one)",
        has_layout=True,
        fixed=8e-6,
        per_work=0.15e-9,
    ),
    "numpy": _Entry(
        "heomdask.backends.numpy_",
        "NumpyBackend",
        "numpy and scipy",
        "install heomdask again",
        has_threads=False,
        per_shift=20e-6,
        per_work=5e-9,
    ),
    "mkl": _Entry(
        "heomdask.backends.mkl",
        "MklBackend",
        "Intel's Math Kernel Library",
        install("mkl"),
        fixed=25e-6,
        per_work=0.25e-9,
    ),
    "cupy": _Entry(
        "heomdask.backends.cupy_",
        "CupyBackend",
        "the source of its kernels",
        "install heomdask again",
        has_threads=False,
    ),
}

NAMES = ("auto", *_ENTRIES)


def available() -> list[tuple[str, BackendInfo | str]]:
    """Every backend by name, with its facts or with the sentence that says why it cannot run."""
    found: list[tuple[str, BackendInfo | str]] = []
    for name in _ENTRIES:
        try:
            found.append((name, get(name).info))
        except BackendUnavailable as error:
            found.append((name, str(error)))
    return found


def get(
    name: str,
    *,
    threads: int | None = None,
    layout: Layout = "auto",
    plan: Plan | None = None,
) -> BackendTraits:
    """The backend of that name; "auto" is the one predicted fastest for `plan`.

    Parameters
    ----------
    threads : threads it may use; None leaves it to the backend.
    layout : "batch" gives a member the same bits whatever its companions (ensembles);
        "auto" may use other kernels for a single member.

    Raises
    ------
    BackendUnavailable
        If it cannot run here; the message gives the reason and a remedy.
    """
    checks.choice("backend", name, NAMES)
    if threads is not None:
        checks.whole_number("threads", threads, low=1)
    if name == "auto":
        return choose(plan, threads=threads, layout=layout)
    entry = _ENTRIES[name]
    try:
        factory = getattr(importlib.import_module(entry.module), entry.factory)
    except ImportError as error:
        raise _unavailable(name, error) from error
    if entry.has_layout:
        return cast("BackendTraits", factory(threads=threads, layout=layout))
    return cast("BackendTraits", factory(threads=threads))


def resolve(
    backend: str | BackendTraits,
    *,
    threads: int | None = None,
    layout: Layout = "auto",
    plan: Plan | None = None,
) -> BackendTraits:
    """A backend as it is, or that of a name as `get` gives it."""
    if not isinstance(backend, str):
        return backend
    return get(backend, threads=threads, layout=layout, plan=plan)


def choose(
    plan: Plan | None, *, threads: int | None = None, layout: Layout = "auto"
) -> BackendTraits:
    """The backend predicted fastest for this plan among those that run here; logs which.

    The prediction looks at one member, so it does not depend on who shares the batch. Without
    a plan it is the first that runs. A backend that would be slower is not even imported.
    """
    costs = {
        name: 0.0 if plan is None else predicted_seconds(name, plan, _threads(entry, threads))
        for name, entry in _ENTRIES.items()
        if entry.measured
    }
    reasons: list[str] = []
    for name, cost in sorted(costs.items(), key=lambda item: item[1]):
        try:
            backend = get(name, threads=threads, layout=layout)
        except BackendUnavailable as error:
            reasons.append(str(error))
            continue
        if reasons:
            _warn_of_slowness(" ".join(reasons))
        _log.info("backend 'auto' is %r, predicted %.1e s per application and member", name, cost)
        return backend
    raise BackendUnavailable(" ".join(reasons))


def _threads(entry: _Entry, wanted: int | None) -> int:
    """Threads that a backend takes, before it is imported."""
    return (wanted or len(topology.allowed())) if entry.has_threads else 1


@functools.cache
def _warn_of_slowness(reason: str) -> None:
    """Say once that "auto" has to do without something faster."""
    warnings.warn(
        f"backend 'auto' is slower than it could be: {reason} (Python started in a "
        "clone of the repository imports its source folder; start it elsewhere.)",
        HeomdaskWarning,
        stacklevel=2,
    )


def predicted_seconds(name: str, plan: Plan, threads: int = 1) -> float:
    """Seconds of one application to one member, from rates measured once (double precision)."""
    entry = _ENTRIES[name]
    shifts = sum(len(term.shifts) for term in plan.terms)
    return entry.fixed + entry.per_shift * shifts + entry.per_work * multiplications(plan) / threads


def multiplications(plan: Plan) -> float:
    """How many are in one application to one member, term by term; complex ones count twice."""
    d = plan.d
    total = 0
    for term in plan.terms:
        for pattern in (plan.patterns[shift.pattern] for shift in term.shifts):
            links = pattern.n_rows if pattern.is_identity else len(pattern.entries()[0])
            total += links * d * d
        for op in (term.left, term.right):
            total += 0 if op is None else plan.n_rows * _products(op, d)
    return float(total * (2 if plan.form == "complex" else 1))


def _products(op: Operator, d: int) -> int:
    """Multiplications of one (d, d) product, as far as its structure saves any."""
    return {"projector": d, "diagonal": d * d, "sparse": d**3 // 3, "dense": d**3}[op.structure]


def _unavailable(name: str, error: ImportError) -> BackendUnavailable:
    """When the module of a backend cannot be imported."""
    entry = _ENTRIES[name]
    cause = f"{entry.needs} cannot be loaded ({error})"
    return BackendUnavailable.because(name, cause, entry.remedy)
