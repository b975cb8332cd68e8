"""One run, in five visible steps.

Takes: a `Problem`, an initial state, output times.
Gives: `evolve` for one problem; `run`, the same for all that share a hierarchy; and
    `as_linear_operator`, the generator as scipy sees it.
Next file: `batch.py`, which decides how many digits a member needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from heomdask import checks, memory
from heomdask.backends import registry
from heomdask.backends.traits import BackendTraits, Compiled, Selection, State
from heomdask.errors import InputError, SolveFailed
from heomdask.expansion.notices import warn
from heomdask.generator.build import ado_scale, build_plan, named_power
from heomdask.generator.real_form import pack, unpack
from heomdask.hierarchy.index_set import IndexSet
from heomdask.initial import Columns, Start, columns_of, start
from heomdask.model.problem import Problem
from heomdask.observables import Bound, Observable, bind, canonical, is_hermitian
from heomdask.outcome import Outcome
from heomdask.plan import Plan
from heomdask.preparation import Prepared, doubt, prepare
from heomdask.progress import shown
from heomdask.results import sentinel
from heomdask.results.solution import SAVE, Ados, BatchResult, Solution
from heomdask.solvers import Bounds, Drives, Trajectory, propagate
from heomdask.solvers.drives import Pieces, scan
from heomdask.solvers.propagate import METHODS

Complex = NDArray[np.complex128]
Times = NDArray[np.float64]

ROUNDING = 0.1  # of rho, per application of the generator, in units of the machine epsilon
CHUNK_BYTES = 4_000_000  # of probed elements, per member: then they are condensed
QUIET = 1.5  # seconds before a run shows its progress


def evolve(
    problem: Problem,
    rho0: Any,
    times: Any,
    *,
    depth: Any = None,
    expansion: Any = None,
    error: float = 1e-3,
    tol: float = 1e-6,
    observables: Mapping[str, Any] | None = None,
    save: Sequence[str] = ("rho", "observables"),
    method: str = "auto",
    backend: str | BackendTraits = "auto",
    threads: int | None = None,
    throw: bool = True,
    progress: bool = False,
) -> Solution:
    """Propagate one initial state.

    Parameters
    ----------
    problem : Hamiltonian, couplings to baths, drives, Lindblad operators.
    rho0 : at ``times[0]``: a ket (d,), a density matrix or any operator (d, d), a QuTiP object,
        or ``sol.ados`` of an earlier run, which then goes on as if it had not stopped. (Going
        on from ``sol.rho[-1]`` is another experiment: the bath forgets the system.)
    times : (T,), ascending, repeats allowed; internal units.
    depth : a whole number, a truncation, or "auto". There is no default.
    expansion : how baths become exponents, or "auto". There is no default.
    error : what "auto" aims at, as in `hd.advise`.
    tol : bound on the largest element of the error of rho at every output time, relative to
        the trace norm of `rho0`, against the same truncated hierarchy. It says nothing about
        the truncation: that is what `hd.advise` and `hd.converge` are for.
    observables : name -> operator (d, d), or `hd.interaction_energy(bath)`.
    save : any of "rho", "observables", "ados" (the whole hierarchy at every time).
    method : "auto", "faber", "taylor" or "rk".
    backend : a name, "auto" (the one predicted fastest) or a backend.
    threads : of the backend; None is its own choice.
    throw : raise `SolveFailed` unless all went well; False leaves the verdict in ``sol.outcome``.
    progress : show a progress bar of a run longer than a second; without a terminal, a line now
        and then.

    Returns
    -------
    Solution
    """
    grid = checks.times("times", times)
    checks.real_number("error", error, low=0.0, strict=True)
    prepared = prepare(problem, depth=depth, expansion=expansion, times=grid, error=error)
    if (said := doubt(prepared, grid)) is not None:
        warn(said)
    words = f"{prepared.index_set.n_ado:,} ADOs"
    with shown(progress, quiet=QUIET) as update:
        report = (lambda fraction: update(fraction, 1.0, words)) if progress else None
        request = Request(
            grid, tol, observables, save, method, backend, threads, "auto", True, report
        )
        result = run([prepared], [rho0], request)
    solution = result.solution(0, problem.dims)
    if solution.outcome is Outcome.ROUNDING:
        warn(solution.outcome.advice)
    if throw and not solution.outcome.good:
        raise SolveFailed(_failure(solution))
    return solution


def _failure(solution: Solution) -> str:
    """The outcome's advice, and where and at which rates the run stopped."""
    said = f"{solution.outcome.name}: {solution.outcome.advice}"
    if "stopped_at" in solution.stats:
        said += (
            f" It stopped at t = {solution.stats['stopped_at']:g}; the fastest rate of this "
            f"hierarchy is {solution.stats['fastest_rate']:.3g}."
        )
    return said


@dataclass(frozen=True)
class Request:
    """What is asked of a run, checked."""

    times: Times
    tol: float
    observables: Mapping[str, Any] | None
    save: Sequence[str]
    method: str
    backend: str | BackendTraits
    threads: int | None
    layout: Literal["auto", "batch"]
    final_ados: bool
    progress: Callable[[float], None] | None
    precision: str = "float64"
    bounds: Bounds | None = None  # one ellipse per member, if known

    def __post_init__(self) -> None:
        checks.tolerance("tol", self.tol)
        checks.choice("method", self.method, METHODS)
        object.__setattr__(self, "save", checks.choices("save", self.save, SAVE))
        if self.threads is not None:
            checks.whole_number("threads", self.threads, low=1)

    def progress_of(self, part: Times) -> Callable[[float], None] | None:
        """What takes the fraction of a part of the times, as a fraction of them all."""
        report, whole = self.progress, self.times[-1] - self.times[0]
        if report is None or whole == 0:
            return None
        begin, end = ((part[[0, -1]] - self.times[0]) / whole).tolist()
        return lambda fraction: report((1 - fraction) * begin + fraction * end)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Everything that the propagation and the bookkeeping need, fixed before it starts."""

    prepared: Sequence[Prepared]
    index_set: IndexSet
    begin: Start
    columns: Columns
    plan: Plan
    backend: BackendTraits
    compiled: Compiled
    bound: Bound
    scale: NDArray[np.float64]  # (A, M) of the probed ADOs: unscaled = scale * stored

    @property
    def d(self) -> int:
        return self.plan.d

    def probed(self, elements: NDArray[Any]) -> Complex:
        """Probed elements (T, A d d, C) as unscaled ADOs (T, A, d, d, M)."""
        stored = elements.reshape(len(elements) * len(self.bound.ados), self.d, self.d, -1)
        full = unpack(stored) if self.plan.form == "real" else stored
        joined = self.columns.join(full)
        shaped = joined.reshape(len(elements), len(self.bound.ados), self.d, self.d, -1)
        return np.asarray(shaped * self.scale[:, None, None, :])

    def hierarchy(self, state: State) -> Complex:
        """A state as unscaled ADOs (M, n_ado, d, d)."""
        stored = self.backend.fetch(self.compiled, state)
        full = unpack(stored) if self.plan.form == "real" else stored
        joined = np.ascontiguousarray(np.moveaxis(self.columns.join(full), -1, 0))
        for m, member in enumerate(self.prepared):
            joined[m] *= ado_scale(member.expanded, self.index_set)[:, None, None]
        return joined


def run(prepared: Sequence[Prepared], rho0s: Any, request: Request) -> BatchResult:
    """The five steps. Preparation (1) is done; generate, compile, propagate, collect follow."""
    clock = [time.perf_counter()]
    first = prepared[0]
    for member in prepared:
        member.require_same_pulses()
    ados = first.index_set
    begin = start(rho0s, first.problem.d, ados.indices, [p.expanded for p in prepared])
    columns = columns_of(begin, real=first.expanded.form == "real")
    members = [prepared[m].expanded for m in columns.members]

    plan = build_plan(members, ados)  # 2 generate
    clock.append(time.perf_counter())

    backend = registry.resolve(  # 3 compile
        request.backend, threads=request.threads, layout=request.layout, plan=plan
    )
    refuse_if_too_large(first, len(columns.members), request, backend)
    compiled = backend.compile(plan, request.precision)
    wanted = canonical(request.observables, plan.d)
    bound = bind(wanted, [p.expanded for p in prepared], ados)
    scale = np.ones((len(bound.ados), len(prepared)))  # that of row 0 is 1
    if len(bound.ados) > 1:
        scale = np.stack([ado_scale(p.expanded, ados)[bound.ados] for p in prepared], axis=-1)
    batch = _Batch(prepared, ados, begin, columns, plan, backend, compiled, bound, scale)
    clock.append(time.perf_counter())

    record = _propagate(batch, request)  # 4 propagate
    clock.append(time.perf_counter())

    seconds = dict(zip(("generate", "compile", "propagate"), np.diff(clock).tolist(), strict=True))
    return _collect(batch, request, record, wanted, seconds)  # 5 collect


@dataclass(eq=False)
class _Record:
    """What is kept while time goes on."""

    rho: Complex | None  # (M, T, d, d)
    values: Complex  # (n observables, M, T)
    watched: list[Complex]  # (M, d, d) each
    outcomes: list[Outcome]
    stats: list[dict[str, Any]]
    at_times: Complex | None  # (M, T, n_ado, d, d)
    state: State


def _propagate(batch: _Batch, request: Request) -> _Record:
    """Run through the output times in chunks, so that memory does not grow with their number."""
    n_members, n_times = len(batch.prepared), len(request.times)
    d, n_ado = batch.d, batch.index_set.n_ado
    record = _Record(
        np.empty((n_members, n_times, d, d), complex) if "rho" in request.save else None,
        np.empty((len(batch.bound.names), n_members, n_times), complex),
        [],
        [Outcome.DONE] * n_members,
        [{} for _ in range(n_members)],
        np.empty((n_members, n_times, n_ado, d, d), complex) if "ados" in request.save else None,
        _initial(batch),
    )
    selection = Selection.whole(batch.bound.ados, d)
    row_bytes = len(selection) * batch.plan.dtype.itemsize
    length = 16 if record.at_times is not None else max(16, CHUNK_BYTES // row_bytes)
    look_at = set(sentinel.watched(n_times).tolist())
    tol = request.tol * batch.begin.norms[batch.columns.members]
    drives, bounds = _drives(batch, request.times), request.bounds
    if bounds is not None:
        bounds = bounds.take(batch.columns.members)
    whole = float(request.times[-1] - request.times[0])
    for first in range(0, n_times, length):
        last = min(first + length, n_times)
        lead = min(first, 1)  # a later chunk starts from the last time of the one before
        part = request.times[first - lead : last]
        trajectory = propagate(
            batch.backend,
            batch.compiled,
            record.state,
            part,
            selection,
            tol=tol,
            method=request.method,
            bounds=bounds,
            whole=whole,
            drives=drives,
            save_states=range(lead, last - first + lead) if record.at_times is not None else (),
            wants_end=request.final_ados or last < n_times,
            progress=request.progress_of(part),
        )
        record.state, bounds = trajectory.state, trajectory.bounds
        states = batch.probed(trajectory.probed[lead:])
        states[..., [not outcome.good for outcome in record.outcomes]] = np.nan  # stopped before
        rho = np.ascontiguousarray(np.moveaxis(states[:, 0], -1, 0))
        if record.rho is not None:
            record.rho[:, first:last] = rho
        record.values[:, :, first:last] = batch.bound.values(states)
        record.watched += [rho[:, t - first] for t in range(first, last) if t in look_at]
        _note(record, batch, trajectory)
        if record.at_times is not None:
            for t, state in trajectory.states.items():
                record.at_times[:, first - lead + t] = batch.hierarchy(state)
    return record


def _initial(batch: _Batch) -> State:
    """The state at ``times[0]``, packed and in the plan's own scale."""
    values = batch.begin.values
    if batch.begin.is_restart:
        values = values.copy()
        for m, member in enumerate(batch.prepared):
            values[m] /= ado_scale(member.expanded, batch.index_set)[:, None, None]
    columns = batch.columns.split(values)
    stored = pack(columns) if batch.plan.form == "real" else columns
    if batch.begin.is_restart:
        return batch.backend.put(batch.compiled, stored)
    state = batch.backend.empty(batch.compiled)
    row = Selection.whole([0], batch.d)
    elements = np.ascontiguousarray(stored.reshape(len(row), -1), dtype=batch.compiled.dtype)
    batch.backend.unpack(batch.compiled, elements, row, state)
    return state


def _drives(batch: _Batch, times: Times) -> Drives | None:
    """The named scalars of the plan, each column with its own member's pulse shapes, scanned."""
    if not batch.plan.names:
        return None
    table = []
    for name in batch.plan.names:
        key, power = named_power(name)
        table.append((power, [batch.prepared[m].shapes[key][0] for m in batch.columns.members]))

    def value(t: NDArray[np.float64]) -> NDArray[np.float64]:
        moments = t.tolist()
        return np.array(
            [[f(x) ** power for f, x in zip(row, moments, strict=True)] for power, row in table]
        )

    every = [batch.prepared[m].problem.breakpoints for m in batch.columns.members]
    pieces = scan(Drives(value, every), times, len(every))
    for m, own in zip(batch.columns.members, pieces, strict=True):
        _warn_of_unseen(batch.prepared[m], batch.plan.names, own)
    return Drives(value, every, pieces)


def _warn_of_unseen(prepared: Prepared, names: Sequence[str], pieces: Pieces) -> None:
    """Warn of a drive without breakpoints that is 0 wherever it was sampled."""
    seen: dict[str, bool] = {}  # by drive: both parts of a complex one count
    for name, zero in zip(names, pieces.zero.tolist(), strict=True):
        key = named_power(name)[0]
        drive = key.partition(".")[0]
        seen[drive] = seen.get(drive, False) or not zero or bool(prepared.shapes[key][1])
    for drive in (drive for drive, was in seen.items() if not was):
        warn(
            f"`{drive}` is 0 at all samples, which are up to {pieces.resolution:.3g} apart: a "
            "shorter pulse was not seen. Declare breakpoints around it: "
            "hd.Drive(f, H1, breakpoints=[...])."
        )


def _note(record: _Record, batch: _Batch, trajectory: Trajectory) -> None:
    """Outcomes and counts of one chunk, added to those of the chunks before."""
    outcomes = batch.columns.worst(trajectory.outcomes)
    for m, outcome in enumerate(outcomes):
        if record.outcomes[m].good:
            record.outcomes[m] = outcome
    for m, own in enumerate(record.stats):
        for key, number in trajectory.stats[m].items():
            is_count = isinstance(number, int) and not isinstance(number, bool)
            if key == "bound_applications":  # made once, and handed on
                own[key] = max(own.get(key, 0), number)
            else:
                own[key] = own.get(key, 0) + number if is_count else number
        own["growth"] = max(own.get("growth", 0.0), float(trajectory.growth[m]))


def _collect(
    batch: _Batch,
    request: Request,
    record: _Record,
    wanted: Mapping[str, Observable],
    seconds: dict[str, float],
) -> BatchResult:
    """Verdicts, real observables where they are real, the final hierarchy, the statistics."""
    begin, info = batch.begin, batch.backend.info
    watched = np.stack(record.watched, axis=1)
    hermitian = begin.hermitian & sentinel.stay_hermitian(watched, begin.norms)
    all_hermitian = bool(hermitian.all())
    limit = np.where(begin.bounded, begin.norms, np.inf)
    verdicts, excess = sentinel.judge(watched, limit, hermitian=hermitian)
    outcomes = [a if not a.good else b for a, b in zip(record.outcomes, verdicts, strict=True)]
    rounding = ROUNDING * float(np.finfo(batch.compiled.dtype).eps)
    for m, own in enumerate(record.stats):
        if outcomes[m].good and rounding * own["applications"] > request.tol:
            outcomes[m] = Outcome.ROUNDING
    final = None
    if request.final_ados:
        values = batch.hierarchy(record.state)
        final = [
            Ados(v, batch.index_set.indices, p.expanded.modes)
            for v, p in zip(values, batch.prepared, strict=True)
        ]
    observables: dict[str, NDArray[Any]] = {}
    for (name, observable), values, factor in zip(
        wanted.items(), record.values, batch.bound.factors, strict=True
    ):
        if factor is not None:
            shapes = [p.shapes[factor][0] for p in batch.prepared]
            values = values * np.array([[f(t) for t in request.times.tolist()] for f in shapes])
        is_real = all_hermitian and is_hermitian(observable)
        observables[name] = np.ascontiguousarray(values.real) if is_real else values
    shared = {
        "backend": info.name,
        "isa": info.isa,
        "threads": batch.compiled.threads,
        "form": batch.plan.form,
        "bits": np.finfo(request.precision).bits,
        "n_ado": batch.index_set.n_ado,
        "n_members": len(batch.prepared),
        "seconds": seconds,
    }
    stats = [
        {**shared, **own, "trace_norm_excess": float(e), **p.report}
        for own, e, p in zip(record.stats, excess, batch.prepared, strict=True)
    ]
    return BatchResult(
        request.times, record.rho, observables, outcomes, stats, final, record.at_times
    )


def refuse_if_too_large(
    prepared: Prepared, n_members: int, request: Request, backend: BackendTraits
) -> None:
    """Raise `TooLarge` before anything runs that cannot fit."""
    d, n_times = prepared.problem.d, len(request.times)
    need = prepared.size.run_bytes(
        n_members,
        n_times,
        columns=backend.columns(d, n_members),
        save=request.save,
        final_ados=request.final_ados,
    )
    what = f"A run of {n_members} x {prepared.index_set.n_ado:,} ADOs of {d} x {d}"
    remedy = "lower `depth`, use fewer exponents, or run fewer members in a batch"
    if "ados" in request.save:
        what += f" that saves all of them at {n_times:,} times"
        remedy = 'leave "ados" out of `save` (sol.ados has the last ones), or give fewer `times`'
    memory.require(need, what, remedy, backend.free)


def as_linear_operator(
    problem: Problem, *, depth: Any = None, expansion: Any = None
) -> scipy.sparse.linalg.LinearOperator:
    """The generator of a problem without drives as a scipy operator on unscaled ADOs.

    It acts on complex vectors (n_ado d d,), the ADOs one after the other, each in C order.
    Unscaled ADOs differ in size by many orders: balance the matrix before an eigenvalue solver.
    """
    prepared = prepare(problem, depth=depth, expansion=expansion)
    plan = build_plan([prepared.expanded], prepared.index_set, form="complex")
    if plan.names:
        raise InputError("`problem` must not depend on time here; leave out drives and f(t).")
    scale = np.repeat(ado_scale(prepared.expanded, prepared.index_set), plan.d**2)
    unscale = scipy.sparse.diags_array(scale)
    matrix = unscale @ plan.to_sparse() @ scipy.sparse.diags_array(1 / scale)
    return scipy.sparse.linalg.aslinearoperator(scipy.sparse.csr_array(matrix))
