"""Which auxiliary density operators (ADOs) exist: truncations as values.

Takes: a depth, limits or an importance rule from the user.
Gives: `Depth`, `ModeLimits`, `Weighted`, each reduced to one `Bounds` for a number of modes.
Next file: `hierarchy/numbering.py`, which numbers the ADOs within the bounds.

An ADO is a tuple n = (n_1, ..., n_K) of occupation numbers. All truncations have one form,

    sum_k w_k n_k <= budget   and   n_k <= limit_k        (whole numbers w_k >= 1)

which is downward closed: with n, every n - e_k belongs to it, so each link has both its ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.brief import Brief

WEIGHT_RESOLUTION = 64  # `Weighted` rounds its weights to 1/64


@dataclass(frozen=True)
class Bounds:
    """``sum_k weights[k] n_k <= budget`` and ``n_k <= limits[k]``, one entry per mode."""

    weights: tuple[int, ...]
    limits: tuple[int, ...]
    budget: int

    @property
    def n_modes(self) -> int:
        return len(self.weights)

    @functools.cached_property
    def n_ado(self) -> int:
        """How many ADOs there are, counted without listing them, exact at any size."""
        if set(self.weights) == {1} and min(self.limits) >= self.budget:
            return math.comb(self.n_modes + self.budget, self.budget)
        ways = np.ones(self.budget + 1, dtype=object)
        for weight, limit in zip(reversed(self.weights), reversed(self.limits), strict=True):
            _, ways = add_mode(ways, weight, limit)
        return int(ways[-1])

    @property
    def largest(self) -> int:
        """The largest occupation number that occurs."""
        return max(self.top, default=0)

    @property
    def top(self) -> tuple[int, ...]:
        """The largest occupation number of each mode."""
        return tuple(
            min(limit, self.budget // weight)
            for weight, limit in zip(self.weights, self.limits, strict=True)
        )


def add_mode(
    ways: NDArray[np.generic], weight: int, limit: int
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Put one mode in front: how many tuples fit into each remaining budget b = 0 ... B.

    Parameters
    ----------
    ways : (B + 1,), the number of tuples of the modes behind within each budget.

    Returns
    -------
    unlimited : (B + 1,), ``sum over n >= 0 of ways[b - n weight]``.
    limited : the same up to n = limit.
    """
    size = len(ways)
    if weight >= size:
        return ways, ways
    padded = np.zeros(-(-size // weight) * weight, dtype=ways.dtype)
    padded[:size] = ways
    unlimited = np.add.accumulate(padded.reshape(-1, weight), axis=0).ravel()[:size]
    limited = unlimited.copy()
    beyond = (limit + 1) * weight
    if beyond < size:
        limited[beyond:] -= unlimited[: size - beyond]
    return unlimited, limited


class Truncation(Protocol):
    """What decides which ADOs exist."""

    def bounds(self, n_modes: int, rates: Sequence[float] | None = None) -> Bounds:
        """The rule for `n_modes` modes; `rates` (n_modes,) are the real parts of their decay."""
        ...

    def n_ado(self, n_modes: int, rates: Sequence[float] | None = None) -> int:
        """How many ADOs that makes, without listing them."""
        ...


class _Counted(Brief):
    def n_ado(self: Truncation, n_modes: int, rates: Sequence[float] | None = None) -> int:
        """How many ADOs that makes, without listing them."""
        return self.bounds(n_modes, rates).n_ado


@functools.lru_cache(maxsize=256)
def _even_bounds(n_modes: int, depth: int) -> Bounds:
    """One object for all points of a sweep, so that its ADOs are counted once."""
    return Bounds((1,) * n_modes, (depth,) * n_modes, depth)


@dataclass(frozen=True)
class Depth(_Counted):
    """``sum_k n_k <= depth``: binomial(n_modes + depth, depth) ADOs.

    The only truncation that does not notice a linear change of the modes.
    """

    depth: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", checks.whole_number("depth", self.depth))

    def __str__(self) -> str:
        return str(self.depth)

    def bounds(self, n_modes: int, rates: Sequence[float] | None = None) -> Bounds:
        """See `Truncation.bounds`; `rates` do not matter."""
        return _even_bounds(n_modes, self.depth)


@dataclass(frozen=True)
class ModeLimits(_Counted):
    """``sum_k n_k <= depth`` and ``n_k <= limits[k]``, one limit for each mode."""

    depth: int
    limits: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", checks.whole_number("depth", self.depth))
        limits = tuple(checks.whole_number("limits", limit) for limit in self.limits)
        object.__setattr__(self, "limits", limits)

    def bounds(self, n_modes: int, rates: Sequence[float] | None = None) -> Bounds:
        """See `Truncation.bounds`; `rates` do not matter."""
        if len(self.limits) != n_modes:
            raise checks.refuse(
                "limits", f"one whole number for each of the {n_modes} modes", self.limits,
                "the modes are the exponents of all baths, bath by bath",
            )  # fmt: skip
        return Bounds((1,) * n_modes, tuple(min(i, self.depth) for i in self.limits), self.depth)


@dataclass(frozen=True)
class Weighted(_Counted):
    """Fast modes count for more: ``sum_k n_k w_k <= depth``, w_k = (rate_k / slowest)^power.

    rate_k is the real part of the decay rate of mode k, and the slowest one (of those above 0;
    modes that do not decay count as slowest) has weight 1, so it alone reaches `depth`. Weights
    are rounded to 1/64. `power` 0 is `Depth`; with 1 a mode that decays more than `depth` times
    faster than the slowest is left out altogether.
    """

    depth: int
    power: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", checks.whole_number("depth", self.depth))
        object.__setattr__(self, "power", checks.real_number("power", self.power, low=0))

    def bounds(self, n_modes: int, rates: Sequence[float] | None = None) -> Bounds:
        """See `Truncation.bounds`; here `rates` are needed."""
        if rates is None or len(rates) != n_modes:
            raise ValueError(f"a weighted truncation needs the rates of its {n_modes} modes")
        rate = np.asarray(rates, dtype=np.float64)
        slowest = np.min(rate[rate > 0], initial=np.inf)
        ratio = np.maximum(rate / slowest, 1.0) ** self.power
        budget = self.depth * WEIGHT_RESOLUTION
        exact = np.minimum(np.rint(ratio * WEIGHT_RESOLUTION), budget + 1)
        weights = tuple(max(int(w), 1) for w in exact)
        return Bounds(weights, (self.depth,) * n_modes, budget)


def as_truncation(depth: Any) -> Truncation:
    """A truncation as it stands, or `Depth` of a whole number."""
    if isinstance(depth, Depth | ModeLimits | Weighted):
        return depth
    return Depth(depth)
