"""The axes of a sweep: values with units, zipped axes, explicit tables.

Takes: what the user writes in `over=` and `times=`.
Gives: `Axis` (values as written, and the internal numbers that `build` receives), `Dimension` (one
    dimension of the result: a single axis, zipped axes, or the rows of a table), and `sample_rng`.
Next file: `grid.py`, which makes points of them.
"""

from __future__ import annotations

import dataclasses
import enum
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, units
from heomdask.errors import InputError

Label = float | int | str  # an axis value as the store keeps it

RESERVED = frozenset(
    {"sample", "time", "point", "i", "j", "rng", "rho", "status", "error", "traceback"}
    | {"n_ado", "applications", "bits", "seconds", "convergence_error"}
)


@dataclass(frozen=True, eq=False)
class Axis:
    """Values of one parameter.

    Attributes
    ----------
    values : as given (in `unit`): numbers, or objects, or the names that were given to them.
    unit : the unit's name, or None.
    internal : the same in internal units; what `build` receives.
    named : whether the values are names that were given to objects.
    """

    values: tuple[Any, ...]
    unit: str | None
    internal: tuple[Any, ...]
    named: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def labels(self) -> NDArray[Any]:
        """What stands in the store: float64, or strings (text, or an object's repr)."""
        if all(isinstance(v, (int, float)) for v in self.values):
            return np.array(self.values, dtype=np.float64)
        return np.array([v if isinstance(v, str) else repr(v) for v in self.values], dtype=object)

    @cached_property
    def vector(self) -> NDArray[np.float64]:
        """The internal values, where they are numbers."""
        vector = np.array(self.internal, dtype=np.float64)
        vector.flags.writeable = False
        return vector

    @property
    def shown(self) -> tuple[Any, ...]:
        """What a message shows: numbers as they were given, other values in short."""
        return tuple(map(str, self.values)) if self.labels.dtype == object else self.values


def axis(values: Iterable[Any] | Mapping[str, Any], unit: str | None = None) -> Axis:
    """Values of one parameter, with their unit.

    Parameters
    ----------
    values : numbers, or, without a unit, text or methods such as `hd.Pade(1)`; or a mapping from
        a name to any object, which then stands under its name in the store.
    unit : such as "K", "cm^-1", "fs"; None for numbers without a dimension, or where no axis has a
        unit and all are internal; "rad/fs" for internal ones beside others.

    Returns
    -------
    An `Axis`; the store keeps values and unit as written here.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise checks.refuse("values", "a list of values", values)
    if isinstance(values, Mapping):
        return _named(values, unit)
    plain = tuple(_plain(v, unit) for v in values)
    if not plain:
        raise InputError("`values` must not be empty, got an axis without values.")
    if unit is None:
        return Axis(plain, None, plain)
    floats = tuple(float(v) for v in plain)
    return Axis(floats, unit, tuple(units.convert(v, unit).value for v in floats))


def _plain(value: Any, unit: str | None) -> Any:
    """A value as a Python number if it is one; only numbers may have a unit."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, (bool, np.bool_)):
        if isinstance(value, numbers.Integral) and unit is None:
            return int(value)
        if isinstance(value, numbers.Real):
            return checks.real_number("values", value)
    if unit is not None:
        raise checks.refuse("values", f"real numbers, since they have the unit {unit!r}", value)
    if isinstance(value, numbers.Complex):
        raise checks.refuse("values", "real numbers, names or methods", value)
    if not _tells_all(value):
        raise checks.refuse(
            "values", "numbers, text, or objects whose repr says all that they are", value,
            'give them names by which the store knows them, hd.axis({"name": value, ...})',
        )  # fmt: skip
    return value


def _named(values: Mapping[str, Any], unit: str | None) -> Axis:
    """Objects under names, which stand in the store for them."""
    names = tuple(values)
    if unit is not None or not names or not all(isinstance(n, str) and n for n in names):
        raise checks.refuse(
            "values", "a non-empty mapping from names to objects, without a unit", values
        )
    return Axis(names, None, tuple(values.values()), named=True)


def _tells_all(value: Any) -> bool:
    """Whether equal reprs mean equal values, in every process."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return all(_tells_all(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, (tuple, list)):
        return all(map(_tells_all, value))
    return value is None or isinstance(value, (bool, int, float, str, enum.Enum, np.generic))


def sample_rng(seed: int, sample: int) -> np.random.Generator:
    """Random numbers of one disorder sample, from (seed, sample) alone.

    Every point of the grid sees the same numbers in sample s (common random numbers), and neither
    more samples nor more axis values change them.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(sample,))
    return np.random.Generator(np.random.PCG64(sequence))


@dataclass(frozen=True)
class Table:
    """An explicit list of points: columns of equal length, one row a point.

    >>> Table({"T": axis([77, 300], "K"), "lam": axis([5, 35], "cm^-1")})  # doctest: +SKIP

    Rows may repeat. The result has the one dimension `point` in place of a grid.
    """

    columns: Mapping[str, Axis | Iterable[Any]]


@dataclass(frozen=True, eq=False)
class Dimension:
    """One dimension of the result.

    Attributes
    ----------
    name : of the dimension: the axis's, the zipped axes' joined by "_", or "point".
    axes : (name, axis) of each parameter that varies along it, all of one length.
    unique : whether a value may stand only once (not in a table).
    """

    name: str
    axes: tuple[tuple[str, Axis], ...]
    unique: bool

    def __len__(self) -> int:
        return len(self.axes[0][1])

    def row(self, index: int) -> dict[str, Any]:
        """Parameters at one place, internal values."""
        return {name: a.internal[index] for name, a in self.axes}

    @cached_property
    def keys(self) -> list[tuple[Label, ...]]:
        """Labels of every place: what says that two values are the same."""
        return list(zip(*(a.labels.tolist() for _, a in self.axes), strict=True))


def dimensions(over: Any) -> tuple[Dimension, ...]:
    """The dimensions that `over=` describes, outermost first.

    Parameters
    ----------
    over : a mapping from a name to an axis, or from a tuple of names to a tuple of axes that run
        together (zipped); or a `Table`; or a list of points (mappings from name to internal value).
    """
    if isinstance(over, Table):
        return (_table(over.columns),)
    if isinstance(over, Mapping):
        found = tuple(_grid_dimension(key, value) for key, value in over.items())
        zipped = [d.name for d in found if len(d.axes) > 1]
        _check_names([*zipped, *(name for d in found for name, _ in d.axes)])
        return found
    if isinstance(over, Sequence) and not isinstance(over, (str, bytes)):
        return (_table(_columns(over)),)
    raise checks.refuse("over", "a mapping from names to axes, a Table or a list of points", over)


def _grid_dimension(key: Any, value: Any) -> Dimension:
    if isinstance(key, tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(key):
            raise checks.refuse("over", f"{len(key)} axes for the zipped axes {key!r}", value)
        axes = tuple((name, _as_axis(name, v)) for name, v in zip(key, value, strict=True))
        _check_lengths(axes)
        found = Dimension("_".join(str(k) for k in key), axes, unique=True)
    else:
        found = Dimension(str(key), ((key, _as_axis(key, value)),), unique=True)
    seen: set[tuple[Label, ...]] = set()
    for i, label in enumerate(found.keys):
        if label in seen:
            row = tuple(a.shown[i] for _, a in found.axes)
            shown = row[0] if len(row) == 1 else row
            raise InputError(
                f"`over[{key!r}]` must not repeat a value, got {shown!r} twice; for repeated "
                "points use a Table, for repeated draws `samples`."
            )
        seen.add(label)
    return found


def _table(columns: Any) -> Dimension:
    if not isinstance(columns, Mapping) or not columns:
        raise checks.refuse("over", "a Table with at least one column", columns)
    axes = tuple((name, _as_axis(name, v)) for name, v in columns.items())
    _check_names([name for name, _ in axes])
    _check_lengths(axes)
    return Dimension("point", axes, unique=False)


def _columns(points: Sequence[Any]) -> dict[str, list[Any]]:
    if not points or not all(isinstance(p, Mapping) for p in points):
        raise checks.refuse("over", "a non-empty list of mappings from name to value", points)
    names = list(points[0])
    for number, point in enumerate(points):
        if list(point) != names:
            raise InputError(
                f"`over[{number}]` must name {', '.join(map(repr, names))} like the first point, "
                f"got {', '.join(map(repr, point))}."
            )
    return {name: [p[name] for p in points] for name in names}


def _as_axis(name: Any, value: Any) -> Axis:
    if isinstance(value, Axis):
        return value
    try:
        return axis(value)
    except InputError as error:
        raise InputError(f"`over[{name!r}]`: {error}") from None


def _check_lengths(axes: tuple[tuple[str, Axis], ...]) -> None:
    lengths = {name: len(a) for name, a in axes}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise InputError(f"`over` must have columns of one length, got {text}.")


def _check_names(names: list[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise checks.refuse("over", "keyed by names that can be arguments of `build`", name)
        if name in RESERVED:
            raise InputError(
                f"`over` must not use the name {name!r}, which the store needs itself; rename it "
                "(names that are zipped are joined by _)."
            )
    repeated = {n for n in names if names.count(n) > 1}
    if repeated:
        raise InputError(
            f"`over` must name an axis once, got {', '.join(sorted(repeated))} twice; "
            "rename it (names that are zipped are joined by _)."
        )
