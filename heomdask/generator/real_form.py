"""Hermitian matrices as real ones: Z = Re X + Im X.

Takes: Hermitian states, or the packed real ones.
Gives: `pack` and `unpack`.
Next file: `generator/scaling.py`.

Re X is symmetric and Im X antisymmetric, so Z keeps both: X = (Z + Z^T)/2 + i (Z - Z^T)/2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pack(rho: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Hermitian matrices (n, d, d) or (n, d, d, M), matrix axes 1 and 2, to real Z."""
    packed: NDArray[np.float64] = rho.real + rho.imag
    return packed


def unpack(packed: NDArray[np.float64]) -> NDArray[np.complex128]:
    """The Hermitian matrices of real Z, matrix axes 1 and 2."""
    turned = packed.swapaxes(1, 2)
    rho = np.empty(packed.shape, dtype=np.complex128)
    rho.real = (packed + turned) / 2
    rho.imag = (packed - turned) / 2
    return rho
