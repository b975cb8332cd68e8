"""The generator on problems small enough to know the answer."""

import math
import time

import numpy as np
import pytest
import scipy.linalg

from heomdask.generator.build import (
    Expanded,
    ado_scale,
    build_plan,
    named_power,
    structure,
)
from heomdask.generator.real_form import pack, unpack
from heomdask.generator.scaling import mode_scale
from heomdask.generator.superops import Stack, anti, comm, sandwich
from heomdask.hierarchy.index_set import index_set
from heomdask.hierarchy.truncation import Depth, ModeLimits
from heomdask.model.exponents import Exponents
from heomdask.testing.strategies import hermitian

SX = np.array([[0, 1], [1, 0]], dtype=complex)
SY = np.array([[0, -1j], [1j, 0]], dtype=complex)
SZ = np.diag([1.0 + 0j, -1.0])


def fmo_like(rng, d=7, lam=1.0, per_site=2):
    """A site basis with disorder and one bath per site: the structure of a typical sweep."""
    sites = [np.diag(row).astype(complex) for row in np.eye(d)]
    c = lam * np.array([1.0 - 0.3j, 0.2, 0.1])[:per_site]
    gamma = np.array([0.5, 1.7, 3.0])[:per_site]
    baths = tuple((q, Exponents(c=c, gamma=gamma, delta=0.1 * lam), None) for q in sites)
    return Expanded(hermitian(rng, d, "real"), baths=baths)


def rho(plan, start, t):
    """Row 0 at time t from a start in row 0, by the dense exponential of a complex plan."""
    generator = plan.to_sparse().toarray()
    state = np.zeros(len(generator), dtype=complex)
    state[: plan.d**2] = start.ravel()
    return (scipy.linalg.expm(generator * t) @ state)[: plan.d**2].reshape(plan.d, plan.d)


def apply_factors(factors, x):
    total = np.zeros_like(x)
    for f in factors:
        left = np.eye(len(x)) if f.left is None else f.left.of(0)
        right = np.eye(len(x)) if f.right is None else f.right.of(0)
        y = f.weight * (left @ x @ right)
        total = total + (y.T if f.transposed else y)
    return total


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_superoperators_are_the_same_in_both_forms(kind):
    rng = np.random.default_rng(3)
    x = hermitian(rng, 4, "complex")
    q = hermitian(rng, 4, kind)
    jump = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)) * (kind == "complex")
    cases = [
        (comm, q, -1j * (q @ x - x @ q)),
        (anti, q, q @ x + x @ q),
        (sandwich, jump, jump @ x @ jump.conj().T),
    ]
    for superoperator, operator, expected in cases:
        stack = Stack.of([operator], bool(operator.imag.any()))
        np.testing.assert_allclose(
            apply_factors(superoperator(stack, "complex"), x), expected, rtol=0, atol=1e-14
        )
        packed = apply_factors(superoperator(stack, "real"), pack(x[None])[0])
        np.testing.assert_allclose(unpack(packed[None])[0], expected, rtol=0, atol=1e-14)
    gram = Stack.of([jump], kind == "complex").gram()
    np.testing.assert_allclose(gram.whole.of(0), jump.conj().T @ jump, rtol=0, atol=1e-14)


def test_packing_is_exact_and_keeps_members_apart():
    rng = np.random.default_rng(4)
    x = np.stack([[hermitian(rng, 3, "complex") for _ in range(5)] for _ in range(2)], axis=-1)
    np.testing.assert_array_equal(pack(x), x.real + x.imag)
    np.testing.assert_allclose(unpack(pack(x)), x, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("couplings", "terms"), [(1, 5), (2, 7), (7, 17)])
def test_a_complex_plan_has_three_terms_and_two_per_coupling(couplings, terms):
    rng = np.random.default_rng(5)
    operators = [hermitian(rng, 3, "complex") for _ in range(couplings)]
    baths = [
        (q, Exponents(c=[1 + 1j, 0.5], gamma=[1, 2]), None) for q in (*operators, operators[0])
    ]
    member = Expanded(hermitian(rng, 3, "complex"), baths=tuple(baths))
    ados = index_set(Depth(2), member.n_modes)
    assert len(build_plan([member], ados, form="complex").terms) == terms
    with_jump = Expanded(member.hamiltonian, lindblad=(SX_3,), baths=member.baths)
    assert len(build_plan([with_jump], ados, form="complex").terms) == terms + 1


SX_3 = np.diag([1.0 + 0j, 1.0], k=1)


def test_links_by_hand():
    """One mode, d = 1 with Q = q: every number of the plan is known."""
    c, gamma, q = 3.0 - 4.0j, 0.25, 2.0
    bath = (np.array([[q + 0j]]), Exponents(c=[c], gamma=[gamma]), None)
    member = Expanded(np.zeros((1, 1), dtype=complex), baths=(bath,))
    plan = build_plan([member], index_set(Depth(2), 1), form="complex")
    a = math.sqrt(5.0)
    down = 2 * q * c.imag / a  # -i (c - c*) q
    expected = [[0, 0, 0], [down, -gamma, 0], [0, math.sqrt(2) * down, -2 * gamma]]
    np.testing.assert_allclose(plan.to_sparse().toarray(), expected, rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(
        ado_scale(member, index_set(Depth(2), 1)), [1, a, 5 * math.sqrt(2)], rtol=1e-15
    )


def test_scale_of_modes_without_coupling_and_of_blocks():
    c = np.array([[4.0, 0.0, 9j, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=complex)
    cbar = np.array([[1.0, 0.0, 0.0, 0.0], [16.0, 0.0, 0.0, 0.0]], dtype=complex)
    gamma = np.array([[7.0, 0.25, 7.0, 0.0], [7.0, 3 + 4j, 0.0, 2.0]])
    np.testing.assert_array_equal(
        mode_scale(c, cbar, gamma, []), [[2, 1 / 32, 3, 1], [4, 5 / 8, 1, 1 / 4]]
    )
    np.testing.assert_array_equal(
        mode_scale(c, cbar, gamma, [(1, 2), (3, 2)]), [[2, 3, 3, 3], [4, 5 / 8, 5 / 8, 5 / 8]]
    )


def test_pure_dephasing_equals_the_line_shape_function():
    """H = 0: the coherence is exp(-4 g(t)), here exactly since the hierarchy is deep enough."""
    bath = Exponents(c=[0.05 - 0.02j, 0.01], gamma=[1.0, 2.5], delta=0.03)
    member = Expanded(np.zeros((2, 2), dtype=complex), baths=((SZ, bath, None),))
    plan = build_plan([member], index_set(Depth(8), 2), form="complex")
    plus = np.full((2, 2), 0.5, dtype=complex)
    for t in (0.3, 2.0):
        expected = 0.5 * np.exp(-4 * bath.lineshape(t).real)
        assert abs(rho(plan, plus, t)[0, 1] - expected) < 1e-9


def test_one_operator_or_its_double_coupling_are_the_same_bath():
    """f = 2 on Q is the coupling 2 Q, terminator included: it enters with f squared."""
    bath = Exponents(c=[1 - 1j], gamma=[0.7], delta=0.4)
    h = SX + 0.3 * SZ
    named = Expanded(h, baths=((SZ, bath, "f"),))
    doubled = Expanded(h, baths=((2 * SZ, bath, None),))
    ados = index_set(Depth(3), 1)
    for form in ("real", "complex"):
        plan = build_plan([named], ados, form=form)
        assert plan.names == ("f", "f**2")
        assert [named_power(name) for name in plan.names] == [("f", 1), ("f", 2)]
        found = plan.to_sparse(0, np.array([[2.0], [4.0]])).toarray()
        expected = build_plan([doubled], ados, form=form).to_sparse().toarray()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_a_drive_adds_to_the_hamiltonian():
    bath = Exponents(c=[1 - 1j], gamma=[0.7])
    driven = Expanded(SZ, (("pulse", SX), ("other", SY)), baths=((SZ, bath, None),))
    plain = Expanded(SZ + 0.5 * SX - 2 * SY, baths=((SZ, bath, None),))
    ados = index_set(Depth(2), 1)
    plan = build_plan([driven], ados)
    assert plan.form == "real"
    assert plan.names == ("pulse", "other")
    found = plan.to_sparse(0, np.array([0.5, -2.0])).toarray()
    np.testing.assert_allclose(
        found, build_plan([plain], ados).to_sparse().toarray(), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("t", [0.4, 3.0])
def test_a_star_of_rates_is_two_plain_exponents(t):
    """Depth does not notice a linear change of modes: row 0 is the same to rounding."""
    g0, g1, v, c0, c1 = 0.8, 1.3, 0.9, 1.0 - 0.6j, 0.4 + 0j
    star = Exponents(c=[c0, c1], gamma=[g0, g1], read=[1, 0], lateral=[(0, 1, v)])
    mixed = v * c1 / (g0 - g1)
    plain = Exponents(c=[c0 + mixed, -mixed], gamma=[g0, g1])
    np.testing.assert_allclose(star.correlation(t), plain.correlation(t), rtol=1e-13)
    h = SX + 0.3 * SZ + 0.2 * SY
    start = np.diag([1.0 + 0j, 0])
    ados = index_set(Depth(5), 2)
    one, other = (
        build_plan([Expanded(h, baths=((SZ, bath, None),))], ados, form="complex")
        for bath in (star, plain)
    )
    np.testing.assert_allclose(rho(one, start, t), rho(other, start, t), rtol=0, atol=1e-10)


@pytest.mark.parametrize("t", [0.4, 3.0])
def test_a_real_block_is_a_pair_of_complex_exponents(t):
    g, w, c0, c1 = 0.4, 1.9, 0.7 + 0j, 0.3j
    block = Exponents(
        c=[c0, c1], gamma=[g, g], read=[1, 0], lateral=[(0, 1, w), (1, 0, -w)], delta=0.1
    )
    pair = Exponents(
        c=[(c0 + 1j * c1) / 2, (c0 - 1j * c1) / 2], gamma=[g - 1j * w, g + 1j * w], delta=0.1
    )
    np.testing.assert_allclose(block.correlation(t), pair.correlation(t), rtol=1e-13)
    h = SX + 0.3 * SZ + 0.2 * SY
    start = np.array([[0.7, 0.2j], [-0.2j, 0.3]])
    ados = index_set(Depth(6), 2)
    members = [Expanded(h, baths=((SZ, bath, None),)) for bath in (block, pair)]
    assert [m.form for m in members] == ["real", "complex"]
    expected = rho(build_plan([members[1]], ados), start, t)
    np.testing.assert_allclose(
        rho(build_plan([members[0]], ados, form="complex"), start, t), expected, rtol=0, atol=1e-10
    )
    real = build_plan([members[0]], ados)
    packed = rho(real, pack(start[None])[0], t).real
    np.testing.assert_allclose(unpack(packed[None])[0], expected, rtol=0, atol=1e-10)


def test_a_block_whose_second_coefficient_vanishes_stays_well_scaled():
    block = Exponents(
        c=[1e-8, 0], gamma=[0.1, 0.1], read=[1, 0], lateral=[(0, 1, 1.0), (1, 0, -1.0)]
    )
    member = Expanded(SX, baths=((SZ, block, None),))
    plan = build_plan([member], index_set(Depth(3), 2), form="complex")
    lateral = [
        s for t in plan.terms for s in t.shifts if "lateral" in plan.patterns[s.pattern].label
    ]
    assert [s.scalar.tolist() for s in lateral] == [[-1.0], [1.0]]


def test_without_coupling_the_reduced_density_matrix_is_alone():
    bath = Exponents(c=[0, 0], gamma=[0.5, 1.5])
    member = Expanded(SX + SZ, baths=((SZ, bath, None),))
    plan = build_plan([member], index_set(Depth(4), 2), form="complex")
    start = np.diag([1.0 + 0j, 0])
    u = scipy.linalg.expm(-1j * (SX + SZ) * 0.9)
    np.testing.assert_allclose(rho(plan, start, 0.9), u @ start @ u.conj().T, rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", ["real", "complex"])
def test_depth_zero_and_no_bath(form):
    bath = Exponents(c=[1], gamma=[1], delta=0.2)
    for baths, depth in ((((SZ, bath, None),), 0), ((), 3)):
        member = Expanded(SX, baths=baths)
        plan = build_plan([member], index_set(Depth(depth), member.n_modes), form=form)
        assert plan.n_rows == 1
        np.testing.assert_allclose(plan.to_sparse().toarray() @ np.eye(2).ravel(), 0, atol=1e-15)


def test_members_of_a_sweep_share_a_structure():
    rng = np.random.default_rng(6)
    keys = {structure(fmo_like(rng, lam=lam)) for lam in (0.0, 1e-3, 2.0)}
    assert len(keys) == 1
    assert len({structure(fmo_like(rng, per_site=k)) for k in (1, 2, 3)}) == 3


def test_what_baths_say_is_made_once_for_all_members_with_the_same():
    bath = Exponents(c=[1, 2], gamma=[1, 3], lateral=[(0, 1, 0.5)])
    members = [Expanded(e * SX, baths=((SZ, bath, None), (SX, bath, None))) for e in (1, 2)]
    assert members[0].rates is members[1].rates
    assert members[0].rates == (1, 3, 1, 3)
    assert members[0].lateral == ((0, 1, 0.5), (2, 3, 0.5))
    assert members[0].couplings == (0, 1)
    assert members[0].strength == 6


@pytest.mark.parametrize("count", [3, 8, 64])
def test_numbers_of_a_member_do_not_depend_on_the_batch(count):
    """To the last bit, with lam = 0 among the members, in any order."""
    rng = np.random.default_rng(8)
    members = [fmo_like(rng, d=3, lam=lam) for lam in (0.0, *rng.uniform(0, 2, size=count - 1))]
    ados = index_set(Depth(2), members[0].n_modes)
    order = rng.permutation(count)
    together = build_plan([members[m] for m in order], ados)
    for place, m in enumerate(order):
        alone, taken = build_plan([members[m]], ados), together.member(place)
        if members[m].baths[0][1].delta:
            assert taken.member_digests() == alone.member_digests()
        else:  # alone, it has no term for its terminator of 0
            assert len(taken.terms) > len(alone.terms)
            np.testing.assert_array_equal(taken.to_sparse().toarray(), alone.to_sparse().toarray())


def test_what_changes_the_structure():
    bath = Exponents(c=[1], gamma=[1])
    base = Expanded(SX, (("f", SZ),), (SX_3[:2, :2],), ((SZ, bath, None),))
    block = Exponents(c=[1, 1], gamma=[1, 1], lateral=[(0, 1, 0.5)])
    plain = Exponents(c=[1, 1], gamma=[1, 1])
    others = [
        Expanded(SY, base.drives, base.lindblad, base.baths),
        Expanded(SX, (("g", SZ),), base.lindblad, base.baths),
        Expanded(SX, base.drives, (), base.baths),
        Expanded(SX, base.drives, base.lindblad, ((SX, bath, None),)),
        Expanded(SX, base.drives, base.lindblad, ((SZ, bath, "f"),)),
        Expanded(SX, base.drives, base.lindblad, ((SZ, block, None),)),
        Expanded(SX, base.drives, base.lindblad, ((SZ, plain, None),)),
        Expanded(SX, base.drives, base.lindblad, ((SZ, bath, None), (SZ, bath, None))),
        Expanded(SX, base.drives, base.lindblad, ((SZ, bath, None), (SX, bath, None))),
    ]
    assert len({structure(e) for e in (base, *others)}) == 1 + len(others)
    with pytest.raises(ValueError, match="equal structure"):
        build_plan([base, others[0]], index_set(Depth(1), 1))
    with pytest.raises(ValueError, match="1 modes do not fit"):
        build_plan([base], index_set(Depth(1), 2))
    complex_bath = Exponents(c=[1], gamma=[1 + 1j])
    with pytest.raises(ValueError, match="no real form"):
        build_plan(
            [Expanded(SX, baths=((SZ, complex_bath, None),))], index_set(Depth(1), 2), form="real"
        )


def test_a_limit_of_zero_leaves_a_mode_out():
    one = Exponents(c=[1 - 1j], gamma=[0.5])
    two = Exponents(c=[1 - 1j, 0.3], gamma=[0.5, 2.0])
    short = build_plan([Expanded(SX, baths=((SZ, one, None),))], index_set(Depth(3), 1))
    cut = build_plan([Expanded(SX, baths=((SZ, two, None),))], index_set(ModeLimits(3, (3, 0)), 2))
    np.testing.assert_array_equal(short.to_sparse().toarray(), cut.to_sparse().toarray())


def test_building_a_batch_is_cheap():
    rng = np.random.default_rng(7)
    ados = index_set(Depth(4), 14)
    build_plan([fmo_like(rng)], ados)  # patterns are made once per process
    best = math.inf
    for _ in range(5):
        members = [fmo_like(rng) for _ in range(64)]
        started = time.process_time()
        build_plan(members, ados)
        best = min(best, time.process_time() - started)
    assert best / 64 < 0.3e-3
