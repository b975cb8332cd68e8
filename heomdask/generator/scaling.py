"""The scale on which ADOs are stored.

Takes: coefficients of the exponents of every member.
Gives: `mode_scale`, the a_k that enter the links, and `ado_scale`, to undo them.
Next file: `generator/build.py`.

An ADO is stored as ``X_n = rho_n / prod_k (a_k^n_k sqrt(n_k!))``, which keeps all of them at
the size of rho. It turns the links of the unscaled hierarchy into

    up       r_k                 ->  r_k a_k sqrt(n_k + 1)
    down     n_k c_k             ->  sqrt(n_k) c_k / a_k
    lateral  n_k Gamma_kl        ->  sqrt(n_k (n_l + 1)) Gamma_kl a_l / a_k

with ``a_k = sqrt(max(|c_k|, |cbar_k|))``; where both are 0, ``a_k = |gamma_k| / 8``:
links much slower than the decay, which leave the field of values as it is (1 where that is 0
too). Modes tied by lateral rates mix on
equal terms, whichever of their coefficients happens to vanish; they share the largest a_k, so
their a_l / a_k is 1.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.special
from numpy.typing import NDArray

from heomdask.hierarchy.index_set import IndexSet
from heomdask.model.exponents import joined

UNCOUPLED = 0.125  # a_k / |gamma_k| of a mode without coefficients


def mode_scale(
    c: NDArray[np.complex128],
    cbar: NDArray[np.complex128],
    gamma: NDArray[np.complex128],
    tied: Iterable[tuple[int, int]],
) -> NDArray[np.float64]:
    """a_k of every member.

    Parameters
    ----------
    c, cbar : (M, K), in angular frequency squared.
    gamma : (M, K), in angular frequency.
    tied : pairs (k, l) of modes that a lateral rate joins.

    Returns
    -------
    (M, K), in angular frequency.
    """
    size = np.maximum(np.hypot(c.real, c.imag), np.hypot(cbar.real, cbar.imag))
    rate = UNCOUPLED * np.hypot(gamma.real, gamma.imag)
    for group in joined(c.shape[1], tied):
        if len(group) > 1:
            for array in (size, rate):
                array[:, group] = array[:, group].max(axis=1, keepdims=True)
    return np.where(size > 0, np.sqrt(size), np.where(rate > 0, rate, 1.0))


def ado_scale(scale: NDArray[np.float64], index_set: IndexSet) -> NDArray[np.float64]:
    """``prod_k a_k^n_k sqrt(n_k!)`` for each ADO, (N,), from the a_k (K,) of one member."""
    factor = np.ones(index_set.n_ado)
    occupation = np.arange(index_set.bounds.largest + 1)
    root_factorial = np.sqrt(scipy.special.factorial(occupation))
    for a, column in zip(scale, index_set.columns, strict=True):
        factor *= (a**occupation * root_factorial)[column]
    return factor
