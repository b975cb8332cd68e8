import dataclasses

import numpy as np
import pytest
from solver_problems import plan_of, spin_boson, stiff, trimer

from heomdask.backends.numpy_ import NumpyBackend
from heomdask.plan import Pattern, Plan, Shift, Term
from heomdask.solvers import bounds
from heomdask.solvers.bounds import Bounds, fastest_rate, field_of_values, is_local
from heomdask.testing.random_plans import random_plan


def parts(plan):
    """Everything, what acts on each ADO alike, and the rest."""
    local = tuple(t for t in plan.terms if is_local(plan, t))
    rest = tuple(t for t in plan.terms if not is_local(plan, t))
    return plan, dataclasses.replace(plan, terms=local), dataclasses.replace(plan, terms=rest)


def box(plan, member):
    g = plan.to_sparse(member).toarray()
    real = np.linalg.eigvalsh((g + g.conj().T) / 2)
    imag = np.linalg.eigvalsh((g - g.conj().T) / 2j)
    return real[0], real[-1], np.max(np.abs(imag))


PLANS = {
    "spin-boson": lambda: plan_of([spin_boson(), spin_boson(lam=0.4)], 6),
    "complex": lambda: plan_of([spin_boson(), spin_boson(lam=0.4)], 6, form="complex"),
    "stiff": lambda: plan_of([stiff()], 3),
    "trimer": lambda: plan_of([trimer(), trimer(seed=5)], 4),
    "random": lambda: random_plan(np.random.default_rng(1), d=3, members=3, modes=2, depth=5),
}


@pytest.mark.parametrize("name", PLANS)
def test_axes_are_those_of_the_field_of_values(name):
    plan = PLANS[name]()
    backend = NumpyBackend()
    bounds = field_of_values(backend, plan)
    for m in range(plan.n_members):
        (low, high, imag), *both = (np.array(box(part, m)) for part in parts(plan))
        width = high - low
        wide_low, wide_high, wide_imag = sum(both)
        assert wide_low <= low <= high <= wide_high + 1e-12 * width
        assert imag <= wide_imag < 1.2 * imag
        left, right = (bounds.centre[m] + sign * bounds.real[m] for sign in (-1, 1))
        assert wide_low - 0.08 * width < left < low + 0.08 * width
        assert high - 0.04 * width < right < wide_high + 0.04 * width
        assert 0.96 * imag < bounds.imag[m] < 1.08 * wide_imag


def test_disorder_in_the_hamiltonian_needs_no_new_lanczos(monkeypatch):
    backend = NumpyBackend()
    batches = [
        plan_of([trimer(lam=0.0123, seed=seed) for seed in seeds], 3) for seeds in ((1, 2), (3, 4))
    ]
    field_of_values(backend, batches[0])
    monkeypatch.setattr(NumpyBackend, "apply", None)
    second = field_of_values(backend, batches[1])
    monkeypatch.undo()
    for m in range(2):
        _, _, imag = box(batches[1], m)
        assert imag * 0.96 < second.imag[m] < 1.3 * imag


def test_bounds_of_a_member_do_not_depend_on_its_companions():
    backend = NumpyBackend()
    plan = plan_of([trimer(lam=0.001 * (i + 1), seed=i) for i in range(4)], 3)
    together = field_of_values(backend, plan)
    for m in range(4):
        alone = field_of_values(backend, plan.member(m))
        for name in ("centre", "real", "imag"):
            assert getattr(alone, name)[0] == getattr(together, name)[m]


@pytest.mark.parametrize("form", ["real", "complex"])
def test_members_by_pieces_have_the_same_bounds(form, monkeypatch):
    plan = random_plan(np.random.default_rng(6), d=2, members=7, form=form)
    backend = NumpyBackend()
    whole = field_of_values(backend, plan)
    monkeypatch.setattr(bounds, "AT_ONCE", 3 * plan.d**4)
    pieces = field_of_values(backend, plan)
    for name in ("centre", "real", "imag"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(whole, name))


def test_invariant_subspace_ends_the_chain():
    decay = Term((Shift(0, np.array([-2.0])),))
    plan = Plan(2, 1, 1, 1, "real", (Pattern(1, 1),), (decay,))
    bounds = field_of_values(NumpyBackend(), plan)
    assert bounds.centre[0] == pytest.approx(-2.0, rel=1e-12)
    assert bounds.real[0] < 1e-7
    assert bounds.imag[0] < 1e-7


def test_fastest_rate_is_that_of_the_deepest_ado():
    plan = plan_of([spin_boson(gamma=1.5, T=1.0, n=1)], 4)
    nu = np.sqrt(60.0)  # the first Pade frequency of the Bose function is 7.7460 T
    assert fastest_rate(plan)[0] == pytest.approx(4 * nu, rel=1e-12)


@pytest.mark.parametrize("bad", [{"real": [-1.0]}, {"imag": [np.nan]}, {"centre": [0.0, 1.0]}])
def test_ellipse_is_checked(bad):
    good = {"centre": [-1.0], "real": [1.0], "imag": [1.0]}
    with pytest.raises(ValueError, match="must"):
        Bounds(**{**good, **bad})
