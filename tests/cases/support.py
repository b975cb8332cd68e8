"""What the cases share: their numbers, small operators, analytic dephasing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"

SX = np.array([[0.0, 1.0], [1.0, 0.0]])
SY = np.array([[0.0, -1.0j], [1.0j, 0.0]])
SZ = np.diag([1.0, -1.0])
PLUS = np.full((2, 2), 0.5)
UP = np.diag([1.0, 0.0])


def load(name: str) -> Any:
    """The numbers of one case, by the beginning of its file name."""
    (path,) = DATA.glob(f"{name}*.json")
    return json.loads(path.read_text())


def cplx(pairs: Any) -> Any:
    """[[re, im], ...] or {"re": ..., "im": ...} as complex numbers."""
    if isinstance(pairs, dict):
        return np.array(pairs["re"]) + 1j * np.array(pairs["im"])
    array = np.array(pairs, dtype=float)
    return array[..., 0] + 1j * array[..., 1]


def projector(d: int, site: int) -> Any:
    """|site><site|."""
    return np.diag(np.eye(d)[site])


def populations(rho: Any) -> Any:
    """(T, d) from (T, d, d)."""
    return np.einsum("tii->ti", rho).real
