"""What stands behind the names of an axis's objects, so that a store notices another object.

Takes: a `Sweep`, and the record in its store.
Gives: `digests`, name -> digest of what it stands for, and `changed`, the names whose object is
    another one than when the store was filled.
Next file: `session.py`.

A digest must be the same in every process, or a store could not be resumed. What cannot promise
that (objects that pickle in a way of their own, functions that need a class of the script) has
none, and is known by its name alone.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any

import cloudpickle
import numpy as np

from heomdask.ensemble.axes import Axis
from heomdask.ensemble.sweep import Sweep
from heomdask.errors import InputError
from heomdask.model.digest import digest_of
from heomdask.results.store import Store

ATTRIBUTE = "named"  # of a store: axis -> name -> digest
_PLAIN = (bool, int, float, complex, str, bytes, np.generic)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, functools.partial)
_BY_VALUE = b"_make_skeleton_class"  # a class in a pickle, with a random mark of this process


class _Unknown(Exception):
    """Nothing is known about an object that is the same in every process."""


def digests(sweep: Sweep) -> dict[str, dict[str, str]]:
    """Of every named value, axis by axis, as far as it has one."""
    found = {}
    for name, axis in _named(sweep):
        pairs = zip(axis.values, map(_digest, axis.internal), strict=True)
        found[name] = {label: digest for label, digest in pairs if digest is not None}
    return found


def changed(sweep: Sweep, store: Store) -> list[tuple[str, str]]:
    """(axis, name) of what now stands for another object than when the store was filled."""
    there = store.attrs.get(ATTRIBUTE, {})
    found = []
    for name, here in digests(sweep).items():
        kept = {label for (label,) in store.labels((name,))}
        known = {k: v for k, v in there.get(name, {}).items() if k in kept}
        found += [(name, label) for label in here if here[label] != known.get(label, here[label])]
    return found


def remember(sweep: Sweep, store: Store) -> None:
    """Add the names that the store lacks; called before their values are added."""
    there = {name: dict(known) for name, known in store.attrs.get(ATTRIBUTE, {}).items()}
    before = {name: dict(known) for name, known in there.items()}
    for name, here in digests(sweep).items():
        kept = {label for (label,) in store.labels((name,))}
        new = {label: digest for label, digest in here.items() if label not in kept}
        there.setdefault(name, {}).update(new)
    if there != before:
        store.group.attrs[ATTRIBUTE] = there


def _named(sweep: Sweep) -> list[tuple[str, Axis]]:
    return [pair for d in sweep.grid.dimensions for pair in d.axes if pair[1].named]


def _digest(value: Any) -> str | None:
    try:
        return digest_of(_content(value))
    except (_Unknown, InputError, RecursionError):
        return None


def _content(value: Any) -> Any:
    """A value as plain data and functions."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return value if value.dtype != object else [value.shape, *map(_content, value.ravel())]
    if isinstance(value, (tuple, list)):
        return [type(value).__qualname__, *map(_content, value)]
    if isinstance(value, Mapping):
        return {key: _content(item) for key, item in value.items()}
    kind = type(value).__qualname__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [kind, {f.name: _content(getattr(value, f.name)) for f in dataclasses.fields(value)}]
    if isinstance(value, _FUNCTIONS):
        if _BY_VALUE in cloudpickle.dumps(value):
            raise _Unknown
        return value
    if isinstance(value, (type, types.ModuleType)):
        raise _Unknown
    if _pickles_plainly(type(value)) and hasattr(value, "__dict__"):
        return [kind, _content(_state(value))]
    raise _Unknown


def _pickles_plainly(kind: Any) -> bool:
    ways = ("__reduce_ex__", "__reduce__", "__getstate__")
    return all(getattr(kind, way) is getattr(object, way) for way in ways)


def _state(value: Any) -> dict[str, Any]:
    """Attributes of an object, without what it caches."""
    caches = {
        name
        for base in type(value).__mro__
        for name, member in vars(base).items()
        if isinstance(member, functools.cached_property)
    }
    return {name: item for name, item in vars(value).items() if name not in caches}
