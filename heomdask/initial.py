"""Initial states: everything that a user may start from, in one form.

Takes: a ket, a density matrix, any operator, QuTiP objects, or a whole hierarchy (`sol.ados`).
Gives: `Start`, the states of all members with their trace norms, and `Columns`, how they stand
    in a batch.
Next file: `solve.py`, which propagates them.

A real plan propagates Hermitian states only. Since the equations are linear, an operator
``A = B + i C`` with Hermitian B and C is two members of one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.errors import InputError
from heomdask.generator.expanded import Expanded
from heomdask.outcome import Outcome
from heomdask.results.sentinel import trace_norm
from heomdask.results.solution import Ados

Complex = NDArray[np.complex128]
HERMITIAN_TO = 1e-13  # relative: what is nearer than this is rounding, and is removed


@dataclass(frozen=True, eq=False)
class Start:
    """The initial states of a batch.

    Attributes
    ----------
    values : (M, n, d, d), n = 1 (only row 0 is not zero) or the whole hierarchy; unscaled.
    norms : (M,), trace norm of row 0.
    hermitian : (M,), whether a member's ADOs are all Hermitian.
    bounded : (M,), whether an exact map could not raise the member's trace norm.
    """

    values: Complex
    norms: NDArray[np.float64]
    hermitian: NDArray[np.bool_]
    bounded: NDArray[np.bool_]

    @property
    def is_restart(self) -> bool:
        return int(self.values.shape[1]) > 1


def operator(rho0: Any, d: int) -> Complex:
    """A ket (d,), (d, 1) or an operator (d, d), also of QuTiP, as a finite complex (d, d) array."""
    raw = rho0.full() if callable(getattr(rho0, "full", None)) else rho0
    try:
        array = np.array(raw, dtype=np.complex128)
    except (TypeError, ValueError):
        raise checks.refuse("rho0", "an array of numbers", type(rho0).__name__) from None
    if not np.all(np.isfinite(array)):
        raise InputError("`rho0` must be finite, got NaN or infinity in it.")
    if array.shape in ((d,), (d, 1)) and d > 1:
        ket = array.reshape(d)
        array = np.outer(ket, ket.conj())
    if array.shape not in ((d, d), (1, d, d)):
        raise InputError(
            f"`rho0` must be a ket ({d},), an operator ({d}, {d}) or the ADOs of an earlier run "
            f"of the same hierarchy (sol.ados), got the shape {np.shape(raw)}."
        )
    return array.reshape(d, d)


def hierarchy(rho0: Any, d: int, indices: NDArray[Any], expanded: Expanded) -> Complex:
    """All ADOs (n_ado, d, d) of an earlier run, checked against this run's hierarchy."""
    array = _ados("rho0", rho0, d, indices)
    if isinstance(rho0, Ados) and rho0.modes not in ("", expanded.modes):
        raise InputError(
            "`rho0` must come from a run with the same exponents, got ADOs of other rates or "
            "coefficients; use the same baths and `expansion` as the earlier run, or go on from "
            "sol.ados.rho, which forgets the baths' memory."
        )
    return array


def neighbour(guess: Any, d: int, indices: NDArray[Any]) -> Complex:
    """All ADOs (n_ado, d, d) of a solution near the one that is wanted; its exponents may differ.

    Takes a solution (its `ados`), `Ados` or an array.
    """
    array = _ados("guess", getattr(guess, "ados", guess), d, indices)
    if np.abs(np.trace(array[0])) < checks.HERMITIAN_TOLERANCE * np.abs(array[0]).max(initial=1.0):
        raise InputError("`guess` must have a trace, got a state whose reduced part has none.")
    return array


def _ados(name: str, given: Any, d: int, indices: NDArray[Any]) -> Complex:
    """The argument `name` as ADOs (n_ado, d, d) of the hierarchy with these indices."""
    n_ado = len(indices)
    try:
        array = np.array(given.values if isinstance(given, Ados) else given, dtype=np.complex128)
    except (TypeError, ValueError):
        raise checks.refuse(name, "the ADOs of an earlier run", type(given).__name__) from None
    if array.shape != (n_ado, d, d):
        raise InputError(
            f"`{name}` must have the shape ({n_ado}, {d}, {d}) of this hierarchy to start from, "
            f"got {array.shape}; use the same `depth` and `expansion` as the earlier run."
        )
    if isinstance(given, Ados) and not np.array_equal(given.indices, indices):
        raise InputError(
            f"`{name}` must come from a run with the same hierarchy, got ADOs with other indices; "
            "use the same `depth` and `expansion` as the earlier run."
        )
    if not np.all(np.isfinite(array)):
        raise InputError(f"`{name}` must be finite, got NaN or infinity in its ADOs.")
    return array


def start(
    rho0s: Sequence[Any] | Complex, d: int, indices: NDArray[Any], expanded: Sequence[Expanded]
) -> Start:
    """The states of a batch; if one of them is a whole hierarchy, all of them are."""
    n_ado = len(indices)
    whole = [isinstance(r, Ados) or (np.ndim(r) == 3 and n_ado > 1) for r in rho0s]
    if any(whole):
        values = np.zeros((len(rho0s), n_ado, d, d), dtype=np.complex128)
        for m, rho0 in enumerate(rho0s):
            if whole[m]:
                values[m] = hierarchy(rho0, d, indices, expanded[m])
            else:
                values[m, 0] = operator(rho0, d)
    else:
        values = np.stack([operator(r, d) for r in rho0s])[:, None]
    return _classify(values)


def _classify(values: Complex) -> Start:
    dagger = values.conj().swapaxes(-1, -2)
    size = np.max(np.abs(values), axis=(1, 2, 3))
    defect = np.max(np.abs(values - dagger), axis=(1, 2, 3))
    hermitian = defect <= HERMITIAN_TO * size
    values = np.where(hermitian[:, None, None, None], (values + dagger) / 2, values)
    norms = trace_norm(values[:, 0], hermitian)
    if np.any(norms == 0):
        raise InputError("`rho0` must not be zero, got a state whose reduced part vanishes.")
    trace = np.trace(values[:, 0], axis1=-2, axis2=-1).real
    positive = hermitian & (norms <= trace * (1 + 1e-9))
    bounded = positive | np.full(len(values), values.shape[1] == 1)
    return Start(values, norms, hermitian, bounded)


@dataclass(frozen=True, eq=False)
class Columns:
    """Which member each column of the batch belongs to.

    In a real plan a member whose state is not Hermitian has two columns, B and C of B + i C:
    its own, and one behind all members.
    """

    members: NDArray[np.int64]  # (C,)
    n_members: int

    @property
    def imaginary(self) -> NDArray[np.int64]:
        """The members that have a second column, in the order of those columns."""
        return self.members[self.n_members :]

    def split(self, values: Complex) -> Complex:
        """(M, n, d, d) to the Hermitian parts (n, d, d, C)."""
        if not len(self.imaginary):
            return np.ascontiguousarray(np.moveaxis(values, 0, -1))
        dagger = values.conj().swapaxes(-1, -2)
        second = ((values - dagger) / 2j)[self.imaginary]
        first = values.copy()
        first[self.imaginary] = ((values + dagger) / 2)[self.imaginary]
        return np.ascontiguousarray(np.moveaxis(np.concatenate([first, second]), 0, -1))

    def join(self, columns: Complex) -> Complex:
        """(..., C) back to (..., M)."""
        joined = columns[..., : self.n_members]
        if len(self.imaginary):
            joined = joined.copy()
            joined[..., self.imaginary] += 1j * columns[..., self.n_members :]
        return joined

    def worst(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """One outcome per member: its own, unless only its second column went wrong."""
        merged = list(outcomes[: self.n_members])
        for m, outcome in zip(self.imaginary, outcomes[self.n_members :], strict=True):
            if merged[m].good:
                merged[m] = outcome
        return merged


def columns_of(begin: Start, real: bool) -> Columns:
    """The columns of a batch in a real or a complex plan."""
    m = len(begin.values)
    second = np.flatnonzero(~begin.hermitian) if real else np.zeros(0, dtype=np.int64)
    return Columns(np.concatenate([np.arange(m), second]), m)
