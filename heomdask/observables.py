"""Observables: linear functionals of a few ADOs.

Takes: operators, named by the user, and `interaction_energy(bath)`.
Gives: `bind`, which turns them into one matrix of weights on the ADOs that they read.
Next file: `results/solution.py`, where their values end up.

An operator ``A`` has the value ``Tr(A rho)``. The first tier holds the bath's force X on the
system, ``Tr_B(X rho_tot) = sum_m r_m rho_{e_m} - i delta [Q, rho]`` (ADOs unscaled, m over the
modes of that bath, r their read-out weights), so that the interaction energy is
``f(t) Tr(Q sum_m r_m rho_{e_m})``; the term in delta has no trace with Q.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.errors import InputError
from heomdask.generator.build import Expanded
from heomdask.hierarchy.index_set import IndexSet

Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class InteractionEnergy:
    """``f(t) <Q X>`` of one bath, counted as in `Problem.baths()`; energy in internal units."""

    bath: int


def interaction_energy(bath: int) -> InteractionEnergy:
    """The energy of interaction with one bath, as an observable.

    Parameters
    ----------
    bath : number of the coupling in the problem (of the bath, where couplings are correlated).

    Returns
    -------
    An observable whose value is ``<f(t) Q X>``, with hbar = kB = 1 (an angular frequency).
    """
    return InteractionEnergy(checks.whole_number("bath", bath))


Observable = Complex | InteractionEnergy


def canonical(observables: Any, d: int) -> dict[str, Observable]:
    """The user's mapping, with every operator a finite complex (d, d) array."""
    if observables is None:
        return {}
    if not isinstance(observables, Mapping):
        raise checks.refuse(
            "observables", "a mapping from names to operators", type(observables).__name__
        )
    found: dict[str, Observable] = {}
    for name, value in observables.items():
        if not isinstance(name, str) or not name:
            raise checks.refuse("observables", "a mapping whose keys are words", name)
        if isinstance(value, InteractionEnergy):
            found[name] = value
        else:
            found[name] = checks.square_matrix(f"observables[{name!r}]", value, d)
    return found


def is_hermitian(observable: Observable) -> bool:
    """True if the value is real for every Hermitian state."""
    if isinstance(observable, InteractionEnergy):
        return True
    size = np.max(np.abs(observable))
    defect = np.max(np.abs(observable - observable.conj().T))
    return bool(defect <= checks.HERMITIAN_TOLERANCE * size)


@dataclass(frozen=True, eq=False)
class Bound:
    """All observables of a batch as weights on the probed ADOs.

    Attributes
    ----------
    names : of the observables, in order.
    ados : (A,) rows of the hierarchy that are read; row 0 first.
    weights : (1 or M, n, A d d), acting on unscaled ADOs in C order.
    factors : per observable, the name of the coupling's f(t), or None.
    """

    names: tuple[str, ...]
    ados: NDArray[np.int64]
    weights: Complex
    factors: tuple[str | None, ...]

    def values(self, ados: Complex) -> Complex:
        """From unscaled ADOs (T, A, d, d, M) to values (n, M, T), before any f(t).

        A sum over the non-zero weights, one elementary operation at a time: a matrix product
        would sum in an order that depends on the number of members.
        """
        flat = ados.reshape(len(ados), -1, ados.shape[-1])
        total = np.zeros((2, len(self.names), len(ados), ados.shape[-1]))
        for o, k in np.argwhere(np.any(self.weights != 0, axis=0)):
            w, x = self.weights[:, o, k], flat[:, k]
            total[0, o] += w.real * x.real
            total[0, o] -= w.imag * x.imag
            total[1, o] += w.real * x.imag
            total[1, o] += w.imag * x.real
        result = np.empty(total.shape[1:], dtype=np.complex128)
        result.real, result.imag = total
        return np.ascontiguousarray(result.transpose(0, 2, 1))


def bind(
    observables: Mapping[str, Observable], members: Sequence[Expanded], index_set: IndexSet
) -> Bound:
    """Weights of every observable, for members that share one hierarchy."""
    d = members[0].hamiltonian.shape[0]
    energies = {n: o for n, o in observables.items() if isinstance(o, InteractionEnergy)}
    rows = {n: _first_tier(n, o.bath, members[0], index_set) for n, o in energies.items()}
    extra = sorted({int(r) for tier in rows.values() for r in tier})
    ados = np.array([0, *extra], dtype=np.int64)
    depth = len(members) if energies else 1
    weights = np.zeros((depth, len(observables), len(ados), d, d), dtype=np.complex128)
    factors: list[str | None] = []
    for o, (name, observable) in enumerate(observables.items()):
        if not isinstance(observable, InteractionEnergy):
            weights[:, o, 0] = observable.T
            factors.append(None)
            continue
        places = np.searchsorted(ados, rows[name])
        for m, member in enumerate(members):
            q, exponents, _ = member.baths[observable.bath]
            for place, read in zip(places, exponents.read, strict=True):
                weights[m, o, place] += read * q.T
        factors.append(members[0].baths[observable.bath][2])
    flat = weights.reshape(depth, len(observables), len(ados) * d * d)
    return Bound(tuple(observables), ados, flat, tuple(factors))


def _first_tier(name: str, bath: int, member: Expanded, index_set: IndexSet) -> NDArray[np.int64]:
    """The rows n = e_m of the modes m of one bath."""
    if bath >= len(member.baths):
        raise InputError(
            f"`observables[{name!r}]` must name one of the problem's {len(member.baths)} baths "
            f"(counted from 0), got {bath}."
        )
    first = sum(e.n_modes for _, e, _ in member.baths[:bath])
    count = member.baths[bath][1].n_modes
    units = np.eye(index_set.n_modes, dtype=np.int64)[first : first + count]
    found = np.asarray(index_set.rank(units), dtype=np.int64)
    if np.any(found < 0):
        raise InputError(
            f"`observables[{name!r}]` must be read from the first tier of the hierarchy, which "
            "is cut off here; raise `depth`."
        )
    return found
