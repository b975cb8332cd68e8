"""The border to QuTiP: its objects become plain arrays and `Exponents` here, and nowhere else.

Takes: any argument that may be a QuTiP object; recognised by its class's module, so that QuTiP
is never imported.
Gives: `dims`, `bath`, `coupling`: the plain equivalent, or the argument as it was.
Next file: `problem.py`.
"""

from __future__ import annotations

from typing import Any


def dims(value: Any) -> list[Any] | None:
    """Tensor structure of a QuTiP operator, None for anything else."""
    return list(value.dims) if _is_qutip(value) else None


def bath(value: Any) -> Any:
    """A heomdask bath for a QuTiP environment; anything else as it is."""
    return value


def coupling(value: Any) -> tuple[Any, Any] | None:
    """(Q, bath) from a pair or a QuTiP bath, None for anything else."""
    if isinstance(value, tuple) and len(value) == 2:
        return value[0], bath(value[1])
    return None


def _is_qutip(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "qutip"
