"""Real modes for fits: exponentials closed under conjugation, each pair one real block.

Takes: rates found by `aaa.py` or `esprit.py`.
Gives: their functions of time and of frequency, for linear fits, and the `Exponents`.
Next file: `report.py`.

A pair g +- iw is the block of rates ((g, -w), (w, g)), read through its first mode: the functions
exp(-gt) cos(wt) and exp(-gt) sin(wt). Rates and links are real whatever the complex coefficients,
so the hierarchy of a fitted bath keeps its real form, and a single complex exponent needs no
more modes than with the partner that it would need in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from heomdask.model.exponents import Exponents

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
_Array = TypeVar("_Array", Floats, Complexes)

_REAL = 1e-9  # an imaginary part below this, relatively, is rounding


def least_squares(columns: Floats, values: Floats) -> Floats:
    """The x of least |columns x - values|; columns are scaled to one size: rates span decades."""
    size = np.linalg.norm(columns, axis=0)
    solution = np.linalg.lstsq(columns / size, values, rcond=None)[0]
    return np.asarray((solution.T / size).T)


@dataclass(frozen=True, eq=False)
class RealModes:
    """Rates of real modes: decays (n,), then pairs decay +- i frequency (m,)."""

    decays: Floats
    pair_decays: Floats
    pair_frequencies: Floats

    @classmethod
    def of(cls, rates: Complexes) -> RealModes:
        """From rates that are real or come in conjugate pairs; fast ones last."""
        ordered = rates[np.argsort(np.abs(rates), kind="stable")]
        real = np.abs(ordered.imag) <= _REAL * np.abs(ordered)
        pairs = ordered[~real & (ordered.imag > 0)]
        return cls(ordered[real].real.copy(), pairs.real.copy(), pairs.imag.copy())

    @property
    def n_modes(self) -> int:
        return len(self.decays) + 2 * len(self.pair_decays)

    def in_time(self, t: Floats) -> Floats:
        """The modes' functions of time, (T, K); columns in the order of the modes."""
        decays = np.exp(-np.multiply.outer(t, self.decays))
        envelope = np.exp(-np.multiply.outer(t, self.pair_decays))
        phase = np.multiply.outer(t, self.pair_frequencies)
        return self._join(decays, envelope * np.cos(phase), envelope * np.sin(phase))

    def in_frequency(self, w: Floats) -> Complexes:
        """Their half-sided Fourier transforms int_0^inf dt exp(iwt) ..., (W, K)."""
        s = np.asarray(-1j * w, dtype=np.complex128)[:, None]
        shifted = s + self.pair_decays
        norm = shifted**2 + self.pair_frequencies**2
        return self._join(1 / (s + self.decays), shifted / norm, self.pair_frequencies / norm)

    def exponents(self, c: Complexes) -> Exponents:
        """C(t) = in_time(t) @ c as modes of a hierarchy."""
        n, m = len(self.decays), len(self.pair_decays)
        lateral = []
        for k, frequency in enumerate(self.pair_frequencies):
            first = n + 2 * k
            lateral += [(first, first + 1, -frequency), (first + 1, first, frequency)]
        return Exponents(
            gamma=np.concatenate([self.decays, np.repeat(self.pair_decays, 2)]),
            c=c,
            read=np.concatenate([np.ones(n), np.tile([1.0, 0.0], m)]),
            lateral=lateral,
        )

    @staticmethod
    def _join(single: _Array, first: _Array, second: _Array) -> _Array:
        pairs = np.stack([first, second], axis=2).reshape(len(single), -1)
        return np.concatenate([single, pairs], axis=1)
