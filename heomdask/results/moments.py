"""Mean and spread of many numbers, gathered block by block.

Takes: blocks of values and which of them count.
Gives: `Moments`, which are merged (Chan, Golub and LeVeque 1979): the sums of squares are those of
    deviations from the mean, so that nothing cancels, and every value is read once.
Next file: `dataset.py`, whose `mean` goes through a store with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Moments:
    """Of values along their first axis, each place by itself.

    Attributes
    ----------
    count : values that count; has the dimensions of `mean`, those of length 1 stand for all.
    mean : 0 where nothing counts.
    squares : sum of the squared deviations from `mean`.
    """

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any], good: NDArray[np.bool_]) -> Moments:
        """Of one block.

        Parameters
        ----------
        values : (n, ...) real or complex; see `real_parts`.
        good : which count, of the first dimensions of `values`.
        """
        values = real_parts(values)
        counted = good.reshape(good.shape + (1,) * (values.ndim - good.ndim))
        count = counted.sum(axis=0)
        kept = np.where(counted, values, 0.0)
        mean = kept.sum(axis=0) / np.maximum(count, 1)
        kept -= mean
        np.copyto(kept, 0.0, where=~counted)
        return cls(count, mean, np.square(kept, out=kept).sum(axis=0))

    def merge(self, other: Moments) -> Moments:
        """Of the values of both."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        shift = other.mean - self.mean
        return Moments(
            count,
            self.mean + share * shift,
            self.squares + other.squares + share * self.count * shift**2,
        )

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Of the mean: sqrt(squares / (n (n - 1))); NaN for n < 2."""
        n = np.where(self.count > 1, self.count, np.nan)
        return np.asarray(np.sqrt(self.squares / (n * (n - 1))))


def real_parts(values: NDArray[Any]) -> NDArray[np.float64]:
    """Complex numbers as pairs of real ones, along a new last axis; real ones as they are."""
    if values.dtype.kind != "c":
        return values
    return np.ascontiguousarray(values).view(np.float64).reshape(*values.shape, 2)


def from_parts(parts: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The way back: numbers of the kind of `dtype`."""
    return parts[..., 0] + 1j * parts[..., 1] if dtype.kind == "c" else parts
