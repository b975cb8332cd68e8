"""Parts together pass the suite, however the ADOs lie on them.

All of it that is about whole plans: a part has no parts of its own.
"""

from __future__ import annotations

import numpy as np

from heomdask.backends.native import NativeBackend
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.testing.conformance import WholeConformance
from heomdask.testing.partitioned import Together


def scattered(n: int) -> np.ndarray:
    """Three parts, at random."""
    return np.random.default_rng(n).integers(3, size=n)


def blocks(n: int) -> np.ndarray:
    """Four parts: the first of one ADO, the second of none."""
    return np.where(np.arange(n) == 0, 0, 2 + (np.arange(n) > n // 2))


class TestPartitionedNumpy(WholeConformance):
    def backend(self) -> Together:
        return Together([NumpyBackend() for _ in range(3)], scattered)


class TestPartitionedNative(WholeConformance):
    def backend(self) -> Together:
        return Together([NativeBackend(threads=1) for _ in range(4)], blocks)

    def ensemble_backend(self) -> Together:
        return Together([NativeBackend(threads=1, layout="batch") for _ in range(4)], blocks)
