"""Intel's Math Kernel Library by ctypes: two kinds of matrices, and how many threads they take.

Takes: the shared library of the package `mkl`, or of a conda environment; nothing is compiled.
Gives: `load`, whose `Library` makes `Factor`s: a sparse matrix, inspected once, or a dense block.
Next file: `backends/mkl.py`, which makes plans of them.

**Layers.** MKL chooses its threads and the width of its integers once in a process. Threads are
those of GNU's OpenMP wherever that is installed: the compiled kernels of heomdask use it too, so
there is one pool of threads. Intel's own OpenMP offers the entry points of GNU's to the whole
process, and kernels loaded after it would run on it. Integers have 32 bits: an index takes half
the memory traffic. If something else has put MKL to work before, its choice of threads stays.

**Threads** are set around each use, for the calling thread only.
"""

from __future__ import annotations

import contextlib
import ctypes as ct
import importlib.metadata
import re
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from heomdask.backends.host import aligned
from heomdask.errors import TooLarge
from heomdask.plan import AnyArray

MOST = 2**31 - 1  # elements, rows and columns of a matrix
_LAYERS = {0: "Intel OpenMP", 1: "sequential", 3: "GNU OpenMP", 4: "TBB"}
_INTEL, _GNU = 0, 3
_WIDE_INTEGERS = 1  # of an interface layer
_STATUS = {
    1: "a matrix is not initialized", 2: "there is not enough memory", 3: "a value is not valid",
    4: "an application failed", 5: "there was an internal error", 6: "this is not supported",
}  # fmt: skip
_NO_MEMORY = 2
_FROM_ZERO, _AS_IT_IS = 0, 10  # base of the indices; not transposed
_NO_COPIES = 80  # the inspector may balance the work, but not store the matrix again
_MANY = 1_000_000  # applications that the inspector may count on


class _Complex64(ct.Structure):
    _fields_ = (("real", ct.c_float), ("imag", ct.c_float))


class _Complex128(ct.Structure):
    _fields_ = (("real", ct.c_double), ("imag", ct.c_double))


class _Description(ct.Structure):
    """What is known of a sparse matrix: a general one."""

    _fields_ = (("kind", ct.c_int), ("triangle", ct.c_int), ("diagonal", ct.c_int))


class _Version(ct.Structure):
    _fields_ = (
        *((part, ct.c_int) for part in ("major", "minor", "update")),
        *((part, ct.c_char_p) for part in ("status", "build", "processor", "platform")),
    )


_GENERAL = _Description(20, 0, 0)
_KINDS: dict[str, tuple[str, Any]] = {
    "float32": ("s", ct.c_float), "float64": ("d", ct.c_double),
    "complex64": ("c", _Complex64), "complex128": ("z", _Complex128),
}  # fmt: skip


class Factor(Protocol):
    """A matrix that is applied to one member at a time."""

    @property
    def nbytes(self) -> int: ...

    def multiply(self, a: complex, x: AnyArray, c: complex, y: AnyArray) -> None:
        """``y <- a A x + c y``; with c = 0, y may hold anything before."""
        ...


class SparseFactor:
    """A CSR matrix in the hands of MKL, which lets go of it when this object dies."""

    def __init__(self, dll: ct.CDLL, matrix: sp.csr_array, dtype: np.dtype[Any]) -> None:
        if max(*matrix.shape, matrix.nnz) > MOST:
            raise TooLarge(
                "The backend 'mkl' has 32-bit indices, and this hierarchy needs a matrix of "
                f"{matrix.nnz:,} elements; use backend='native' or 'numpy', or lower `depth`."
            )
        letter, self._number = _KINDS[dtype.name]
        index = np.dtype(np.int32)
        self._arrays = values, columns, starts = (
            _copied(matrix.data, dtype), _copied(matrix.indices, index),
            _copied(matrix.indptr, index),
        )  # fmt: skip
        begin, end = _address(starts), ct.c_void_p(starts.ctypes.data + index.itemsize)
        self._multiply = dll[f"mkl_sparse_{letter}_mv"]
        self._handle = handle = ct.c_void_p()
        _check(
            dll[f"mkl_sparse_{letter}_create_csr"](
                ct.byref(handle), _FROM_ZERO, *matrix.shape, begin, end, _address(columns),
                _address(values),
            )
        )  # fmt: skip
        weakref.finalize(self, dll.mkl_sparse_destroy, handle)
        _check(dll.mkl_sparse_set_mv_hint(handle, _AS_IT_IS, _GENERAL, _MANY))
        _check(dll.mkl_sparse_set_memory_hint(handle, _NO_COPIES))
        _check(dll.mkl_sparse_optimize(handle))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    def multiply(self, a: complex, x: AnyArray, c: complex, y: AnyArray) -> None:
        alpha, beta = (_scalar(self._number, value) for value in (a, c))
        _check(
            self._multiply(_AS_IT_IS, alpha, self._handle, _GENERAL, _address(x), beta, _address(y))
        )


class DenseFactor:
    """One small matrix that acts on each of `count` pieces of a vector."""

    def __init__(self, dll: ct.CDLL, block: AnyArray, count: int, dtype: np.dtype[Any]) -> None:
        letter, self._number = _KINDS[dtype.name]
        self._multiply = dll[f"{letter}gemm_"]
        self._block = _copied(block.T, dtype)  # by columns
        self._size, self._count = ct.c_int(len(block)), ct.c_int(count)

    @property
    def nbytes(self) -> int:
        return self._block.nbytes

    def multiply(self, a: complex, x: AnyArray, c: complex, y: AnyArray) -> None:
        weights = [ct.byref(_scalar(self._number, value)) for value in (a, c)]
        size, count = ct.byref(self._size), ct.byref(self._count)
        self._multiply(
            b"N", b"N", size, count, size, weights[0], _address(self._block), size, _address(x),
            size, weights[1], _address(y), size,
        )  # fmt: skip


class Library:
    """MKL as it is loaded here.

    Attributes
    ----------
    version : of the library.
    threading : the layer that is in use, in words.
    isa : "avx512", "avx2" and the like, or "generic": the branch that MKL takes here.
    """

    def __init__(self, path: Path | str) -> None:
        self._dll = dll = ct.CDLL(str(path))
        if dll.MKL_Set_Interface_Layer(0) & _WIDE_INTEGERS:
            raise ImportError("it is at work in this process already, with 64-bit integers")
        layer = dll.MKL_Set_Threading_Layer(_GNU if _has_gnu() else _INTEL)
        self.threading = _LAYERS.get(layer, f"threading layer {layer}")
        facts, text = _Version(), ct.create_string_buffer(256)
        dll.MKL_Get_Version(ct.byref(facts))
        branch = re.search(r"(AVX|SSE)[-\w.]*", facts.processor.decode())
        self.isa = branch[0].lower().replace("-", "") if branch else "generic"
        dll.MKL_Get_Version_String(text, len(text))
        version = re.search(r"Version ([\d.]+)", text.value.decode())
        self.version = version[1] if version else text.value.decode()

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Within, MKL takes so many threads where it is called from this one."""
        before = self._dll.MKL_Set_Num_Threads_Local(count)
        try:
            yield
        finally:
            self._dll.MKL_Set_Num_Threads_Local(before)

    def most_threads(self, wanted: int) -> int:
        """How many threads MKL takes if it may have `wanted`."""
        with self.threads(wanted):
            return int(self._dll.MKL_Get_Max_Threads())

    def sparse(self, matrix: sp.csr_array, dtype: np.dtype[Any]) -> SparseFactor:
        return SparseFactor(self._dll, matrix, dtype)

    def dense(self, block: AnyArray, count: int, dtype: np.dtype[Any]) -> DenseFactor:
        return DenseFactor(self._dll, block, count, dtype)


def load() -> Library:
    """MKL where it is installed.

    Raises
    ------
    ImportError
        If it is not, or cannot be used.
    """
    path = next(_installed(), None)
    if path is None:
        raise ImportError("the library libmkl_rt was not found")
    try:
        return Library(path)
    except OSError as error:
        raise ImportError(str(error)) from error


def _installed() -> Iterator[Path]:
    """Where the package `mkl` says that its library is, then what an environment of conda has."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("mkl") or ():
            if file.name.startswith("libmkl_rt.so"):
                yield Path(str(file.locate()))
    yield from sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))


def _has_gnu() -> bool:
    """Whether GNU's OpenMP is installed: MKL ends the process if it then finds that it is not."""
    try:
        ct.CDLL("libgomp.so.1")
    except OSError:
        return False
    return True


def _check(status: int) -> None:
    if status != 0:
        text = f"MKL cannot go on: {_STATUS.get(status, f'status {status}')}"
        raise MemoryError(text) if status == _NO_MEMORY else RuntimeError(text)


def _copied(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """A contiguous copy on cache lines."""
    copy = aligned(array.shape, dtype)
    copy[...] = array
    return copy


def _address(array: AnyArray) -> ct.c_void_p:
    return ct.c_void_p(array.ctypes.data)


def _scalar(number: Any, value: complex) -> Any:
    """A number as the routines of one kind take it."""
    if issubclass(number, ct.Structure):
        return number(value.real, value.imag)
    return number(value)
