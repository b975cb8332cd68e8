"""States as plain arrays in the memory of the host, and all that needs no generator.

Takes: compiled plans of the backends that keep states so.
Gives: `HostBackend`, the base that lacks only `info`, `compile` and `apply`; memory that is
`aligned`, or `untouched` by any thread.
Next file: `backends/numpy_.py`, the readable definition of `apply`.

A state is an array (M, n, d, d): each member is computed by itself, so its bits cannot depend on
its companions. Every member begins on a cache line, so that they do not depend on its place either.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import BackendBase, Compiled, Selection, Weight
from heomdask.plan import AnyArray

ALIGNMENT = 64  # bytes of a cache line, and of the widest register


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """An array of zeros that begins on a cache line."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def untouched(shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """An array of zeros in pages that no thread has written to, where the system can give them.

    The C library would hand out what another array left, near the thread that wrote that.
    """
    if sys.platform != "linux":
        return aligned(shape, dtype)
    pages = mmap.mmap(
        -1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    with contextlib.suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(shape)


def numbers(weight: Weight, members: int) -> list[Any]:
    """A weight as one Python number per member."""
    listed: Any = np.asarray(weight).tolist()
    return listed if isinstance(listed, list) else [listed] * members


def weighted(weight: Any, array: AnyArray) -> AnyArray:
    """``weight * array`` of one member; a weight of 0 gives 0 even of NaN."""
    return np.zeros_like(array) if weight == 0 else weight * array


class HostBackend(BackendBase):
    """Memory, linear combinations, reductions and chosen elements, in numpy."""

    def empty(self, compiled: Compiled) -> AnyArray:
        p, dtype = compiled.plan, compiled.dtype
        length, line = p.n_cols * p.d * p.d, ALIGNMENT // dtype.itemsize
        room = aligned((p.n_members, -(-length // line) * line), dtype)
        return room[:, :length].reshape(p.n_members, p.n_cols, p.d, p.d)

    def put(self, compiled: Compiled, host: AnyArray) -> AnyArray:
        x = self.empty(compiled)
        x[...] = host if host.ndim == 3 else np.moveaxis(host, -1, 0)
        return x

    def fetch(self, compiled: Compiled, x: AnyArray) -> AnyArray:
        return np.moveaxis(x, 0, -1).copy()

    def combine(
        self,
        compiled: Compiled,
        out: AnyArray,
        weights: Sequence[Weight],
        arrays: Sequence[AnyArray],
    ) -> None:
        total = np.zeros_like(out)
        with np.errstate(all="ignore"):
            for weight, array in zip(weights, arrays, strict=True):
                for m, number in enumerate(numbers(weight, len(out))):
                    total[m] += weighted(number, array[m])
        out[...] = total

    def dots(self, compiled: Compiled, xs: Sequence[AnyArray], y: AnyArray) -> AnyArray:
        n = compiled.plan.n_rows
        result: AnyArray = np.array(
            [[np.sum(np.conj(xm[:n]) * ym[:n]) for xm, ym in zip(x, y, strict=True)] for x in xs]
        )
        return result

    def error_norm(
        self,
        compiled: Compiled,
        error: AnyArray,
        x: AnyArray,
        y: AnyArray,
        atol: float,
        rtol: float,
    ) -> NDArray[np.float64]:
        n = compiled.plan.n_rows
        with np.errstate(all="ignore"):
            scaled = np.abs(error[:, :n])
            if rtol == 0:
                worst = np.max(scaled, axis=(1, 2, 3)) / atol
            else:
                scaled /= atol + rtol * np.maximum(np.abs(x[:, :n]), np.abs(y[:, :n]))
                worst = np.max(scaled, axis=(1, 2, 3))
        return np.asarray(worst, dtype=np.float64)

    def pack(self, compiled: Compiled, x: AnyArray, selection: Selection) -> AnyArray:
        return x[:, selection.ado, selection.row, selection.col].T.copy()

    def unpack(
        self, compiled: Compiled, buffer: AnyArray, selection: Selection, x: AnyArray
    ) -> None:
        x[:, selection.ado, selection.row, selection.col] = buffer.T
