"""The estimate of depth and expansion against true errors, and the formulas it stands on."""

import numpy as np
import pytest

import heomdask as hd
from heomdask.advice.dephasing import Pair, coherence, exact_coherence, generator
from heomdask.advice.mixing import lamb_shift
from heomdask.errors import InputError
from heomdask.expansion import expand
from heomdask.units import K, cm1

SZ, SX = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
SLOW = hd.DrudeLorentz(lam=0.025, gamma=0.05, T=1 / 0.95)


def _pure_dephasing() -> hd.Problem:
    return hd.Problem(np.zeros((2, 2)), [hd.Coupling(SZ, SLOW)])


def test_exact_coherence_is_the_cumulant_formula() -> None:
    # pure dephasing of |+> by a slow Drude bath: 0.5 exp(-4 Re g)
    times = np.array([0.5, 1, 2, 5, 10])
    exact = [0.4869707693935587, 0.4505156257078587, 0.3322299192022681, 0.04407373470259673,
             6.313136812830561e-5]  # fmt: skip
    found = 0.5 * exact_coherence(SLOW.g(times), Pair(1.0, -1.0))
    np.testing.assert_allclose(found, exact, rtol=1e-8)
    # a molecule that is coupled in its excited state only: exp(-g), complex
    molecule = hd.DrudeLorentz(lam=100 * cm1, gamma=0.01, T=300 * K)
    exact = [
        0.9258603762240021 + 0.008436682564053848j,
        0.19678069596757072 + 0.040026013517515086j,
    ]
    found = exact_coherence(molecule.g(np.array([10.0, 50.0])), Pair(1.0, 0.0))
    np.testing.assert_allclose(found, exact, rtol=1e-7)


@pytest.mark.parametrize("pair", [Pair(1.0, -1.0), Pair(0.7, -0.3), Pair(0.0, 1.0)])
@pytest.mark.parametrize("bath", [
    hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.5),
    hd.DrudeLorentz(lam=0.1, gamma=1.0, T=1 / (2 * np.pi)),  # linked modes
    hd.UnderdampedBrownian(lam=0.2, gamma=0.5, w0=1.0, T=0.5),  # a block
], ids=["plain", "linked", "block"])  # fmt: skip
def test_scalar_hierarchy_converges_to_exp_minus_g(bath, pair: Pair) -> None:
    with_terminator = expand(bath, hd.Pade(1))
    e = hd.Exponents(
        c=with_terminator.c, gamma=with_terminator.gamma, read=with_terminator.read,
        lateral=with_terminator.lateral, delta=0.03,
    )  # fmt: skip
    t = 0.25 * np.arange(9)
    exact = exact_coherence(e.lineshape(t), pair)
    errors = [
        np.max(np.abs(coherence(((e, pair),), depth, 0.25, 9) - exact)) for depth in (2, 5, 9)
    ]
    assert errors[0] > 1e-5
    assert errors[1] < 3e-3 * errors[0]
    assert errors[2] < 1e-8


def test_scalar_hierarchy_of_two_baths_is_a_product() -> None:
    parts = (
        (expand(hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.5), hd.Pade(0)), Pair(1.0, -0.5)),
        (expand(hd.DrudeLorentz(lam=0.05, gamma=0.4, T=0.5), hd.Pade(0)), Pair(0.0, 1.0)),
    )
    t = 0.25 * np.arange(9)
    exact = np.prod([exact_coherence(e.lineshape(t), pair) for e, pair in parts], axis=0)
    np.testing.assert_allclose(coherence(parts, 12, 0.25, 9), exact, atol=1e-9)


def test_scalar_hierarchy_is_an_element_of_the_real_one() -> None:
    bath = hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.5)
    problem = hd.Problem(np.zeros((2, 2)), [hd.Coupling(np.diag([0.7, -0.3]), bath)])
    t = 0.5 * np.arange(5)
    rho0 = np.full((2, 2), 0.5)
    solution = hd.evolve(
        problem, rho0, t, depth=3, expansion=hd.Pade(1), tol=1e-10, backend="numpy"
    )
    scalar = coherence(((expand(bath, hd.Pade(1)), Pair(0.7, -0.3)),), 3, 0.5, 5)
    np.testing.assert_allclose(solution.rho[:, 0, 1], 0.5 * scalar, atol=1e-9)
    matrix = generator(((expand(bath, hd.Pade(1)), Pair(0.7, -0.3)),), 3)
    assert matrix.shape == (10, 10)


def test_slow_bath_needs_a_depth_above_20() -> None:
    times = [0, 0.5, 1, 2, 5, 10, 20]
    advice = hd.advise(_pure_dephasing(), times, error=1e-4)
    assert advice.depth > 20
    assert advice.sufficient
    # true largest errors of rho01 over all times with Pade(1), by the depth
    true = {4: 0.2358, 14: 8.3e-3, 20: 5.43e-4, 28: 5.2e-6}
    for depth, error in true.items():
        fixed = hd.advise(_pure_dephasing(), times, depth=depth, expansion=hd.Pade(1))
        assert fixed.depth == depth
        assert error / 1.1 < fixed.estimated_error < 2 * error


# Largest error of an element of rho, from converged runs of the whole hierarchy, for problems
# whose Hamiltonian mixes the states: the estimate, made for pure dephasing, must hold for them.
SPIN_BOSON = {
    # H = sz/4 + sx/2, Q = sz, lam=.1, gamma=.5, T=.5: against Pade(5), depth 12; t_end
    (3.0, hd.Pade(1), 12): 8.2e-4, (3.0, hd.Pade(2), 12): 1.1e-4, (3.0, hd.Pade(3), 10): 2.7e-5,
    (3.0, hd.Matsubara(1), 10): 1.2e-3, (3.0, hd.Matsubara(2), 10): 4.6e-4,
    (3.0, hd.Pade(3), 3): 6.3e-4, (3.0, hd.Pade(3), 4): 6.0e-5,
    (40.0, hd.Pade(1), 12): 9.1e-4, (40.0, hd.Pade(3), 10): 2.5e-5, (40.0, hd.Pade(3), 3): 4.1e-3,
    (40.0, hd.Pade(3), 4): 8.7e-4, (40.0, hd.Pade(3), 6): 2.2e-5,
}  # fmt: skip
DIMER = {
    # E1 - E2 = J = 100 cm^-1, gamma = 1/(100 fs), 300 K, to 1 ps: lam in cm^-1, Pade, depth
    (2, 1, 2): 3.6e-3, (2, 1, 3): 3.3e-4, (20, 1, 4): 9.9e-3, (20, 1, 6): 1.1e-3,
    (100, 1, 4): 7.1e-2, (100, 1, 8): 8.4e-3, (100, 1, 12): 6.3e-4, (100, 0, 30): 1.9e-2,
    (100, 1, 30): 1.1e-4, (500, 1, 12): 1.2e-2, (500, 1, 20): 5.4e-4, (500, 1, 40): 3.3e-4,
    (500, 0, 40): 9.8e-3,
}  # fmt: skip
FMO = {
    # seven sites, lam = 35 cm^-1, gamma = 1/(50 fs), to 1 ps, populations: T, method, depth
    (77, hd.Pade(1), 4): 3.15e-3, (77, hd.Pade(1), 3): 2.69e-3, (77, hd.Pade(1), 5): 3.17e-3,
    (300, hd.Pade(1), 4): 1.14e-3, (300, hd.Pade(1), 5): 4.0e-4,
}  # fmt: skip
H_FMO = np.array([
    [410, -87.7, 5.5, -5.9, 6.7, -13.7, -9.9], [-87.7, 530, 30.8, 8.2, 0.7, 11.8, 4.3],
    [5.5, 30.8, 210, -53.5, -2.2, -9.6, 6.0], [-5.9, 8.2, -53.5, 320, -70.7, -17.0, -63.3],
    [6.7, 0.7, -2.2, -70.7, 480, 81.1, -1.3], [-13.7, 11.8, -9.6, -17.0, 81.1, 630, 39.7],
    [-9.9, 4.3, 6.0, -63.3, -1.3, 39.7, 440],
])  # fmt: skip


# H does not commute with Q, and pure dephasing alone would be 5 to 50 times too hopeful. By
# (depth, N of Pade): largest error of an element of rho from |0><0|, hd.evolve with tol=1e-7
# against the depth and N named.
MIXING = {
    "cold, strong": (  # against depth 10, Pade(4)
        hd.Problem(0.5 * SX, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.5, gamma=0.5, T=0.1))]), 20,
        {(4, 6): 3.98e-2, (4, 3): 3.62e-2, (6, 3): 8.88e-3, (8, 3): 2.43e-3, (4, 2): 2.85e-2},
    ),
    "wide gap": (  # against depth 4, Pade(8)
        hd.Problem(3 * SX, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.05, gamma=2, T=0.2))]), 20,
        {(3, 3): 1.71e-2, (2, 5): 2.24e-3, (4, 3): 1.71e-2, (4, 4): 5.90e-3, (3, 6): 1.07e-3},
    ),
    "slow, cold": (  # against depth 6, Pade(6)
        hd.Problem(0.5 * SX, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0.02, gamma=0.1, T=0.02))]), 300,
        {(6, 4): 2.49e-2, (6, 5): 5.89e-3, (3, 4): 2.49e-2},
    ),
    "resonance": (  # against depth 12, Pade(2)
        hd.Problem(0.5 * SZ, [
            hd.Coupling(SX, hd.UnderdampedBrownian(lam=0.1, gamma=0.1, w0=1, T=0.3))
        ]), 20,
        {(12, 1): 2.40e-3, (8, 2): 1.02e-4, (6, 2): 1.52e-3, (5, 1): 5.48e-3, (4, 1): 1.40e-2},
    ),
}  # fmt: skip


def _fmo(temperature: float) -> hd.Problem:
    bath = hd.DrudeLorentz(lam=35 * cm1, gamma=1 / 50, T=temperature * K)
    return hd.Problem(H_FMO * cm1, [hd.Coupling(np.diag(row), bath) for row in np.eye(7)])


def _dimer(lam: float) -> hd.Problem:
    bath = hd.DrudeLorentz(lam=lam * cm1, gamma=1 / 100, T=300 * K)
    H = np.array([[100.0, 100.0], [100.0, 0.0]]) * cm1
    return hd.Problem(
        H, [hd.Coupling(np.diag([1.0, 0.0]), bath), hd.Coupling(np.diag([0.0, 1.0]), bath)]
    )


def _assert_honest(advice: hd.advice.Advice, true: float) -> None:
    """Not below a third of the true error, not above thirty times it: rather too careful."""
    assert true / 3 < advice.estimated_error < 30 * true


@pytest.mark.parametrize("case", SPIN_BOSON, ids=str)
def test_estimate_against_the_spin_boson_model(case) -> None:
    end, method, depth = case
    bath = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
    problem = hd.Problem(0.25 * SZ + 0.5 * SX, [hd.Coupling(SZ, bath)])
    advice = hd.advise(problem, [0.0, end], depth=depth, expansion=method)
    _assert_honest(advice, SPIN_BOSON[case])


@pytest.mark.parametrize("case", DIMER, ids=str)
def test_estimate_against_the_dimer(case) -> None:
    lam, n, depth = case
    advice = hd.advise(_dimer(lam), [0.0, 1000.0], depth=depth, expansion=hd.Pade(n))
    _assert_honest(advice, DIMER[case])


@pytest.mark.parametrize("case", FMO, ids=str)
def test_estimate_against_fmo(case) -> None:
    temperature, method, depth = case
    advice = hd.advise(_fmo(temperature), [0.0, 1000.0], depth=depth, expansion=method)
    _assert_honest(advice, FMO[case])


@pytest.mark.parametrize("case", MIXING)
def test_estimate_where_the_hamiltonian_mixes(case) -> None:
    problem, end, true = MIXING[case]
    for (depth, n), error in true.items():
        advice = hd.advise(problem, [0.0, end], depth=depth, expansion=hd.Pade(n))
        _assert_honest(advice, error)
        assert advice.sufficient == (error < 1e-3)
        assert "This is an estimate, not a run: hd.converge runs the real thing." in str(advice)


def test_advice_where_the_hamiltonian_mixes() -> None:
    depths, ns = zip(*[
        (advice.depth, advice.expansion.N)
        for problem, end, _ in MIXING.values()
        for advice in [hd.advise(problem, [0.0, end])]
    ], strict=True)  # fmt: skip
    # the depth 8 is needed for the first, N > 5 for the second and third; 7, 2 is off by 5.0e-4
    assert depths == (9, 3, 3, 7)
    assert ns == (8, 10, 12, 2)


def test_samples_of_disorder_get_the_same_advice() -> None:
    bath = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5)
    found = {
        hd.advise(hd.Problem(np.array([[e, 0.5], [0.5, 0.0]]), [hd.Coupling(SZ, bath)]), [0.0, 20])
        for e in (0.05, 0.1, 0.2, 0.4)
    }
    assert len(found) == 1


def test_faint_modes_count_at_a_small_depth() -> None:
    # nearly pure dephasing: depth 1 against depth 2 changes rho01 from |+> by 7.8e-4
    bath = hd.DrudeLorentz(lam=0.00952, gamma=0.23, T=0.0492)
    problem = hd.Problem(2.867 * SZ - 0.126 * SX, [hd.Coupling(SZ, bath)])
    advice = hd.advise(problem, [0.0, 7.88], depth=1, expansion=hd.Pade(3))
    _assert_honest(advice, 7.8e-4)
    assert hd.advise(problem, [0.0, 7.88]).depth == 2


def test_shifts_of_the_transitions_count() -> None:
    # the coherence between the eigenstates of H turns too fast by Delta S: Lamb shift
    bath = hd.DrudeLorentz(lam=0.0507, gamma=3.48, T=0.63)
    problem = hd.Problem(2.175 * SX, [hd.Coupling(SZ, bath)])
    advice = hd.advise(problem, [0.0, 19.8], depth=2, expansion=hd.Pade(3))
    _assert_honest(advice, 1.2e-3)


def test_lamb_shift_is_that_of_the_exponents() -> None:
    nothing = hd.Exponents(c=[0.0], gamma=[1.0])
    w = np.array([0.5, 2**-0.125, 1.0, 4.0])
    for gamma in (0.02, 1.0, 30.0):
        found = lamb_shift(nothing.S, hd.Exponents(c=[1.0], gamma=[gamma]).S, w)
        np.testing.assert_allclose(found, 2 * w / (gamma**2 + w**2), rtol=1e-3)


def test_modes_too_slow_to_matter_do_not_set_the_depth() -> None:
    # a fit of a sub-Ohmic bath has rates down to 1e-5, with |c|/gamma^2 above that of all others
    bath = hd.Ohmic(s=0.5, wc=1.0, T=0.0, lam=0.1)
    times = np.linspace(0, 10, 11)
    problem = hd.Problem(np.zeros((2, 2)), [hd.Coupling(SZ, bath)])
    solution = hd.evolve(
        problem, np.full((2, 2), 0.5), times, depth="auto", expansion="auto", backend="numpy"
    )
    exact = 0.5 * exact_coherence(bath.g(times), Pair(1.0, -1.0))
    assert np.max(np.abs(solution.rho[:, 0, 1] - exact)) < 1e-3


def test_advice_for_fmo() -> None:
    advice = hd.advise(_fmo(77), np.linspace(0, 1000, 101), error=1e-3)
    assert (advice.depth, advice.expansion, advice.n_ado) == (4, hd.Pade(4), 82251)
    assert advice.estimated_error == advice.expansion_error + advice.depth_error
    assert "82,251 ADOs, 788 MB" in str(advice)
    assert "within the 1.0e-03 asked for" in str(advice)


def test_baths_of_one_kind_act_as_one() -> None:
    # two baths on two sites are one bath of the same lam on (P1 - P2)/sqrt(2)
    relative = hd.Problem(
        np.array([[100.0, 100.0], [100.0, 0.0]]) * cm1,
        [hd.Coupling(SZ / np.sqrt(2), hd.DrudeLorentz(lam=20 * cm1, gamma=0.01, T=300 * K))],
    )
    one = hd.advise(relative, [0, 1000], depth=5, expansion=hd.Pade(1))
    two = hd.advise(_dimer(20), [0, 1000], depth=5, expansion=hd.Pade(1))
    assert two.estimated_error == pytest.approx(one.estimated_error, rel=1e-9)
    assert (one.n_ado, two.n_ado) == (21, 126)


def test_operators_that_do_not_commute() -> None:
    bath = hd.DrudeLorentz(lam=0.05, gamma=0.5, T=0.5)
    both = hd.Problem(np.zeros((2, 2)), [hd.Coupling(SZ, bath), hd.Coupling(SX, bath)])
    single = hd.Problem(np.zeros((2, 2)), [hd.Coupling(np.sqrt(2) * SZ, bath)])
    a = hd.advise(both, [0, 10], depth=4, expansion=hd.Pade(1))
    b = hd.advise(single, [0, 10], depth=4, expansion=hd.Pade(1))
    assert a.estimated_error == pytest.approx(b.estimated_error, rel=1e-9)


def test_a_basis_does_not_matter() -> None:
    angle = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    turned = angle @ SZ @ angle.T
    a = hd.advise(_pure_dephasing(), [0, 20], depth=9, expansion=hd.Pade(1))
    problem = hd.Problem(np.zeros((2, 2)), [hd.Coupling(turned, SLOW)])
    b = hd.advise(problem, [0, 20], depth=9, expansion=hd.Pade(1))
    assert a.estimated_error == pytest.approx(b.estimated_error, rel=1e-9)


def test_nothing_to_advise() -> None:
    free = hd.advise(hd.Problem(SZ), [0, 10])
    assert (free.depth, free.expansion, free.n_ado, free.estimated_error) == (0, None, 1, 0)
    uncoupled = hd.Problem(SZ, [hd.Coupling(SZ, hd.DrudeLorentz(lam=0, gamma=1, T=1))])
    advice = hd.advise(uncoupled, [0, 10])
    assert (advice.depth, advice.estimated_error) == (0, 0)
    common_mode = hd.Problem(SZ, [hd.Coupling(np.eye(2), hd.DrudeLorentz(lam=1, gamma=1, T=1))])
    assert hd.advise(common_mode, [0, 10]).depth == 0


def test_other_baths_get_other_methods() -> None:
    ohmic = hd.Ohmic(s=1, wc=1.0, T=0.0, lam=0.02)
    advice = hd.advise(hd.Problem(SX, [hd.Coupling(SZ, ohmic)]), [0, 20], error=1e-2)
    assert isinstance(advice.expansion, hd.AAA)
    t = np.linspace(0, 40, 401)
    samples = hd.CorrelationFunction((t, 0.05 * np.exp(-t)))
    advice = hd.advise(hd.Problem(SX, [hd.Coupling(SZ, samples)]), [0, 5], error=1e-2)
    assert isinstance(advice.expansion, hd.ESPRIT)
    given = hd.Exponents(c=[0.05], gamma=[1.0])
    advice = hd.advise(hd.Problem(SX, [hd.Coupling(SZ, given)]), [0, 5], error=1e-2)
    assert advice.expansion is None
    assert advice.expansion_error == 0
    own = hd.Problem(SX, [hd.Coupling(SZ, SLOW, expansion=hd.Pade(2))])
    assert hd.advise(own, [0, 5], error=1e-2).expansion is None


def test_estimates_come_from_the_point_alone() -> None:
    a = hd.advise(_fmo(300), [0, 1000], error=3e-3)
    hd.advise(_fmo(77), [0, 500], error=1e-2)
    assert hd.advise(_fmo(300), [0, 1000], error=3e-3) == a


def test_truncations_are_kept() -> None:
    problem = _pure_dephasing()
    weighted = hd.Weighted(8)
    advice = hd.advise(problem, [0, 20], depth=weighted, expansion=hd.Pade(1))
    assert advice.depth == weighted
    whole = hd.advise(problem, [0, 20], depth=8, expansion=hd.Pade(1))
    assert advice.depth_error == whole.depth_error
    assert advice.n_ado < whole.n_ado == 45
    assert hd.advise(problem, [0, 20], depth=hd.Depth(8), expansion=hd.Pade(1)) == whole


def test_refusals() -> None:
    with pytest.raises(InputError, match="`error` must be a finite real number above 0"):
        hd.advise(_pure_dephasing(), [0, 1], error=0.0)
    with pytest.raises(InputError, match="`times` must ascend"):
        hd.advise(_pure_dephasing(), [1, 0])
