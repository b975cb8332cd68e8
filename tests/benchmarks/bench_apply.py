"""One application of the generator: the native kernels against QuTiP's sparse product.

Both act on the same hierarchy, on one thread, in one run, best of many; QuTiP's time is that of
its own CSR matrix of the whole right-hand side. Prints nanoseconds per ADO (and member) and ratios:

    python tests/benchmarks/bench_apply.py [--members 64] [--isa avx2]

Figures are ratios in one run on one machine; absolute times mean little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import heomdask as hd
from heomdask.backends.native import NativeBackend
from heomdask.backends.traits import Selection
from heomdask.generator.build import Expanded, build_plan
from heomdask.hierarchy.index_set import index_set
from heomdask.hierarchy.truncation import Depth
from heomdask.plan import Plan
from heomdask.units import K, cm1, fs

TERMS = 40


def best(action: Callable[[], object], repeats: int) -> float:
    """Seconds of processor time (one thread) of the fastest of many calls."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def fmo(rng: np.random.Generator) -> Expanded:
    h = rng.normal(size=(7, 7)) * 50 * cm1
    bath = hd.Pade(0).expand(hd.DrudeLorentz(lam=35 * cm1, gamma=1 / (50 * fs), T=300 * K))
    sites = [np.diag(np.eye(7)[j]).astype(complex) for j in range(7)]
    return Expanded((h + h.T).astype(complex), baths=tuple((q, bath, None) for q in sites))


def spin_boson(rng: np.random.Generator) -> Expanded:
    bath = hd.Pade(2).expand(hd.DrudeLorentz(lam=0.5, gamma=1.0, T=0.5))
    h = np.array([[rng.normal(), 1.0], [1.0, 0.0]], dtype=complex)
    return Expanded(h, baths=((np.diag([1.0, -1.0]).astype(complex), bath, None),))


def qutip_seconds(expanded: Expanded, depth: int, repeats: int) -> float:
    """QuTiP's own right-hand side, as CSR, times a dense vector."""
    import qutip as qt
    from qutip.solver.heom import BosonicBath, HEOMSolver

    baths = [
        BosonicBath(qt.Qobj(q), e.c.real, e.gamma.real, e.c.imag, e.gamma.real)
        for q, e, _ in expanded.baths
    ]
    solver = HEOMSolver(qt.Qobj(expanded.hamiltonian), baths, max_depth=depth)
    matrix = solver.rhs(0).to("CSR").data
    vector = qt.data.Dense(np.ones((matrix.shape[1], 1), complex))
    return best(lambda: qt.data.matmul(matrix, vector), repeats)


def native_seconds(backend: NativeBackend, plan: Plan, repeats: int) -> tuple[float, float]:
    """One application, and one term of a three-term recurrence, per member."""
    compiled = backend.compile(plan)
    rng = np.random.default_rng(1)
    x = backend.put(compiled, rng.normal(size=(plan.n_cols, plan.d, plan.d, plan.n_members)))
    states = [backend.empty(compiled) for _ in range(3)]
    alone = best(lambda: backend.apply(compiled, x, states[0]), repeats)
    coeffs = np.tile([0.1, 0.1, -0.1, 0.1], (TERMS + 1, 1))
    probe = Selection.whole([0], plan.d)

    def segment() -> None:
        backend.recur(compiled, x, coeffs, states[0], probe, (states[1], states[2]))

    fused = best(segment, max(2, repeats // TERMS)) / TERMS
    return alone / plan.n_members, fused / plan.n_members


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--isa", default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()
    single = NativeBackend(threads=args.threads, isa=args.isa)
    batch = NativeBackend(threads=args.threads, isa=args.isa, layout="batch")
    print(f"{single.info.isa}, {args.threads} thread(s), {args.members} members; ns per ADO")
    print("system        ADOs   QuTiP | single apply, recur | batch apply, recur | ratios to QuTiP")
    cases = [("FMO L4", fmo, 4), ("FMO L6", fmo, 6), ("spin-boson L10", spin_boson, 10)]
    for label, make, depth in cases:
        rng = np.random.default_rng(7)
        members = [make(rng) for _ in range(args.members)]
        indices = index_set(Depth(depth), members[0].n_modes, members[0].rates)
        figures = [qutip_seconds(members[0], depth, args.repeats)]
        figures += native_seconds(single, build_plan(members[:1], indices), args.repeats)
        figures += native_seconds(batch, build_plan(members, indices), max(3, args.repeats // 8))
        qutip, *ours = (1e9 * f / indices.n_ado for f in figures)
        print(
            f"{label:14s}{indices.n_ado:5d} {qutip:7.1f} | "
            + ", ".join(f"{f:7.2f}" for f in ours)
            + " | "
            + ", ".join(f"{qutip / f:5.1f}x" for f in ours)
        )


if __name__ == "__main__":
    main()
