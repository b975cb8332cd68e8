"""Coefficients of Drude, Brownian and Lorentzian densities: published lists, sums done in other
ways, and smoothness where rates coincide."""

import warnings

import mpmath
import numpy as np
import pytest

import heomdask as hd
from heomdask.errors import HeomdaskWarning, InputError
from heomdask.expansion import diagonal_form, expand, poles
from heomdask.expansion.rational import Rest, brownian, drude, lorentzian_lead

QUTIP = {"lam": 0.025, "gamma": 0.05, "T": 1 / 0.95}
JULIA = {"lam": 0.145, "gamma": 0.6464, "T": 0.7414}
TIMES = np.linspace(0.0, 3.0, 13)

# method, bath, c, rates: from the test suites of QuTiP and HierarchicalEOM.jl
DRUDE = {
    "qutip matsubara": (
        hd.Matsubara(1, terminator=False, coefficients="exact"), QUTIP,
        [0.05262168274189053 - 0.00125j, 0.0007958201977617107], [0.05, 6.613879270715354],
    ),
    "qutip pade": (
        hd.Pade(1), QUTIP,
        [0.05262168274189653 - 0.00125j, 0.0016138037466648138], [0.05, 8.15364914991035],
    ),
    "heom.jl matsubara": (
        hd.Matsubara(4, terminator=False, coefficients="exact"), JULIA,
        [0.20121058848333528 - 0.093728j, 0.06084056770606083, 0.029978857835967165,
         0.019932342919420813, 0.014935247906482648],
        [0.6464, 4.658353586742945, 9.31670717348589, 13.975060760228835, 18.63341434697178],
    ),
    "heom.jl pade": (
        hd.Pade(4), JULIA,
        [0.20121058848333528 - 0.093728j, 0.060840591418808695, 0.030404767311488546,
         0.0348069346346228, 0.11731872688143466],
        [0.6464, 4.658353694331594, 9.3267752149411, 15.245109836566384, 42.8439787206965],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRUDE)
def test_drude_coefficients_of_other_programs(name: str) -> None:
    method, bath, c, gamma = DRUDE[name]
    e = expand(hd.DrudeLorentz(**bath), method)
    np.testing.assert_allclose(e.c, c, rtol=0, atol=1e-14)
    np.testing.assert_allclose(e.gamma, gamma, rtol=1e-14)
    assert e.lateral == ()
    assert e.hermitian


# delta = int_0^inf Re(C - C_N) dt, C_N with the exact coefficient of the bath's own rate
DELTAS = {
    (0.025, 0.05, 1 / 0.95): {
        0: 0.00019792410955776774, 1: 7.759832718590154e-05, 2: 4.751817101067424e-05,
        3: 3.4149318830056785e-05, 10: 1.1450311327765306e-05,
    },
    (0.1, 1.0, 0.05): {
        0: -0.14423510453569202, 1: -0.12204503217763646, 2: -0.08899896958585604,
        5: 0.04183130705931938,
    },
    (0.1, 5.0, 0.5): {
        0: 0.04958129155327455, 1: 0.11567341673683539, 2: 0.04660509536868812,
        5: 0.01890414243181763,
    },
    (0.1, 1.0, 1.0): {
        0: 0.0169512278287548, 1: 0.006555789946852325, 2: 0.004006617532900769,
        5: 0.0018376918325048452,
    },
}  # fmt: skip


@pytest.mark.parametrize("parameters", DELTAS)
def test_terminator(parameters: tuple[float, float, float]) -> None:
    lam, gamma, temperature = parameters
    bath = hd.DrudeLorentz(lam=lam, gamma=gamma, T=temperature)
    for n, delta in DELTAS[parameters].items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            e = expand(bath, hd.Matsubara(n))
        assert e.delta == pytest.approx(delta, rel=1e-11)
        poor = delta < 0 or 2 * np.pi * temperature * (n + 1) < 3 * gamma
        assert [w.category for w in caught] == [HeomdaskWarning] * poor
        assert e.S(0.0) == pytest.approx(4 * lam * temperature / gamma, rel=1e-10)


def test_negative_terminator_suggests_pade() -> None:
    bath = hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.05)
    with pytest.warns(HeomdaskWarning, match=r"negative terminator, delta = -0.122.*hd.Pade\(1\)"):
        expand(bath, hd.Matsubara(1))
    assert expand(bath, hd.Pade(1)).delta == 0


@pytest.mark.parametrize("x", [1.001, 1.1, 1.5, 2.0, 2.9])
def test_large_positive_terminator_is_warned_of(x: float) -> None:
    bath = hd.DrudeLorentz(lam=0.05, gamma=1.0, T=x / (2 * np.pi))
    with pytest.warns(
        HeomdaskWarning, match=r"as white noise.*hd.Pade\(1\), or N of at least [12]"
    ):
        assert expand(bath, hd.Matsubara(0)).delta > 0
    expand(bath, hd.Matsubara(0, terminator=False))
    expand(bath, hd.Matsubara(2))


def test_terminator_of_slow_baths_is_silent() -> None:
    fs, kelvin = 1.0, 1.309e-4  # kB / hbar in rad/fs
    for bath in (
        hd.DrudeLorentz(lam=0.0066, gamma=1 / (50 * fs), T=300 * kelvin),  # ratio 12
        hd.DrudeLorentz(lam=0.05, gamma=1.0, T=3.01 / (2 * np.pi)),
        hd.DrudeLorentz(lam=0.0, gamma=1.0, T=1.1 / (2 * np.pi)),
    ):
        assert expand(bath, hd.Matsubara(0)).delta >= 0


# QuTiP and HierarchicalEOM.jl, with their two resonant terms written as one complex pair
BROWNIAN = {
    "heom.jl": (
        4, {"alpha": 0.145, "gamma": 0.6464, "w0": 0.8787, "T": 0.7414},
        [0.017695757954237043 + 0.0035513512668150166j,
         0.004830164921597724 - 0.0035513512668150157j, -0.0001892879120284295,
         -2.4597966028100685e-05, -7.340987667241641e-06, -3.104801314093836e-06],
        [0.3232 + 0.8171018602353075j, 0.3232 - 0.8171018602353075j, 4.658353586742945,
         9.31670717348589, 13.975060760228835, 18.63341434697178],
    ),
    "qutip": (
        1, {"alpha": 0.025, "gamma": 0.05, "w0": 1.0, "T": 1 / 0.95},
        [0.0005096223710573123 + 7.634500355085954e-06j,
         0.00019702466900709028 - 7.634500355085955e-06j, -2.173594134367818e-07],
        [0.025 + 0.9996874511566103j, 0.025 - 0.9996874511566103j, 6.613879270715354],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROWNIAN)
def test_brownian_coefficients_of_other_programs(name: str) -> None:
    n, bath, c, gamma = BROWNIAN[name]
    e = expand(
        hd.UnderdampedBrownian(**bath),
        hd.Matsubara(n, terminator=False, coefficients="exact"),
    )
    assert e.hermitian  # a real block, not a complex pair
    found_c, found_gamma = diagonal_form(e)
    np.testing.assert_allclose(found_c, c, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found_gamma, gamma, rtol=0, atol=1e-12)


def test_brownian_terminator_makes_the_zero_frequency_exact() -> None:
    bath = hd.UnderdampedBrownian(lam=0.1, gamma=0.6, w0=0.9, T=0.7)
    e = expand(bath, hd.Matsubara(2))
    assert e.delta < 0  # true of this density, and too small to matter
    assert e.S(0.0) == pytest.approx(bath.S(0.0), rel=1e-8)
    exact = expand(bath, hd.Matsubara(2, terminator=False, coefficients="exact"))
    np.testing.assert_allclose(e.c, exact.c, rtol=0, atol=1e-15)


def _residues(numerator, rates):
    return [
        numerator(-p) / mpmath.fprod(q - p for j, q in enumerate(rates) if j != i)
        for i, p in enumerate(rates)
    ]


def _sum(terms):
    return np.array(
        [complex(mpmath.fsum(c * mpmath.exp(-r * float(t)) for c, r in terms)) for t in TIMES]
    )


def direct_drude(lam, gamma, T, table):
    """The truncated sum with 50 digits, by partial fractions."""
    with mpmath.workdps(50):
        lam, gamma, T = mpmath.mpf(lam), mpmath.mpf(gamma), mpmath.mpf(T)
        terms = [(lam * (2 * T - 1j * gamma), gamma)]
        for xi, eta in zip(table.xi, table.eta, strict=True):
            nu = mpmath.mpf(float(xi * float(T)))
            if nu == gamma:
                nu += mpmath.mpf("1e-20")
            c = 4 * lam * gamma * T * mpmath.mpf(float(eta)) / (nu**2 - gamma**2)
            terms += [(c * nu, nu), (-c * gamma, gamma)]
        return _sum(terms)


def direct_brownian(lam, gamma, w0, T, table):
    """The same for a Brownian density."""
    with mpmath.workdps(50):
        lam, gamma, w0, T = map(mpmath.mpf, (lam, gamma, w0, T))
        root = mpmath.sqrt(mpmath.mpc(w0**2 - gamma**2 / 4)) or mpmath.mpf("1e-20")
        own = [gamma / 2 + 1j * root, gamma / 2 - 1j * root]
        classical = _residues(lambda s: lam * (2 * T * (s + gamma) - 1j * w0**2), own)
        terms = list(zip(classical, own, strict=True))
        for xi, eta in zip(table.xi, table.eta, strict=True):
            nu = mpmath.mpf(float(xi * float(T)))
            if abs(nu**2 - gamma * nu + w0**2) < 1e-25:
                nu += mpmath.mpf("1e-18")
            # (1/2 pi) int dw exp(iwt) strength w^2 / prod (w^2 + p^2), by its residues at w = ip
            strength = 8 * lam * gamma * w0**2 * T * mpmath.mpf(float(eta))
            rates = [nu, *own]
            for i, p in enumerate(rates):
                others = mpmath.fprod(q**2 - p**2 for q in rates[:i] + rates[i + 1 :])
                terms.append((-strength * p / (2 * others), p))
        return _sum(terms)


COINCIDENT = [0.3, 1.0, *(np.pi * (1 + x) for x in (-0.31, -0.29, -1e-3, -1e-6, 0, 1e-9, 1e-3))]


@pytest.mark.parametrize("gamma", [*COINCIDENT, 5.0, 6.3, 12.0])
@pytest.mark.parametrize("table", [poles.pade(3), poles.matsubara(3)], ids=["pade", "matsubara"])
def test_drude_is_the_truncated_sum_through_coincidences(gamma, table) -> None:
    e = drude(0.1, gamma, 0.5, table, Rest())
    expected = direct_drude(0.1, gamma, 0.5, table)
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(e.correlation(TIMES), expected, rtol=0, atol=1e-13 * size)
    assert np.max(np.abs(e.c)) < 4 * size
    assert e.n_modes == 4
    assert e.hermitian


@pytest.mark.parametrize("gamma", [0.05, 1.0, 1.9, 2 - 1e-9, 2.0, 2 + 1e-9, 2.1, 2.2, 3.0, 5.0])
@pytest.mark.parametrize("temperature", [0.1, 1 / (2 * np.pi), 0.35, 1.1])
def test_brownian_is_the_truncated_sum_through_coincidences(gamma, temperature) -> None:
    table = poles.matsubara(3)  # w0 = 1 = nu_1 at the second temperature: all three rates meet
    e = brownian(0.1, gamma, 1.0, temperature, table, Rest())
    expected = direct_brownian(0.1, gamma, 1.0, temperature, table)
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(e.correlation(TIMES), expected, rtol=0, atol=1e-12 * size)
    assert np.max(np.abs(e.c)) < 10 * size
    assert e.n_modes == 5
    assert e.hermitian


def _smooth(curve: np.ndarray) -> float:
    """The largest fourth difference: 1e-12 of a smooth curve so finely sampled, O(1) of a jump."""
    return float(np.max(np.abs(np.diff(curve, n=4, axis=0))))


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("pole", [0, 1])
@pytest.mark.parametrize("method", [hd.Pade(2), hd.Matsubara(2, terminator=False)], ids=str)
def test_sweep_of_temperature_is_smooth(ratio: float, pole: int, method) -> None:
    # through gamma = nu_k, and through the borders where the two rates cease to be linked
    table = poles.pade(2) if isinstance(method, hd.Pade) else poles.matsubara(2)
    sweep = 0.5 * ratio / table.xi[pole] * (1 + 1e-3 * np.linspace(-1, 1, 21))
    expanded = [expand(hd.DrudeLorentz(lam=0.1, gamma=0.5, T=T), method) for T in sweep]
    assert {len(e.lateral) for e in expanded} == ({1} if ratio == 1 else {0, 1})
    assert {e.n_modes for e in expanded} == {3}
    assert _smooth(np.array([e.correlation(TIMES) for e in expanded])) < 1e-10


def test_dynamics_do_not_notice_where_links_end() -> None:
    # a truncation by depth spans the same space with linked and with plain modes
    problems = []
    for shift in (-2e-5, -1e-5, 1e-5, 2e-5):
        bath = hd.DrudeLorentz(lam=0.1, gamma=1.0, T=1.3 / poles.pade(2).xi[0] * (1 + shift))
        assert len(expand(bath, hd.Pade(2)).lateral) == (shift < 0)
        problems.append(
            hd.Problem(0.5 * np.array([[0.5, 1], [1, -0.5]]), [(np.diag([1, -1]), bath)])
        )
    a, b, c, d = (
        hd.evolve(
            p, [1, 0], np.linspace(0, 5, 6), depth=3, expansion=hd.Pade(2), tol=1e-10,
            backend="numpy",
        ).rho
        for p in problems
    )  # fmt: skip
    assert np.max(np.abs(a - d)) > 1e-6
    assert np.max(np.abs((a + d) - (b + c))) < 1e-9


@pytest.mark.parametrize("centre", [2.0, 3 / np.sqrt(2)])
@pytest.mark.parametrize("temperature", [0.1, 1 / (2 * np.pi), 1.0])
def test_sweep_of_damping_is_smooth(centre: float, temperature: float) -> None:
    # through critical damping, and through the border where the block falls into two exponents
    sweep = centre * (1 + 1e-3 * np.linspace(-1, 1, 21))
    expanded = [
        expand(hd.UnderdampedBrownian(lam=0.1, gamma=g, w0=1.0, T=temperature), hd.Pade(2))
        for g in sweep
    ]
    assert {e.n_modes for e in expanded} == {4}
    assert _smooth(np.array([e.correlation(TIMES) for e in expanded])) < 1e-10


@pytest.mark.parametrize("bath", [
    hd.DrudeLorentz(lam=0.1, gamma=0.5, T=0.5),
    hd.UnderdampedBrownian(lam=0.1, gamma=0.3, w0=1.0, T=0.5),
    hd.UnderdampedBrownian(lam=0.1, gamma=2.0, w0=1.0, T=0.5),
    hd.UnderdampedBrownian(lam=0.1, gamma=6.0, w0=1.0, T=0.5),
], ids=["drude", "under", "critical", "over"])  # fmt: skip
def test_pade_converges_to_the_quadrature(bath) -> None:
    t = np.array([0.1, 1.0, 4.0, 20.0])
    np.testing.assert_allclose(expand(bath, hd.Pade(12)).lineshape(t), bath.g(t), atol=2e-7)
    c_exact = bath.C(t)
    np.testing.assert_allclose(expand(bath, hd.Pade(12)).correlation(t), c_exact, atol=1e-5)


def test_pade_keeps_the_zero_frequency_exactly() -> None:
    for bath in (
        hd.DrudeLorentz(lam=0.1, gamma=3.0, T=0.5),
        hd.UnderdampedBrownian(lam=0.1, gamma=0.3, w0=1.0, T=0.5),
    ):
        assert expand(bath, hd.Pade(1)).S(0.0) == pytest.approx(bath.S(0.0), rel=1e-8)


def test_the_exact_cotangent_is_wrong_near_a_coincidence() -> None:
    # lam=.3, gamma=5, T=.2: 2 pi T k is 5.03 for k = 4; a Matsubara sum of 4000 terms gives 1.668
    bath = hd.DrudeLorentz(lam=0.3, gamma=5.0, T=0.2)
    assert bath.C(0.02).real == pytest.approx(1.668, abs=5e-4)
    assert expand(bath, hd.Pade(5)).correlation(0.02).real == pytest.approx(1.709, abs=5e-4)
    other = expand(bath, hd.Pade(5, coefficients="exact")).correlation(0.02).real
    assert other == pytest.approx(-17.8, abs=0.05)


def test_uncoupled_bath_keeps_its_modes() -> None:
    for bath in (
        hd.DrudeLorentz(lam=0.0, gamma=1.0, T=1 / (2 * np.pi)),
        hd.UnderdampedBrownian(lam=0.0, gamma=2.0, w0=1.0, T=1.0),
        hd.UnderdampedBrownian(lam=0.0, gamma=9.0, w0=1.0, T=1.3),
    ):
        e = expand(bath, hd.Pade(2))
        assert not np.any(e.c)
        assert e.n_modes == (3 if isinstance(bath, hd.DrudeLorentz) else 4)


def test_refusals() -> None:
    cold = hd.DrudeLorentz(lam=0.1, gamma=1.0, T=0.0)
    for method in (hd.Pade(2), hd.Matsubara(2)):
        with pytest.raises(InputError, match=r"temperature above 0.*got T = 0.*hd.AAA\(tol\)"):
            expand(cold, method)
    with pytest.raises(InputError, match=r"for DrudeLorentz and Unde.*got Ohmic; use hd.AAA"):
        expand(hd.Ohmic(s=1, wc=1.0, T=1.0, lam=0.1), hd.Pade(2))
    on_pole = hd.DrudeLorentz(lam=0.1, gamma=2 * np.pi, T=1.0)
    with pytest.raises(InputError, match=r"is singular for DrudeLorentz.*consistent"):
        expand(on_pole, hd.Matsubara(2, coefficients="exact"))
    with pytest.raises(InputError, match="`coefficients` must be one of 'consistent', 'exact'"):
        hd.Pade(1, coefficients="cot")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="`terminator` must be True or False"):
        hd.Matsubara(1, terminator="yes")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="`N` must be a whole number"):
        hd.Pade(2.5)  # type: ignore[arg-type]  # wrong on purpose


def test_exponents_are_returned_as_they_are() -> None:
    e = hd.Exponents(c=[1.0], gamma=[0.5])
    assert expand(e, hd.Pade(3)) is e


def test_lorentzian_leads() -> None:
    # HierarchicalEOM.jl: Gamma=.145, mu=.8787, W=.6464, kT=.7414, N=4
    for sign in (1, -1):
        c, gamma = lorentzian_lead(0.145, 0.8787, 0.6464, 0.7414, poles.pade(4, "fermi"), sign)
        np.testing.assert_allclose(
            c,
            [0.023432 - 0.010915103984112131j, 0.00897068490624531j, 0.0009302651094118859j,
             0.00046415637599478123j, 0.0005499975924601549j],
            rtol=0, atol=1e-15,
        )  # fmt: skip
        rates = [
            0.6464, 2.3291767934109835, 6.988999607574685, 12.311922289624263, 34.34128373670107,
        ]  # fmt: skip
        np.testing.assert_allclose(gamma, np.array(rates) - sign * 0.8787j, rtol=1e-14)
    c, _ = lorentzian_lead(0.145, 0.8787, 0.6464, 0.7414, poles.matsubara(4, "fermi"), 1)
    assert c[0] == pytest.approx(0.023432 - 0.010400055643772476j, abs=1e-15)
    assert c[3] == pytest.approx(0.0003322143470478503j, abs=1e-15)
    c, _ = lorentzian_lead(0.01, -1.0, 1.0, 0.025851991, poles.pade(2, "fermi"), 1)
    assert c[0] == pytest.approx(0.0025 + 0.0014269j, abs=1e-9)
