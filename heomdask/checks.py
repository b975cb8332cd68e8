"""Argument checks: the only place where argument errors are worded.

Takes: an argument's name and value.
Gives: the value in canonical form, or an `InputError` with the name, what was given and what
is allowed.
Next file: `units.py`.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.errors import InputError

SMALLEST_TOLERANCE = 1e-14  # 45 roundings of a sum of terms: less than one segment makes
HERMITIAN_TOLERANCE = 1e-10  # relative to the largest element


def refuse(name: str, allowed: str, given: object, remedy: str = "") -> InputError:
    """The error for a wrong argument: `name` must be ..., got ...; remedy."""
    tail = f"; {remedy}" if remedy else ""
    return InputError(f"`{name}` must be {allowed}, got {given!r}{tail}.")


def real_number(
    name: str, value: object, *, low: float | None = None, strict: bool = False
) -> float:
    """A finite real number, at least `low` (above it if `strict`)."""
    allowed = "a finite real number"
    if low is not None:
        allowed += f" {'above' if strict else 'of at least'} {low:g}"
    is_number = isinstance(value, numbers.Real) or (
        isinstance(value, np.ndarray) and value.ndim == 0 and np.isrealobj(value)
    )
    if isinstance(value, bool) or not is_number:
        raise refuse(name, allowed, value)
    number = float(value)  # type: ignore[arg-type]  # checked above: a real number
    below = low is not None and (number <= low if strict else number < low)
    if not math.isfinite(number) or below:
        raise refuse(name, allowed, value)
    return number


def tolerance(name: str, value: object) -> float:
    """A relative tolerance that double precision can meet: rounding alone makes about 1e-14."""
    try:
        return real_number(name, value, low=SMALLEST_TOLERANCE)
    except InputError as error:
        raise InputError(f"{str(error)[:-1]}; rounding alone is about that large.") from None


def whole_number(name: str, value: object, *, low: int = 0) -> int:
    """An integer of at least `low`; 3.0 is not one, nor is True."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < low:
        raise refuse(name, f"a whole number of at least {low}", value)
    return int(value)


def square_matrix(name: str, value: Any, d: int | None = None) -> NDArray[np.complex128]:
    """A finite complex (d, d) matrix; a QuTiP operator is taken through its `full()`."""
    raw = value.full() if hasattr(value, "full") and callable(value.full) else value
    try:
        array = np.array(raw, dtype=np.complex128)
    except (TypeError, ValueError):
        raise refuse(name, "a square matrix of numbers", type(value).__name__) from None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise InputError(f"`{name}` must be a square matrix, got the shape {array.shape}.")
    if d is not None and array.shape[0] != d:
        raise InputError(
            f"`{name}` must be {d} x {d} like the Hamiltonian, got the shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise InputError(f"`{name}` must be finite, got NaN or infinity in it.")
    return array


def hermitian(name: str, value: Any, d: int | None = None) -> NDArray[np.complex128]:
    """A finite Hermitian (d, d) matrix, made exactly Hermitian."""
    array = square_matrix(name, value, d)
    adjoint = array.conj().T
    defect = np.abs(array - adjoint).max()
    if defect == 0:
        return array
    if defect > HERMITIAN_TOLERANCE * np.abs(array).max():
        raise InputError(
            f"`{name}` must be Hermitian, got a matrix that differs from its conjugate transpose "
            f"by {defect:.3g}; check the off-diagonal elements, or pass ({name} + {name}^+)/2."
        )
    return (array + adjoint) / 2


def vector(
    name: str, value: Any, *, length: int | None = None, like: str = ""
) -> NDArray[np.complex128]:
    """A finite complex (n,) array, of the `length` of the argument `like` if given."""
    try:
        array = np.array(value, dtype=np.complex128)
    except (TypeError, ValueError):
        raise refuse(name, "a list of numbers", value) from None
    if array.ndim != 1:
        raise InputError(f"`{name}` must be a flat list of numbers, got the shape {array.shape}.")
    if length is not None and len(array) != length:
        raise InputError(f"`{name}` must be as long as `{like}` ({length}), got {len(array)}.")
    if not np.all(np.isfinite(array)):
        raise InputError(f"`{name}` must be finite, got NaN or infinity in it.")
    return array


def real_vector(
    name: str, value: Any, *, length: int | None = None, like: str = ""
) -> NDArray[np.float64]:
    """A finite real (n,) array, of the `length` of the argument `like` if given."""
    array = vector(name, value, length=length, like=like)
    if np.any(array.imag != 0):
        raise InputError(f"`{name}` must be real, got complex numbers in it.")
    return np.array(array.real)


def times(name: str, value: Any) -> NDArray[np.float64]:
    """A non-empty, finite, ascending (repeats allowed) array of times."""
    try:
        array = np.atleast_1d(np.array(value, dtype=np.float64))
    except (TypeError, ValueError):
        raise refuse(name, "an ascending list of times", value) from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(
            f"`{name}` must be a non-empty list of times, got the shape {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise InputError(f"`{name}` must be finite, got NaN or infinity in it.")
    if np.any(np.diff(array) < 0):
        at = int(np.flatnonzero(np.diff(array) < 0)[0])
        raise InputError(
            f"`{name}` must ascend, got {array[at]:g} followed by {array[at + 1]:g}; sort it."
        )
    return array


def one_of(name: str, value: object, other: str, other_value: object) -> None:
    """Exactly one of two arguments is given (is not None)."""
    if (value is None) == (other_value is None):
        both = "none" if value is None else "both"
        raise InputError(f"One of `{name}` and `{other}` must be given, got {both}.")


def sequence(name: str, value: Any) -> list[Any]:
    """The items of a list or tuple (or of the first axis of an array)."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise refuse(name, "a list", type(value).__name__, "put a single item in brackets")
    return list(value)


def choices(name: str, value: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Any of a few words; a single one need not stand in a list."""
    words = [value] if isinstance(value, str) else sequence(name, value)
    return tuple(choice(name, word, allowed) for word in words)


def choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise refuse(name, "one of " + ", ".join(repr(a) for a in allowed), value)
    return value
