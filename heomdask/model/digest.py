"""A stable name for a value: the hash by which a resumed sweep recognises its problems.

Takes: numbers, arrays, dataclasses and callables.
Gives: `digest_of`, the same in every process for the same content.
Next file: `exponents.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import threading
import types
from collections.abc import Iterable, Mapping
from typing import Any

import cloudpickle
import numpy as np

from heomdask import checks
from heomdask.errors import InputError

_HEAP_TYPE = 1 << 9  # the interpreter's flag of a class that is made at run time
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def digest_of(*values: Any, name: str = "f") -> str:
    """64 hexadecimal digits that depend on the content alone.

    Functions count by their code, defaults, closure and the globals that they name.

    Parameters
    ----------
    values : anything; what hides its content is refused.
    name : what a refusal calls that which is in no field of a dataclass.
    """
    return _digest(values, frozenset(), name)


def _digest(values: Iterable[Any], inside: frozenset[int], name: str) -> str:
    state = hashlib.sha256()
    for value in values:
        _feed(state, value, inside, name)
    return state.hexdigest()


def _feed(state: Any, value: Any, inside: frozenset[int], name: str) -> None:
    if id(value) in inside:  # a recursive function, or a container that holds itself
        state.update(b"again")
        return
    state.update(type(value).__qualname__.encode() + b":")
    deeper = inside | {id(value)}
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        state.update(repr(value).encode() + b";")
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        array = np.ascontiguousarray(value)
        state.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    else:
        fields = dataclasses.is_dataclass(value) and not isinstance(value, type)
        for part in _parts(value, deeper, name):
            _feed(state, part, deeper, part[0] if fields else name)
        state.update(b".")


def _parts(value: Any, inside: frozenset[int], name: str) -> list[Any]:
    """What a composite value consists of, in a fixed order."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, (set, frozenset)):
        return sorted(_digest([item], inside, name) for item in value)
    if isinstance(value, Mapping):
        return sorted(
            (_digest([key], inside, name), _digest([item], inside, name))
            for key, item in value.items()
        )
    if isinstance(value, np.ndarray):
        return [value.shape, *value.ravel()]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.FunctionType):
        return _function_parts(value)
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_consts, value.co_names, value.co_varnames]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)):
        return [getattr(value, "__module__", ""), getattr(value, "__qualname__", str(value))]
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    if _is_univariate_spline(value):  # it also keeps work space, whose content is random
        return [value.get_knots(), value.get_coeffs(), vars(value)["ext"]]
    if isinstance(value, _LOCKS):  # they guard values and are none
        return []
    if callable(value) and (slots := _slots(value)) is not None:
        cls, state = type(value), getattr(value, "__dict__", {})
        return [cls.__module__, cls.__call__, state, slots, _methods(cls)]
    try:
        return [cloudpickle.dumps(value)]
    except Exception as error:
        raise _hidden(name, value) from error


def _is_univariate_spline(value: Any) -> bool:
    """Without importing scipy.interpolate, which takes half a second: whoever has one, has it."""
    interpolate = sys.modules.get("scipy.interpolate")
    return interpolate is not None and isinstance(value, interpolate.UnivariateSpline)


def _hidden(name: str, value: Any) -> InputError:
    return checks.refuse(
        name,
        "a function whose numbers and code can be read, so that two of them can be told apart",
        value,
        "write it as a plain function of numbers and arrays, or give samples",
    )


def _slots(value: Any) -> list[tuple[str, str, Any]] | None:
    """What `vars` does not show: slots of all base classes; None where a class hides its state.

    (scipy's cubic splines keep their coefficients in slots.)
    """
    found = []
    for cls in type(value).__mro__:
        declared = vars(cls).get("__slots__", ())
        declared = (declared,) if isinstance(declared, str) else tuple(declared)
        members = {
            name: member
            for name, member in vars(cls).items()
            if isinstance(member, types.MemberDescriptorType)
        }
        is_python = bool(cls.__flags__ & _HEAP_TYPE) or cls.__basicsize__ == object.__basicsize__
        hidden = len(set(declared) - {"__dict__", "__weakref__"}) != len(members)
        if hidden or not is_python:
            return None
        for name, member in sorted(members.items()):
            try:
                found.append((cls.__qualname__, name, member.__get__(value)))
            except AttributeError:  # declared, but not set
                continue
    return found


def _methods(cls: type) -> list[tuple[str, str, types.CodeType]]:
    """The code of all functions of a class and its bases."""
    return [
        (base.__qualname__, name, f.__code__)
        for base in cls.__mro__
        for name, f in sorted(vars(base).items())
        if isinstance(f, types.FunctionType)
    ]


def _function_parts(function: types.FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    named = sorted(set(function.__code__.co_names) & set(function.__globals__))
    home = (function.__module__ or "").partition(".")[0]
    reached = [(name, _at_home(function.__globals__[name], home)) for name in named]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, reached]


def _at_home(value: Any, home: str) -> Any:
    """A function of another package counts by its name only, not by its code."""
    if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] != home:
        return [value.__module__, value.__qualname__]
    return value
