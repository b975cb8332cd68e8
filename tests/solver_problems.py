"""Small hierarchies for the tests of the solvers, and their exact solution by a dense matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from heomdask.backends.numpy_ import NumpyBackend
from heomdask.backends.traits import Selection
from heomdask.expansion import Matsubara, Pade, expand
from heomdask.generator.build import Expanded, build_plan
from heomdask.hierarchy.index_set import index_set
from heomdask.hierarchy.truncation import Depth
from heomdask.model.drude import DrudeLorentz
from heomdask.plan import Form, Plan
from heomdask.solvers import Drives, Trajectory, propagate

Complex = NDArray[np.complex128]

SX = np.array([[0, 1], [1, 0]], dtype=complex)
SZ = np.diag([1.0, -1.0]).astype(complex)


def spin_boson(
    T: float = 1.0, gamma: float = 1.0, lam: float = 0.1, n: int = 1, drive: Complex | None = None
) -> Expanded:
    """H = (sz + sx)/2 with one Drude bath on sz, and perhaps a drive named "f"."""
    exponents = expand(DrudeLorentz(lam=lam, gamma=gamma, T=T), Pade(n))
    drives = () if drive is None else (("f", drive),)
    return Expanded(0.5 * SZ + 0.5 * SX, drives, (), ((SZ, exponents, None),))


def stiff() -> Expanded:
    """Low temperature, fast bath: rates from 0.4 to 100, far from normal."""
    return spin_boson(T=0.2, gamma=5.0, lam=0.3, n=5)


def trimer(lam: float = 0.02, T: float = 0.04, seed: int = 0) -> Expanded:
    """Three disordered sites, a bath each: like a small light-harvesting complex."""
    rng = np.random.default_rng(seed)
    h = np.diag(rng.normal(size=3) * 0.03) + 0.0
    h[0, 1] = h[1, 0] = 0.017
    h[1, 2] = h[2, 1] = -0.011
    exponents = expand(DrudeLorentz(lam=lam, gamma=0.02, T=T), Matsubara(0, terminator=True))
    sites = [np.zeros((3, 3), dtype=complex) for _ in range(3)]
    for i, q in enumerate(sites):
        q[i, i] = 1.0
    return Expanded(h.astype(complex), (), (), tuple((q, exponents, None) for q in sites))


def driven_qubit() -> Expanded:
    """H = f(t) sx and nothing else."""
    return Expanded(np.zeros((2, 2), dtype=complex), (("f", SX),), (), ())


def plan_of(members: Sequence[Expanded], depth: int, form: Form | None = None) -> Plan:
    n_modes = members[0].n_modes
    return build_plan(members, index_set(Depth(depth), n_modes, [1.0] * n_modes), form=form)


def first_state(plan: Plan) -> NDArray[np.float64]:
    """|0><0| on the first ADO, also in the packed real form."""
    x = np.zeros((plan.n_cols, plan.d, plan.d))
    x[0, 0, 0] = 1.0
    return x


def exact(plan: Plan, x0: NDArray, times: NDArray[np.float64], member: int = 0) -> NDArray:
    """The first ADO at every time, (T, d d), by diagonalising or exponentiating G."""
    g = plan.to_sparse(member).toarray()
    rows, last, state = [], times[0], x0.ravel().astype(g.dtype)
    steps: dict[float, NDArray] = {}
    for t in times:
        h = float(t - last)
        if h not in steps:
            steps[h] = scipy.linalg.expm(g * h)
        state, last = steps[h] @ state, t
        rows.append(state[: plan.d**2].copy())
    return np.array(rows)


def solve(
    plan: Plan, times: Any, *, x0: NDArray | None = None, drives: Drives | None = None, **how: Any
) -> Trajectory:
    """`propagate` on the numpy backend, probing the first ADO."""
    backend = NumpyBackend()
    compiled = backend.compile(plan)
    start = backend.put(compiled, first_state(plan) if x0 is None else x0)
    probe = Selection.whole([0], plan.d)
    return propagate(backend, compiled, start, times, probe, drives=drives, **how)


def same_shape(
    f: Callable[[float], float], members: int = 1, breakpoints: Sequence[float] = ()
) -> Drives:
    """One named scalar f(t) for all members."""

    def value(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([[f(float(s)) for s in t]])

    return Drives(value, [tuple(breakpoints)] * members)
