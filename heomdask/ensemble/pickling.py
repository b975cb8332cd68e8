"""Sending a sweep to workers: refused here, by name, before anything is submitted.

Takes: a `Sweep`.
Gives: its bytes, or an `InputError` that names the object that cannot travel.
Next file: `probe.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle

from heomdask.errors import InputError

DEEPEST = 6


def dumps(sweep: Any) -> bytes:
    """Pickle, or say which object of `build` (or of the axes) cannot be pickled."""
    try:
        return bytes(cloudpickle.dumps(sweep))
    except Exception as error:
        path, culprit = _culprit(sweep, "sweep", DEEPEST)
        path = path.removeprefix("sweep.")
        raise InputError(
            f"`{path.split('.')[0]}` must be picklable to reach the workers, got {path} = "
            f"{culprit!r} in it ({error}); create such objects inside `build`, at each call."
        ) from error


def _culprit(thing: Any, path: str, levels: int) -> tuple[str, Any]:
    """The innermost part that cannot be pickled by itself."""
    if levels:
        for name, part in _parts(thing):
            try:
                cloudpickle.dumps(part)
            except Exception:
                return _culprit(part, f"{path}.{name}", levels - 1)
    return path, thing


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, functools.partial):
        yield "func", thing.func
        yield from ((f"args[{i}]", a) for i, a in enumerate(thing.args))
        yield from thing.keywords.items()
    elif inspect.isfunction(thing):
        found = inspect.getclosurevars(thing)
        yield from found.nonlocals.items()
        yield from found.globals.items()
        yield from ((f"default {i}", default) for i, default in enumerate(thing.__defaults__ or ()))
    elif inspect.ismethod(thing):
        yield "self", thing.__self__
    elif isinstance(thing, Mapping):
        yield from ((str(k), v) for k, v in thing.items())
    elif isinstance(thing, (list, tuple)):
        yield from ((f"[{i}]", v) for i, v in enumerate(thing))
    else:
        yield from getattr(thing, "__dict__", {}).items()
