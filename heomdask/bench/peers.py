"""The same application by others: QuTiP, scipy, and every other backend that runs here.

Takes: a case's `Prepared` and `Plan`, of one member.
Gives: actions by name, and QuTiP's solver of a problem.
Next file: `kernels.py`, which times them beside ours.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from heomdask import memory
from heomdask.backends import registry
from heomdask.backends.traits import BackendInfo, BackendTraits
from heomdask.bench.timing import Action
from heomdask.errors import TooLarge
from heomdask.generator.expanded import Expanded
from heomdask.plan import Plan

_BUILDING = {"QuTiP": 80, "scipy": 60}  # bytes per non-zero element, at the peak


def has_qutip() -> bool:
    """Whether QuTiP is installed."""
    return importlib.util.find_spec("qutip") is not None


def actions(expanded: Expanded, depth: int, plan: Plan, elements: float) -> dict[str, Action | str]:
    """One application by each peer; or the reason why it is left out.

    Parameters
    ----------
    plan : of one member.
    elements : non-zero elements of its generator, per ADO.
    """
    makers: dict[str, Callable[[], Action]] = {"scipy": lambda: _scipy(plan)}
    if has_qutip():
        makers = {"QuTiP": lambda: _qutip(expanded, depth)} | makers
    found: dict[str, Action | str] = {}
    for name, make in makers.items():
        need = _BUILDING[name] * elements * plan.n_rows
        free = memory.available()
        found[name] = (
            make()
            if need < free
            else f"needs about {memory.readable(need)}, {memory.readable(free)} are free"
        )
    for name, info in registry.available():
        if name not in ("native", "numpy") and isinstance(info, BackendInfo):
            try:
                found[name] = _backend(registry.get(name, threads=1), plan)
            except TooLarge as error:
                found[name] = str(error)
    return found


def _qutip(expanded: Expanded, depth: int) -> Action:
    """QuTiP's own right-hand side, a sparse matrix, times a vector."""
    import qutip as qt

    matrix = qutip_solver(expanded, depth).rhs(0).to("CSR").data
    vector = qt.data.Dense(np.ones((matrix.shape[1], 1), dtype=complex))
    return Action(lambda: qt.data.matmul(matrix, vector))


def qutip_solver(expanded: Expanded, depth: int, options: Mapping[str, Any] | None = None) -> Any:
    """The same hierarchy as QuTiP's solver, from the same exponents; rates are real."""
    from qutip import Qobj, liouvillian, spost, spre
    from qutip.solver.heom import BosonicBath, HEOMSolver

    system, baths = liouvillian(Qobj(expanded.hamiltonian)), []
    for q, e, _ in expanded.baths:
        operator, rates = Qobj(q), e.gamma.real
        baths.append(BosonicBath(operator, e.c.real, rates, e.c.imag, rates))
        twice = spre(operator) - spost(operator)
        system = system - float(e.delta) * twice @ twice
    return HEOMSolver(system, baths, max_depth=depth, options=dict(options or {}))


def _scipy(plan: Plan) -> Action:
    matrix = plan.to_sparse()
    vector = np.ones(matrix.shape[1], dtype=matrix.dtype)
    return Action(lambda: matrix @ vector)


def _backend(backend: BackendTraits, plan: Plan) -> Action:
    compiled = backend.compile(plan)
    x = backend.put(compiled, np.ones((plan.n_cols, plan.d, plan.d)))
    out = backend.empty(compiled)

    def call() -> None:
        backend.apply(compiled, x, out)
        backend.sync()

    return Action(call)
