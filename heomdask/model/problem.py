"""What is to be solved: a system, its baths, its drives.

Takes: a Hamiltonian, couplings to baths, drives, Lindblad operators.
Gives: `Problem` and `Coupling`, immutable and checked, as plain arrays and baths.
Next file: `../expansion/__init__.py`, which turns each bath into `Exponents`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.errors import InputError
from heomdask.model import from_qutip
from heomdask.model.bath import Bath
from heomdask.model.brownian import UnderdampedBrownian
from heomdask.model.digest import digest_of
from heomdask.model.drives import Drive, Pulse, RealPulse, Squared, breakpoints_of, real_pulse
from heomdask.model.drude import DrudeLorentz
from heomdask.model.ohmic import Ohmic

ComplexArray = NDArray[np.complex128]

FORMULAS = (DrudeLorentz, UnderdampedBrownian, Ohmic)  # equal if their numbers are
_PSD = 1e-10  # eigenvalues of `correlation` above minus this count as zero
_RANK = 1e-12  # combinations of baths weaker than this are left out


class BathTerm(NamedTuple):
    """One independent bath: f(t) Q (x) X, with the expansion asked for, if any."""

    Q: ComplexArray
    bath: Bath
    f: RealPulse | None
    expansion: Any


class DriveTerm(NamedTuple):
    """One real function of time with its Hermitian operator."""

    name: str
    f: RealPulse
    H1: ComplexArray
    breakpoints: tuple[float, ...]


@dataclass(frozen=True, eq=False, init=False)
class Coupling:
    """System operators coupled to a bath.

    Each coupling is a bath of its own, even where the bath object is shared. A bath common to two
    operators is one coupling with their sum.

    Parameters
    ----------
    Q : (d, d) array, or a list of them together with `correlation`
        Hermitian operators, dimensionless.
    bath : Bath
        A heomdask bath, `Exponents`, or a QuTiP environment.
    correlation : (n, n) array, optional
        For a list of n operators: <X_a(t) X_b(0)> = correlation[a, b] C(t); real, symmetric,
        positive semidefinite.
    f : callable, optional
        Real function of time which multiplies Q.
    expansion : optional
        How this bath is expanded, where it differs from the rest.
    """

    operators: tuple[ComplexArray, ...]
    bath: Bath
    correlation: NDArray[np.float64] | None
    f: Pulse | None
    expansion: Any

    def __init__(
        self,
        Q: Any,
        bath: Any,
        *,
        correlation: ArrayLike | None = None,
        f: Pulse | None = None,
        expansion: Any = None,
    ) -> None:
        if correlation is None:
            operators: tuple[ComplexArray, ...] = (_operator(Q),)
            matrix = None
        else:
            operators = _operators(Q)
            matrix = _correlation(correlation, len(operators))
        if f is not None:
            real_pulse("f", f)
        for operator in operators:
            operator.flags.writeable = False
        object.__setattr__(self, "operators", operators)
        object.__setattr__(self, "bath", _bath(bath))
        object.__setattr__(self, "correlation", matrix)
        object.__setattr__(self, "f", f)
        object.__setattr__(self, "expansion", expansion)

    @property
    def d(self) -> int:
        return len(self.operators[0])

    def independent_operators(self) -> list[ComplexArray]:
        """Q_j = sqrt(r_j) sum_a u_aj Q_a, one for each independent bath.

        r_j and u_j are the eigenvalues and eigenvectors of `correlation`.
        """
        if self.correlation is None:
            return [self.operators[0]]
        stack = np.array(self.operators)
        weights = np.diag(self.correlation)
        if np.array_equal(self.correlation, np.diag(weights)):
            return [np.sqrt(w) * q for w, q in zip(weights, stack, strict=True) if w > 0]
        weights, vectors = np.linalg.eigh(self.correlation)
        kept = weights > _RANK * weights[-1]
        return [
            np.sqrt(w) * np.tensordot(u, stack, axes=1)
            for w, u in zip(weights[kept], vectors.T[kept], strict=True)
        ]


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    """A system with its baths: H(t) = H + drives, couplings, Lindblad operators.

    Parameters
    ----------
    H : (d, d) array
        Constant part of the Hamiltonian, Hermitian, in angular frequency.
    couplings : sequence of Coupling
        Also pairs (Q, bath), or QuTiP baths.
    drives : sequence of Drive
        Also pairs (f, H1) or triples (f, H1, breakpoints).
    lindblad : sequence of (d, d) array
        Operators L of the dissipators L rho L^+ - {L^+ L, rho}/2, rates included.
    """

    H: ComplexArray
    couplings: tuple[Coupling, ...]
    drives: tuple[Drive, ...]
    lindblad: tuple[ComplexArray, ...]
    dims: list[Any]

    def __init__(
        self,
        H: Any,
        couplings: Sequence[Any] = (),
        *,
        drives: Sequence[Any] = (),
        lindblad: Sequence[Any] = (),
    ) -> None:
        dims = from_qutip.dims("H", H)
        matrix = checks.hermitian("H", H)
        d = len(matrix)
        object.__setattr__(self, "H", matrix)
        object.__setattr__(self, "dims", dims or [[d], [d]])
        object.__setattr__(self, "couplings", _couplings(couplings, d))
        object.__setattr__(self, "drives", _drives(drives, d))
        operators = tuple(
            checks.square_matrix(f"lindblad[{j}]", L, d)
            for j, L in enumerate(checks.sequence("lindblad", lindblad))
        )
        for array in (matrix, *operators):
            array.flags.writeable = False
        object.__setattr__(self, "lindblad", operators)

    @property
    def d(self) -> int:
        """Dimension of the system."""
        return len(self.H)

    def baths(self) -> list[BathTerm]:
        """The independent baths, correlated ones diagonalised, in the order of `couplings`."""
        terms: list[BathTerm] = []
        for coupling in self.couplings:
            f = None if coupling.f is None else real_pulse("f", coupling.f)
            terms.extend(
                BathTerm(Q, coupling.bath, f, coupling.expansion)
                for Q in coupling.independent_operators()
            )
        return terms

    @property
    def hermitian_drives(self) -> list[DriveTerm]:
        """The drives as real functions times Hermitian operators; a complex one gives two."""
        return [
            DriveTerm(f"drive{j}{suffix}", f, H1, drive.breakpoints)
            for j, drive in enumerate(self.drives)
            for suffix, f, H1 in drive.hermitian_parts()
        ]

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times that no step may cross, of drives and of time-dependent couplings, ascending."""
        found = {b for drive in self.drives for b in drive.breakpoints}
        for coupling in self.couplings:
            if coupling.f is not None:
                found.update(breakpoints_of(coupling.f, ()))
        return tuple(sorted(found))

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the physics: equal for equal problems in every process."""
        parts = [
            (c.operators, c.bath.digest, c.correlation, c.f, c.expansion) for c in self.couplings
        ]
        drives = [(drive.f, drive.H1, drive.breakpoints) for drive in self.drives]
        return digest_of("Problem", self.H, parts, drives, self.lindblad)


def counter_term(problem: Problem) -> Problem:
    """The problem with sum_j lam_j Q_j^2 added to its Hamiltonian.

    It cancels the shift of the potential that the baths cause. For a coupling with a
    time-dependent f it is f(t)^2 lam Q^2, added as a drive.
    """
    H = problem.H.copy()
    drives = list(problem.drives)
    for term in problem.baths():
        shift = term.bath.reorganisation * (term.Q @ term.Q)
        if term.f is None:
            H += shift
        else:
            drives.append(Drive(Squared(term.f), shift, breakpoints_of(term.f, ())))
    changed = Problem(H, problem.couplings, drives=drives, lindblad=problem.lindblad)
    object.__setattr__(changed, "dims", problem.dims)
    return changed


def _operator(Q: Any) -> ComplexArray:
    """A checked operator: the same one for equal arrays, which every point of a sweep brings."""
    if type(Q) is np.ndarray and not Q.dtype.hasobject:
        return _checked(Q.tobytes(), Q.dtype, Q.shape)
    return checks.hermitian("Q", Q)


@functools.lru_cache(maxsize=64)
def _checked(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ComplexArray:
    return checks.hermitian("Q", np.ndarray(shape, dtype, data))


def _operators(Q: Any) -> tuple[ComplexArray, ...]:
    listed = checks.sequence("Q", Q)
    if not listed:
        raise InputError("`Q` must hold at least one operator, got an empty list.")
    first = checks.hermitian("Q[0]", listed[0])
    rest = [checks.hermitian(f"Q[{j}]", q, len(first)) for j, q in enumerate(listed[1:], 1)]
    return (first, *rest)


def _correlation(value: ArrayLike, n: int) -> NDArray[np.float64]:
    matrix = checks.hermitian("correlation", value)
    if len(matrix) != n:
        raise InputError(
            f"`correlation` must be {n} x {n}, one row for each operator, got the shape "
            f"{matrix.shape}."
        )
    if np.any(matrix.imag != 0):
        raise InputError("`correlation` must be real, got complex numbers in it.")
    real = np.array(matrix.real)
    lowest = float(np.linalg.eigvalsh(real)[0])
    if lowest < -_PSD * float(np.max(np.abs(real))):
        raise InputError(
            f"`correlation` must be positive semidefinite, got an eigenvalue of {lowest:.3g}."
        )
    return real


def _bath(value: Any) -> Bath:
    converted = from_qutip.bath(value)
    if type(converted) in FORMULAS:
        return converted  # type: ignore[no-any-return]  # just seen
    for name in ("J", "S", "C", "g", "reorganisation", "digest"):
        if not hasattr(converted, name):
            raise checks.refuse(
                "bath", "a bath such as DrudeLorentz or Exponents", type(value).__name__
            )
    return converted  # type: ignore[no-any-return]  # it has all of the protocol


def _couplings(given: Sequence[Any], d: int) -> tuple[Coupling, ...]:
    couplings: list[Coupling] = []
    for j, item in enumerate(checks.sequence("couplings", given)):
        if isinstance(item, Coupling):
            couplings.append(item)
        else:
            pairs = from_qutip.couplings(item)
            if pairs is None:
                raise checks.refuse(f"couplings[{j}]", "a Coupling", type(item).__name__)
            couplings.extend(Coupling(*pair) for pair in pairs)
        if couplings[-1].d != d:
            raise InputError(
                f"`couplings[{j}]` must have a Q of {d} x {d} like the Hamiltonian, "
                f"got {couplings[-1].d} x {couplings[-1].d}."
            )
    return tuple(couplings)


def _drives(given: Sequence[Any], d: int) -> tuple[Drive, ...]:
    drives = []
    for j, item in enumerate(checks.sequence("drives", given)):
        if not isinstance(item, Drive) and not (isinstance(item, tuple) and len(item) in (2, 3)):
            raise checks.refuse(f"drives[{j}]", "a Drive or a pair (f, H1)", type(item).__name__)
        drive = item if isinstance(item, Drive) else Drive(*item)
        if len(drive.H1) != d:
            raise InputError(
                f"`drives[{j}]` must have an H1 of {d} x {d} like the Hamiltonian, "
                f"got {len(drive.H1)} x {len(drive.H1)}."
            )
        drives.append(drive)
    return tuple(drives)
