"""The steady state of a problem, in five visible steps.

Takes: a `Problem` that does not depend on time.
Gives: `steady_state`.
Next file: `solvers/steady.py`, which solves for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, memory
from heomdask.backends import local, registry
from heomdask.backends.traits import BackendTraits
from heomdask.errors import InputError, SolveFailed
from heomdask.expansion.notices import warn
from heomdask.generator.build import ado_scale, build_plan
from heomdask.generator.real_form import pack, unpack
from heomdask.initial import neighbour
from heomdask.model.problem import Problem
from heomdask.observables import Observable, bind, canonical, is_hermitian
from heomdask.outcome import Outcome
from heomdask.preparation import Prepared, doubt, prepare
from heomdask.results import sentinel
from heomdask.results.solution import SAVE, Ados
from heomdask.results.steady import SteadyState
from heomdask.solvers.steady import STATES, Stationary, stationary

LEVELS_AGREE_TO = 1e-13  # relative to the largest: what rounding makes of equal ones
TURNS = 10  # periods of the widest level splitting that "auto" looks at


def steady_state(
    problem: Problem,
    *,
    depth: Any = None,
    expansion: Any = None,
    error: float = 1e-3,
    tol: float = 1e-6,
    observables: Mapping[str, Any] | None = None,
    save: Sequence[str] = SAVE,
    backend: str | BackendTraits = "auto",
    threads: int | None = None,
    guess: Any = None,
    throw: bool = True,
) -> SteadyState:
    """Solve for the state that does not change: ``G x = 0``, trace 1, no time stepping.

    It is checked that there is only one, and that the truncated hierarchy returns to it: a linear
    solver alone would notice neither. See `solvers/steady.py` for how.

    Parameters
    ----------
    problem : without drives and without f(t).
    depth, expansion, error : as in `hd.evolve`; "auto" chooses for a time of ten periods of the
        widest level splitting.
    tol : bound on the largest element of the error of rho, against the same truncated hierarchy.
    observables : name -> operator (d, d), or `hd.interaction_energy(bath)`.
    save : any of "rho", "observables", "ados".
    backend, threads : as in `hd.evolve`.
    guess : where to start: a steady state, a `Solution` or their `ados`, of the same hierarchy; the
        problem may differ. From a close one it takes fewer applications of the generator.
    throw : raise `SolveFailed` unless all went well; False leaves the verdict in ``.outcome``:
        `not_unique`, `unstable` (an eigenvalue has a positive real part), `too_many_steps` (the
        residual stayed above what `tol` asks for), `not_converged` (rho is not positive: the
        hierarchy is too shallow), `not_finite`.

    Returns
    -------
    SteadyState
    """
    checks.tolerance("tol", tol)
    checks.real_number("error", error, low=0.0, strict=True)
    words = checks.choices("save", save, SAVE)
    clock = [time.perf_counter()]
    turns = _turns(problem, depth, expansion)
    prepared = prepare(  # 1 prepare
        problem, depth=depth, expansion=expansion, times=turns, error=error
    )
    _refuse_time(prepared)
    if turns is not None and (said := doubt(prepared, turns)) is not None:
        warn(said)
    ados = prepared.index_set
    begin = None if guess is None else neighbour(guess, prepared.problem.d, ados.indices)
    wanted = canonical(observables, prepared.problem.d)
    clock.append(time.perf_counter())

    plan = build_plan([prepared.expanded], ados)  # 2 generate
    clock.append(time.perf_counter())

    chosen = registry.resolve(backend, threads=threads, plan=plan)  # 3 compile
    _refuse_if_too_large(prepared, chosen)
    compiled = chosen.compile(plan)
    clock.append(time.perf_counter())

    scale = ado_scale(prepared.expanded, ados)[:, None, None]  # 4 solve
    stored = None
    if begin is not None:
        stored = pack(begin / scale) if plan.form == "real" else begin / scale
    found = stationary(chosen, compiled, tol=tol, guess=stored)
    clock.append(time.perf_counter())

    host = chosen.fetch(compiled, found.state)[..., 0]  # 5 collect
    values = np.asarray(scale * (unpack(host) if plan.form == "real" else host), np.complex128)
    steps = ("prepare", "generate", "compile", "solve")
    stats = {
        "backend": chosen.info.name,
        "isa": chosen.info.isa,
        "threads": compiled.threads,
        "form": plan.form,
        "n_ado": ados.n_ado,
        "seconds": dict(zip(steps, np.diff(clock).tolist(), strict=True)),
        **found.stats,
        **prepared.report,
    }
    return _collect(prepared, found, values, wanted, stats, words, throw)


def _turns(problem: Problem, depth: Any, expansion: Any) -> NDArray[np.float64] | None:
    """The times that "auto" looks at; None without any splitting, where there is no "auto"."""
    if not isinstance(problem, Problem):
        raise checks.refuse("problem", "an hd.Problem", type(problem).__name__)
    levels = np.linalg.eigvalsh(problem.H)
    width = float(levels[-1] - levels[0])
    if width > LEVELS_AGREE_TO * float(np.max(np.abs(levels))):
        return np.linspace(0.0, TURNS * 2 * np.pi / width, 200)
    for name, value in (("depth", depth), ("expansion", expansion)):
        if isinstance(value, str) and value == "auto" and problem.couplings:
            raise InputError(
                f'`{name}` = "auto" looks at ten periods of the widest level splitting, and this '
                f"Hamiltonian has none; give `{name}` a value."
            )
    return None


def _refuse_time(prepared: Prepared) -> None:
    if prepared.shapes:
        raise InputError(
            "`problem` must not depend on time, got the time-dependent factors "
            f"{', '.join(sorted(prepared.shapes))}; leave out drives and f(t), or follow it with "
            "hd.evolve."
        )


def _refuse_if_too_large(prepared: Prepared, backend: BackendTraits) -> None:
    d = prepared.problem.d
    need = prepared.size.run_bytes(
        columns=backend.columns(d, 1), final_ados=True, states=STATES + local.STATES
    )
    memory.require(
        need,
        f"The steady state of {prepared.index_set.n_ado:,} ADOs of {d} x {d}",
        "lower `depth` or use fewer exponents; hd.evolve to a long time needs a tenth of that",
    )


def _collect(
    prepared: Prepared,
    found: Stationary,
    values: NDArray[np.complex128],
    wanted: Mapping[str, Observable],
    stats: dict[str, Any],
    save: tuple[str, ...],
    throw: bool,
) -> SteadyState:
    """The verdict, the observables, the warning where stability was not settled."""
    ados, one = prepared.index_set, np.ones(1)
    rho = values[:1]
    hermitian = sentinel.stay_hermitian(rho, one)
    (verdict,), (excess,) = sentinel.judge(rho[:, None], one, hermitian=hermitian)
    if verdict is Outcome.UNSTABLE:  # nothing grew: this state is where the hierarchy ends
        verdict = Outcome.NOT_CONVERGED
    outcome = verdict if found.outcome.good else found.outcome
    stats["trace_norm_excess"] = float(excess)
    if found.pair is not None:
        stats |= {"rightmost": found.pair.value.real, "rightmost_residual": found.pair.residual}
    if outcome.good and found.pair is not None and not found.pair.settled:
        warn(
            "whether this truncated hierarchy is stable could not be settled: an eigenvalue "
            f"{found.pair.value:.3g} was found to within {found.pair.residual:.2g} only. Compare "
            "with another `depth`, or with hd.evolve to a long time."
        )
    numbers: dict[str, float | complex] = {}
    if "observables" in save:
        bound = bind(wanted, [prepared.expanded], ados)
        read = bound.values(values[bound.ados][None, ..., None])[:, 0, 0]
        for (name, observable), value in zip(wanted.items(), read.tolist(), strict=True):
            numbers[name] = value.real if hermitian[0] and is_hermitian(observable) else value
    result = SteadyState(
        rho[0].copy() if "rho" in save else None,
        numbers,
        outcome,
        Ados(values, ados.indices, prepared.expanded.modes) if "ados" in save else None,
        stats,
        prepared.problem.dims,
    )
    if throw and outcome is not Outcome.DONE:
        seen = f"rho is not positive, it has the trace norm {1 + excess:.3g}. "
        said = seen if outcome is Outcome.NOT_CONVERGED else ""
        raise SolveFailed(f"{outcome.name}: {said}{outcome.advice}")
    return result
