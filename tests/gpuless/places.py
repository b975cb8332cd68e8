"""A state of 35 GB, of which only the last blocks are touched: places need 64 bits there."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from gpuless.emulator import Compiler

from heomdask._cuda.device import number_macros, source
from heomdask.backends.cupy_ import block_shape


def last_places(compiler: Compiler) -> bool:
    """Whether the kernel is right at the end of 61 million ADOs of 36 elements."""
    d, members, n = 6, 1, 61_000_000
    macros = (
        *number_macros(np.dtype(np.complex128)), ("HD_LEVELS", d), ("HD_MIXES", 0), ("HD_NAMED", 0),
        ("HD_WIDE_SUM", 0),
    )  # fmt: skip
    library = compiler.build(source("apply"), tuple(f"-D{name}={value}" for name, value in macros))
    maps = [
        mmap.mmap(-1, n * d * d * 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
        for _ in range(2)  # MAP_NORESERVE
    ]
    x, out = (np.frombuffer(m, np.complex128).reshape(n, d * d) for m in maps)
    x[-50:] = np.arange(50 * d * d).reshape(50, -1)
    weights = np.array([[0], [2], [0], [0]], dtype=np.complex128)
    ados, lanes = block_shape(d, members)
    blocks = -(-n // ados)
    pointers = [x, out, None, weights, *[None] * 4]
    arguments = [ctypes.c_void_p(a.ctypes.data if a is not None else 0) for a in pointers]
    arguments += [ctypes.c_longlong(1), *[ctypes.c_void_p(0)] * 3]
    arguments += [ctypes.c_longlong(v) for v in (0, members, 0, n, ados, lanes)]
    library.launch("apply", arguments, 8, 256, first_block=blocks - 8)
    return bool(np.array_equal(out[-50:], 2 * x[-50:]))
