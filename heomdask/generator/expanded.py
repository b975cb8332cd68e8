"""A problem after expansion: what one member of a batch brings along.

Takes: a Hamiltonian, drives, Lindblad operators, and baths as exponents.
Gives: `Expanded`, and `structure`, which says who may share a plan.
Next file: `generator/superops.py`, the algebra of the equations.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heomdask.model.digest import digest_of
from heomdask.model.exponents import Exponents
from heomdask.plan import Form

Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class Expanded:
    """One problem with its baths as exponents. The modes are those of all baths, in order.

    Attributes
    ----------
    hamiltonian : (d, d), Hermitian, in angular frequency.
    drives : (name, H1): adds f(t) H1 with a real f of that name and a Hermitian H1.
    lindblad : operators L, rates included: each adds ``L rho L^+ - {L^+ L, rho}/2``.
    baths : (Q, exponents, name): a Hermitian Q, times a real f(t) of that name if not None.
    """

    hamiltonian: Complex
    drives: tuple[tuple[str, Complex], ...] = ()
    lindblad: tuple[Complex, ...] = ()
    baths: tuple[tuple[Complex, Exponents, str | None], ...] = ()

    @property
    def d(self) -> int:
        return len(self.hamiltonian)

    @property
    def n_modes(self) -> int:
        return len(self.rates)

    @functools.cached_property
    def modes(self) -> str:
        """A digest of what defines the ADOs: gamma, c, cbar and lateral of all baths."""
        return digest_of([(e.gamma, e.c, e.cbar, e.lateral) for _, e, _ in self.baths])

    @functools.cached_property
    def _layout(self) -> _Layout:
        return _layout(tuple((q.tobytes(), e, name) for q, e, name in self.baths))

    @property
    def rates(self) -> tuple[float, ...]:
        """Real parts of the decay rates of all modes, as `index_set` takes them."""
        return self._layout.rates

    @property
    def strength(self) -> float:
        """The sum of all |c|."""
        return self._layout.strength

    @property
    def form(self) -> Form:
        """Real if every ADO of a Hermitian state stays Hermitian."""
        return self._layout.form

    @property
    def couplings(self) -> tuple[int, ...]:
        """For each bath the first bath with the same Q, to the bit."""
        return self._layout.couplings

    @property
    def lateral(self) -> tuple[tuple[int, int, float], ...]:
        """Off-diagonal rates (k, l, Gamma_kl) with modes counted through all baths."""
        return self._layout.lateral

    @functools.cached_property
    def key(self) -> Hashable:
        """See `structure`."""
        return (
            self.d,
            has_imag(self.hamiltonian),
            tuple((name, has_imag(h)) for name, h in self.drives),
            tuple(has_imag(op) for op in self.lindblad),
            self._layout.key,
        )


def structure(expanded: Expanded) -> Hashable:
    """Members with equal keys (and equal index sets) may share a plan.

    The key fixes which terms and links exist, so that the arithmetic done for a member cannot
    depend on the numbers of its companions. It knows no number: lam = 0 is an ordinary member.
    A terminator is there if any member has one; the others add exact zeros for it. Only that of a
    coupling f(t) Q counts: its f(t)^2 is one more function for the steps to follow.
    """
    return expanded.key


def has_imag(operator: Complex) -> bool:
    """Whether an operator is complex: then its parts have terms of their own."""
    return bool(operator.imag.any())


class _Layout(NamedTuple):
    """What the baths alone say, as `Expanded` has it; `key` is their part of a structure."""

    form: Form
    rates: tuple[float, ...]
    strength: float
    couplings: tuple[int, ...]
    lateral: tuple[tuple[int, int, float], ...]
    key: Hashable


@functools.lru_cache(maxsize=256)  # a key holds all operators
def _layout(baths: tuple[tuple[bytes, Exponents, str | None], ...]) -> _Layout:
    """Made once for all members with the same baths."""
    first: dict[bytes, int] = {}
    rates: list[float] = []
    lateral: list[tuple[int, int, float]] = []
    for i, (q, exponents, _) in enumerate(baths):
        first.setdefault(q, i)
        lateral.extend((len(rates) + k, len(rates) + j, v) for k, j, v in exponents.lateral)
        rates.extend(exponents.gamma.real.tolist())
    form: Form = "real" if all(e.hermitian for _, e, _ in baths) else "complex"
    strength = sum(float(np.sum(np.abs(e.c))) for _, e, _ in baths)
    couplings = tuple(first[q] for q, _, _ in baths)
    key = (
        form,
        couplings,
        tuple(_bath_structure(*bath) for bath in baths),
        tuple((k, j) for k, j, _ in lateral),
    )
    return _Layout(form, tuple(rates), strength, couplings, tuple(lateral), key)


def _bath_structure(operator: bytes, exponents: Exponents, name: str | None) -> Hashable:
    """What of a bath says which links exist; of A + i B, which elements of A and B are not zero."""
    filled = bytes(np.frombuffer(operator, dtype=np.float64) != 0)
    reads = (exponents.read != 0).tobytes()
    return (filled, exponents.n_modes, reads, name, name and exponents.delta != 0)
