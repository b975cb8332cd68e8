"""The guard on problems nobody chose: the error stays below the tolerance, or the outcome says so.

Rates spread over three decades, couplings over three, complex and non-normal generators, unstable
ones too. The reference is the exponential of the dense matrix.
"""

import numpy as np
import pytest
import scipy.linalg

from heomdask.backends import registry
from heomdask.backends.traits import Selection
from heomdask.generator.build import build_plan
from heomdask.generator.expanded import Expanded
from heomdask.hierarchy.index_set import index_set
from heomdask.hierarchy.truncation import Depth
from heomdask.model.exponents import Exponents
from heomdask.solvers import field_of_values, propagate, rounding
from heomdask.testing.strategies import COUPLINGS, hermitian

LARGEST_GROWTH = 1e4  # beyond it an absolute tolerance means little
MOST_UNKNOWNS = 900


def exponents(rng, stiffness, strength):
    c = strength * (rng.normal(size=2) + 1j * rng.normal(size=2))
    slow, fast = rng.uniform(0.2, 2.0, size=2) * (1.0, stiffness)
    turning = slow + 1j * rng.uniform(0.0, 5.0)
    kind = rng.choice(["real", "pair", "lonely", "given", "drude"])
    if kind == "real":
        return Exponents(c=c, gamma=[slow, fast])
    if kind == "pair":
        return Exponents(c=c, gamma=[turning, np.conj(turning)])
    if kind == "lonely":
        return Exponents(c=c[:1], gamma=[turning])
    if kind == "drude":
        first = abs(c[0]) * (1 - 0.5j) * fast
        return Exponents(c=[first, 0.1 * abs(c[1])], gamma=[fast, slow], delta=rng.uniform(0, 0.2))
    return Exponents(c=c, gamma=[turning, fast], cbar=c[::-1])


def problem(rng):
    d, strength, stiffness = int(rng.integers(1, 4)), *10 ** rng.uniform((-2, -1), (1, 2))
    baths = tuple(
        (hermitian(rng, d, rng.choice(COUPLINGS)), exponents(rng, stiffness, strength), None)
        for _ in range(rng.integers(0, 3))
    )
    H = hermitian(rng, d, rng.choice(COUPLINGS)) * 10 ** rng.uniform(-1, 1)
    raw = rng.normal(size=(2, d, d))
    lindblad = (0.3 * (raw[0] + 1j * raw[1]),) if rng.integers(0, 2) else ()
    return Expanded(H, (), lindblad, baths)


def drawn(seed):
    """A plan, a state, times, a tolerance, and the exact elements of rho at those times."""
    rng = np.random.default_rng([77, seed])
    expanded = problem(rng)
    depth = int(rng.integers(0, 5 if expanded.n_modes <= 2 else 3))
    ados = index_set(Depth(depth), expanded.n_modes, [1.0] * expanded.n_modes)
    plan = build_plan([expanded], ados)
    g = plan.to_sparse(0).toarray()
    assert len(g) <= MOST_UNKNOWNS
    span, tol = 10 ** rng.uniform((-1, -10), (2, -2))
    abscissa = np.linalg.eigvals(g).real.max()
    times = np.linspace(0, min(span, np.log(LARGEST_GROWTH) / max(abscissa, 1e-9)), 5)
    psi = rng.normal(size=plan.d)
    x = np.zeros((plan.n_cols, plan.d, plan.d))
    x[0] = np.outer(psi, psi) / (psi @ psi)
    step = scipy.linalg.expm(g * times[1])
    exact = [x.ravel().astype(g.dtype)]
    for _ in times[1:]:
        exact.append(step @ exact[-1])
    return plan, x, times, tol, np.array(exact)[:, : plan.d**2]


def worst_over_tolerance(seed, method):
    """The largest error over the tolerance asked; 0 where the outcome warns."""
    plan, x, times, tol, exact = drawn(seed)
    backend = registry.get("auto", layout="batch")
    compiled = backend.compile(plan)
    found = propagate(
        backend, compiled, backend.put(compiled, x), times, Selection.whole([0], plan.d),
        tol=tol, method=method,
    )  # fmt: skip
    if not found.outcomes[0].good:
        return 0.0
    return np.max(np.abs(found.probed[:, :, 0] - exact)) / tol


def single_over_tolerance(seed):
    """The same in single precision; NaN where that is not to be used."""
    plan, x, times, tol, exact = drawn(seed)
    tol = max(tol, 1e-5)
    backend = registry.get("auto", layout="batch")
    bounds = field_of_values(backend, plan)
    expected = rounding(bounds, times[-1] - times[0], "float32")[0]
    if plan.form == "complex" or expected > tol:
        return np.nan
    compiled = backend.compile(plan, "float32")
    found = propagate(
        backend, compiled, backend.put(compiled, x), times, Selection.whole([0], plan.d),
        tol=tol, bounds=bounds,
    )  # fmt: skip
    if not found.outcomes[0].good or expected * found.growth[0] > tol:
        return np.nan
    return np.max(np.abs(found.probed[:, :, 0] - exact)) / tol


@pytest.mark.parametrize("method", ["auto", "faber"])
def test_the_error_of_a_random_problem_stays_below_the_tolerance(method):
    assert max(worst_over_tolerance(seed, method) for seed in range(40)) < 10


def test_single_precision_stays_below_the_tolerance():
    worst = np.array([single_over_tolerance(seed) for seed in range(60)])
    assert np.isfinite(worst).sum() > 15
    assert np.nanmax(worst) < 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "faber", "taylor"])
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_the_error_of_a_thousand_random_problems_stays_below_the_tolerance(first, method):
    worst = [worst_over_tolerance(seed, method) for seed in range(first, first + 100)]
    assert max(worst) < 10
