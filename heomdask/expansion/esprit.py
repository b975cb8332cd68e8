"""ESPRIT: exponents of any bath from samples of its correlation function.

Takes: a bath that knows C(t), and the number of modes.
Gives: `Exponents` with real blocks.
Next file: `report.py`.

Re C and Im C are two real signals with common rates: their Hankel matrices are put side by side,
the K leading left singular vectors span the space of the K exponentials, and shifting that space
by one sample multiplies each by exp(-gamma dt) (Roy and Kailath). Everything is real, so the rates
come in conjugate pairs; the coefficients are a linear fit. Of a long signal only every s-th row and
column is taken, but the shift stays one sample: a longer one would confuse frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.brief import Brief
from heomdask.errors import InputError
from heomdask.expansion.notices import warn
from heomdask.expansion.real_modes import RealModes, least_squares
from heomdask.expansion.report import warn_of_fit
from heomdask.model.bath import Bath, ThermalBath
from heomdask.model.exponents import Exponents
from heomdask.model.sampled import CorrelationFunction

Floats = NDArray[np.float64]

_SAMPLES = 800  # of a bath's C(t), and rows plus columns of a Hankel matrix
_MOST = 100_000  # points of a grid as fine as the user's samples
_STEPS_PER_TIME = 6  # samples per 1/frequency of the bath's fastest
_FORGOTTEN = 1e-4  # C(t) is followed until it stays below this part of its largest value
_DECADES = 5
_POOR = 0.05  # an error of C(t) above this, relative to its largest value, is warned of


@dataclass(frozen=True)
class ESPRIT(Brief):
    """Fit of C(t) by K exponentials.

    Parameters
    ----------
    K : int
        Number of modes; a complex pair counts as two.
    """

    K: int

    def __post_init__(self) -> None:
        checks.whole_number("K", self.K, low=1)

    def expand(self, bath: Bath) -> Exponents:
        t = _grid(bath)
        if len(t) < 3 * self.K:
            raise InputError(f"`expansion` {self} needs {3 * self.K} samples, got {len(t)}.")
        signal = bath.C(t)
        signals = np.stack([signal.real, signal.imag])
        if not np.any(signals):
            return Exponents(c=np.zeros(self.K), gamma=np.arange(1.0, self.K + 1) / t[-1])
        modes = RealModes.of(_rates(signals, self.K, float(t[1] - t[0])))
        c = least_squares(modes.in_time(t), signals.T)
        exponents = modes.exponents(c[:, 0] + 1j * c[:, 1])
        if isinstance(bath, CorrelationFunction):
            t, signal = bath.t, bath.values
        off = exponents.correlation(t) - signal
        error = float(np.max(np.abs(off)) / np.max(np.abs(signal)))
        if error > _POOR:
            warn(
                f"{self} leaves an error of {error:.1e} of C(t), relative to its largest value, "
                f"for a {type(bath).__name__} bath; raise K, or use hd.AAA(tol)."
            )
        warn_of_fit(bath, exponents, self)
        return exponents

    def finer(self) -> ESPRIT:
        return ESPRIT(self.K + 1)


def _grid(bath: Bath) -> Floats:
    """Equally spaced times until C(t) is forgotten: from 0 and no wider than the user's samples,
    or else from one step after 0.
    """
    if isinstance(bath, CorrelationFunction):
        steps = int(np.ceil(bath.t[-1] / np.min(np.diff(bath.t)) - 1e-6))
        return np.linspace(0.0, bath.t[-1], int(np.clip(steps + 1, _SAMPLES, _MOST)))
    if not isinstance(bath, ThermalBath):
        raise InputError(f"`expansion` ESPRIT needs a bath with C(t), got {type(bath).__name__}.")
    fast = max(bath.frequencies)
    coarse = np.geomspace(1, 10.0**_DECADES, 20 * _DECADES) / (_STEPS_PER_TIME * fast)
    size = np.abs(bath.C(coarse))
    alive = np.flatnonzero(size > _FORGOTTEN * np.max(size))
    end = coarse[alive[-1]] if len(alive) else coarse[-1]
    step = 1 / (_STEPS_PER_TIME * fast)
    count = np.clip(int(end / step), _SAMPLES // 4, _SAMPLES)
    return np.asarray(step * np.arange(1.0, count + 1))


def _rates(signals: Floats, k: int, step: float) -> NDArray[np.complex128]:
    """The K rates common to the rows of `signals`, those that decay."""
    stride = -(-(signals.shape[1] - 1) // _SAMPLES)
    length = (signals.shape[1] - 1) // stride
    now, later = (_hankel(signals[:, first::stride][:, :length]) for first in (0, 1))
    space = np.linalg.svd(np.concatenate([now, later]), full_matrices=False)[0][:, :k]
    shift = np.linalg.lstsq(space[: len(now)], space[len(now) :], rcond=None)[0]
    factors = np.linalg.eigvals(shift).astype(np.complex128)
    factors = factors[(np.abs(factors) < 1) & ~((factors.imag == 0) & (factors.real <= 0))]
    return np.asarray(-np.log(factors) / step)


def _hankel(signals: Floats) -> Floats:
    """The Hankel matrices of all rows of `signals`, side by side."""
    windows = np.lib.stride_tricks.sliding_window_view(signals, signals.shape[1] // 2, axis=1)
    return np.concatenate(list(windows), axis=0).T
