"""Hypothesis strategies: random problems that use every feature of the generator.

Takes: nothing; hypothesis draws the shape of a problem and a seed for its numbers.
Gives: `shapes` and `Shape`, which makes any number of members of one structure.
Next file: `tests/properties/`, which state what must hold for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from heomdask.generator.expanded import Expanded
from heomdask.model.exponents import Exponents

Complex = NDArray[np.complex128]

REAL_BATHS = ("real", "block", "star", "uncoupled")
BATHS = (*REAL_BATHS, "pair", "lonely", "given")
COUPLINGS = ("projector", "diagonal", "real", "complex")


@dataclass(frozen=True)
class Bath:
    """How one bath of a random problem looks.

    Attributes
    ----------
    kind : one of `BATHS`: real rates; a (cos, sin) block; a star of rates with lateral links;
        all coefficients 0; a conjugate pair; one complex exponent, whose partner is added;
        cbar given at random.
    coupling : structure of Q, one of `COUPLINGS`.
    shared : takes the Q of the bath before it.
    terminator : whether delta is not 0.
    name : of its f(t), or None.
    """

    kind: str
    coupling: str
    shared: bool
    terminator: bool
    name: str | None


@dataclass(frozen=True)
class Shape:
    """A random problem up to its numbers: members made from one shape have equal structure."""

    d: int
    depth: int
    baths: tuple[Bath, ...]
    drives: tuple[str, ...]
    lindblad: int
    real_hamiltonian: bool
    seed: int

    def members(self, n: int) -> list[Expanded]:
        """`n` members; the numbers of each depend on its place alone."""
        return [self.member(np.random.default_rng([self.seed, m])) for m in range(n)]

    def member(self, rng: np.random.Generator) -> Expanded:
        """One member, with numbers of order 1."""
        hamiltonian = hermitian(rng, self.d, "real" if self.real_hamiltonian else "complex")
        drives = tuple((name, hermitian(rng, self.d, "complex")) for name in self.drives)
        lindblad = tuple(
            rng.normal(size=(self.d, self.d)) + 1j * rng.normal(size=(self.d, self.d))
            for _ in range(self.lindblad)
        )
        baths: list[tuple[Complex, Exponents, str | None]] = []
        for bath in self.baths:
            q = hermitian(rng, self.d, bath.coupling)
            if bath.shared and baths:
                q = baths[-1][0]
            delta = float(rng.normal()) if bath.terminator else 0.0
            baths.append((q, exponents(rng, bath.kind, delta), bath.name))
        return Expanded(hamiltonian, drives, lindblad, tuple(baths))


def hermitian(rng: np.random.Generator, d: int, structure: str) -> Complex:
    """A random Hermitian (d, d) matrix; a projector and a diagonal one as structures ask."""
    if structure == "projector":
        matrix = np.zeros((d, d), dtype=np.complex128)
        matrix[0, 0] = 1.0
        return matrix
    if structure == "diagonal":
        return np.diag(rng.normal(size=d)).astype(np.complex128)
    raw = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d)) * (structure == "complex")
    return np.asarray(raw + raw.conj().T, dtype=np.complex128) / 2


def exponents(rng: np.random.Generator, kind: str, delta: float) -> Exponents:
    """Random exponents of one of the kinds in `BATHS`, numbers of order 1."""
    c = rng.normal(size=2) + 1j * rng.normal(size=2)
    rate = rng.uniform(0.2, 2.0, size=2)
    if kind == "real":
        return Exponents(c=c, gamma=rate, delta=delta)
    if kind == "block":
        turn = [(0, 1, rate[1]), (1, 0, -rate[1])]
        return Exponents(c=c, gamma=[rate[0]] * 2, read=[1, 0], lateral=turn, delta=delta)
    if kind == "star":
        return Exponents(c=c, gamma=rate, read=[1, 0], lateral=[(0, 1, rate[0])], delta=delta)
    if kind == "uncoupled":
        return Exponents(c=[0], gamma=rate[:1], delta=delta)
    gamma = rate[0] + 1j * rate[1]
    if kind == "pair":
        return Exponents(c=c, gamma=[gamma, gamma.conjugate()], delta=delta)
    if kind == "lonely":
        return Exponents(c=c[:1], gamma=[gamma], delta=delta)
    cbar = rng.normal(size=2) + 1j * rng.normal(size=2)
    return Exponents(c=c, gamma=[gamma, rate[0]], cbar=cbar, delta=delta)


@st.composite
def shapes(
    draw: st.DrawFn, *, real: bool = False, constant: bool = False, largest: int = 100
) -> Shape:
    """Shapes of random problems with at most `largest` ADOs.

    Parameters
    ----------
    real : only what has a real form.
    constant : without functions of time.
    """
    kinds, couplings = st.sampled_from(REAL_BATHS if real else BATHS), st.sampled_from(COUPLINGS)
    names = st.none() if constant else st.sampled_from((None, None, "f", "g"))
    bath = st.builds(Bath, kinds, couplings, st.booleans(), st.booleans(), names)
    baths = tuple(draw(st.lists(bath, max_size=2)))
    depth = draw(st.integers(0, 3))
    n_modes = sum(1 if b.kind == "uncoupled" else 2 for b in baths)
    while n_modes and math.comb(n_modes + depth, depth) > largest:
        depth -= 1
    return Shape(
        d=draw(st.integers(1, 3)),
        depth=depth,
        baths=baths,
        drives=() if constant else draw(st.sampled_from(((), ("f",), ("g", "h")))),
        lindblad=draw(st.integers(0, 2)),
        real_hamiltonian=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )
