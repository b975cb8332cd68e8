"""Time-dependent parts of the Hamiltonian: f(t) H1, and pulse shapes from samples.

Takes: a function of time and an operator.
Gives: `Drive`, and `Samples`, a function made of values on a time grid.
Next file: `problem.py`, which turns drives into real functions times Hermitian operators.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heomdask import checks
from heomdask.errors import InputError

Pulse = Callable[[float], Any]  # real or complex
RealPulse = Callable[[float], float]
ComplexArray = NDArray[np.complex128]


@dataclass(frozen=True, eq=False, init=False)
class Drive:
    """A term f(t) H1 of the Hamiltonian; for a complex f, f(t) H1 + h.c.

    Parameters
    ----------
    f : callable
        Of the time (a float, in internal units) to a real or complex number. Whether it is
        complex is decided once, by its value at t = 0.
    H1 : (d, d) array
        Operator, in angular frequency; Hermitian where f is real.
    breakpoints : sequence of float
        Times which no step crosses: edges and kinks of f. `Samples` bring their own.

    Notes
    -----
    Before a run f is sampled at 4096 equal intervals of the run and at 8 per output interval;
    ``stats["scan_resolution"]`` of a solution is the longest time between two samples. Pulses
    and jumps that samples see are resolved. A pulse that lies between two samples is not seen,
    unless breakpoints at both its ends are declared. A drive that is 0 at all samples gives a
    `HeomdaskWarning`.
    """

    f: Pulse
    H1: ComplexArray
    breakpoints: tuple[float, ...]
    is_complex: bool

    def __init__(self, f: Pulse, H1: Any, breakpoints: Sequence[float] = ()) -> None:
        is_complex = isinstance(_probe("f", f), complex)
        operator = checks.square_matrix("H1", H1) if is_complex else checks.hermitian("H1", H1)
        object.__setattr__(self, "f", f)
        operator.flags.writeable = False
        object.__setattr__(self, "H1", operator)
        object.__setattr__(self, "breakpoints", breakpoints_of(f, breakpoints))
        object.__setattr__(self, "is_complex", is_complex)

    def hermitian_parts(self) -> list[tuple[str, RealPulse, ComplexArray]]:
        """(suffix, real function, Hermitian operator) of each part.

        A complex f H1 + h.c. is Re f (H1 + H1^+) + Im f i (H1 - H1^+).
        """
        if not self.is_complex:
            return [("", RealValued(self.f), self.H1)]
        adjoint = self.H1.conj().T
        parts: list[tuple[str, RealPulse, ComplexArray]] = [
            (".re", RealPart(self.f), self.H1 + adjoint),
            (".im", ImaginaryPart(self.f), 1j * (self.H1 - adjoint)),
        ]
        return [part for part in parts if np.any(part[2] != 0)]


@dataclass(frozen=True)
class RealValued:
    """f(t) as a float, of an f that is real at t = 0 and has to stay so."""

    f: Pulse

    def __call__(self, t: float) -> float:
        value = self.f(t)
        if np.imag(value) != 0:
            raise checks.refuse(
                "f", "real at all times, or complex already at t = 0", value,
                "let it return a complex number at all times",
            )  # fmt: skip
        return float(np.real(value))


@dataclass(frozen=True)
class RealPart:
    """Re f(t) as a float."""

    f: Pulse

    def __call__(self, t: float) -> float:
        return float(np.real(self.f(t)))


@dataclass(frozen=True)
class ImaginaryPart:
    """Im f(t) as a float."""

    f: Pulse

    def __call__(self, t: float) -> float:
        return float(np.imag(self.f(t)))


@dataclass(frozen=True)
class Squared:
    """f(t)^2 of a real f."""

    f: RealPulse

    def __call__(self, t: float) -> float:
        return float(self.f(t)) ** 2


@dataclass(frozen=True, eq=False, init=False)
class Samples:
    """A pulse shape given by values on a time grid.

    Parameters
    ----------
    t : (n,) float
        Ascending times, without repeats.
    values : (n,) float or complex
        The values there.
    kind : {"step", "linear", "cubic"}
        "step": values[i] from t[i] until just before t[i + 1]; "linear": straight lines;
        "cubic": the not-a-knot cubic spline, which overshoots at edges.

    Notes
    -----
    Before t[0] and after t[-1] the first and the last value are held.
    """

    t: NDArray[np.float64]
    values: ComplexArray | NDArray[np.float64]
    kind: str

    def __init__(
        self,
        t: ArrayLike,
        values: ArrayLike,
        kind: Literal["step", "linear", "cubic"] = "linear",
    ) -> None:
        grid = checks.times("t", t)
        if np.any(np.diff(grid) == 0):
            raise InputError("`t` must ascend without repeats, got one time twice.")
        array = checks.vector("values", values, length=len(grid), like="t")
        real = not np.iscomplexobj(np.asarray(values))
        object.__setattr__(self, "t", grid)
        object.__setattr__(self, "values", array.real.copy() if real else array)
        object.__setattr__(self, "kind", checks.choice("kind", kind, ("step", "linear", "cubic")))
        spline = None
        if kind == "cubic":
            if len(grid) < 4:
                raise InputError(f"`t` must have at least 4 times for a cubic, got {len(grid)}.")
            from scipy.interpolate import CubicSpline  # half a second of every start otherwise

            spline = CubicSpline(grid, self.values)
        object.__setattr__(self, "_spline", spline)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Where the value jumps ("step"), the slope jumps ("linear"), or the spline ends."""
        if self.kind == "step":
            return tuple(self.t[1:][np.diff(self.values) != 0].tolist())
        if self.kind == "linear":
            slopes = np.concatenate([[0], np.diff(self.values) / np.diff(self.t), [0]])
            return tuple(self.t[np.diff(slopes) != 0].tolist())
        return (float(self.t[0]), float(self.t[-1]))

    def __call__(self, t: float) -> Any:
        if self.kind == "linear":
            return np.interp(t, self.t, self.values).item()
        if self.kind == "step":
            at = int(np.searchsorted(self.t, t, side="right")) - 1
            return self.values[max(at, 0)].item()
        inside = min(max(t, self.t[0]), self.t[-1])
        spline: Any = vars(self)["_spline"]
        return spline(inside).item()


def breakpoints_of(f: Pulse, given: Sequence[float]) -> tuple[float, ...]:
    """The given breakpoints and those that `f` has itself, ascending, each once."""
    own = getattr(f, "breakpoints", ())
    both = [checks.real_number("breakpoints", b) for b in (*given, *own)]
    return tuple(sorted(set(both)))


def real_pulse(name: str, f: Pulse) -> RealPulse:
    """A real function of time, probed at t = 0."""
    if isinstance(_probe(name, f), complex):
        raise checks.refuse(name, "a real function of time", f(0.0))
    return RealValued(f)


def _probe(name: str, f: Pulse) -> float | complex:
    """f(0), checked to be a finite number."""
    if not callable(f):
        raise checks.refuse(
            name, "a function of time", f, "for constant terms add the operator to H"
        )
    try:
        value = f(0.0)
    except Exception as error:
        raise InputError(
            f"`{name}` must be a function of one float, the time, but {name}(0.0) "
            f"raised {type(error).__name__}: {error}."
        ) from error
    is_array = isinstance(value, (np.ndarray, np.generic))
    number = value.item() if is_array and value.size == 1 else value
    if isinstance(number, bool) or not isinstance(number, numbers.Complex):
        raise checks.refuse(name, "a function of time that returns one number", value)
    if not np.isfinite(complex(number)):
        raise checks.refuse(name, "a function of time with finite values", value)
    return float(number) if isinstance(number, numbers.Real) else complex(number)
