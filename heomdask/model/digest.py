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
import sysconfig
import threading
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from heomdask import checks
from heomdask.errors import InputError

_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_INSTALLED = {"site-packages", "dist-packages"}  # wherever they lie: of a system, user, environment
_HEAP_TYPE = 1 << 9  # the interpreter's flag of a class that is made at run time
_DATA = (bool, int, float, complex, str, bytes, tuple, list, dict, np.ndarray, np.generic)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def digest_of(*values: Any, name: str = "f") -> str:
    """64 hexadecimal digits that depend on the content alone.

    Functions count by their code, defaults, closure and the globals that they name, also those of
    modules and classes. Not everything that a function may read can be followed: who reuses results
    has to look at its values too (`ThermalBath.answers`).

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
    kind = type(value)
    if kind in _PLAIN:
        state.update(f"{kind.__qualname__}:{value!r};".encode())
        return
    if id(value) in inside:  # a recursive function, or a container that holds itself
        state.update(b"again")
        return
    state.update(kind.__qualname__.encode() + b":")
    deeper = inside | {id(value)}
    if isinstance(value, _PLAIN):  # of a subclass
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
    if (code := _code_parts(value)) is not None:
        return code
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    if _is_univariate_spline(value):  # it also keeps work space, whose content is random
        return [value.get_knots(), value.get_coeffs(), vars(value)["ext"]]
    if isinstance(value, _LOCKS):  # they guard values and are none
        return []
    if callable(value) and (slots := _slots(value)) is not None:
        cls, state = type(value), getattr(value, "__dict__", {})
        return [cls.__module__, cls.__call__, state, slots, _members(cls)]
    try:
        return [cloudpickle.dumps(value)]
    except Exception as error:
        raise _hidden(name, value) from error


def _code_parts(value: Any) -> list[Any] | None:
    """What functions, methods, classes and modules count by; None for anything else."""
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.FunctionType):
        return _function_parts(value)
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_consts, value.co_names, value.co_varnames]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return [value.__qualname__, value.__self__]
    if isinstance(value, types.ModuleType):
        return [value.__name__]
    if isinstance(value, (type, np.ufunc)):
        names = [getattr(value, n, str(value)) for n in ("__module__", "__qualname__")]
        return [*names, _members(value) if isinstance(value, type) else []]
    return None


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


def _members(cls: type) -> list[tuple[str, str, Any]]:
    """The code of all functions of a class and its bases, and the data that they hold."""
    return [
        (base.__qualname__, name, member.__code__ if _is_function(member) else member)
        for base in cls.__mro__
        if base.__flags__ & _HEAP_TYPE
        for name, member in sorted(vars(base).items())
        if _is_function(member) or (not name.startswith("_") and isinstance(member, _DATA))
    ]


def _is_installed(function: types.FunctionType) -> bool:
    """Whether it is of an installed package, whose globals stay what they are."""
    return _lies_in_packages(getattr(sys.modules.get(function.__module__ or ""), "__file__", None))


@functools.cache
def _lies_in_packages(file: str | None) -> bool:
    return file is not None and (
        file.startswith(_STANDARD) or not _INSTALLED.isdisjoint(Path(file).parts)
    )


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def _function_parts(function: types.FunctionType) -> list[Any]:
    home = _package(function)
    cells = [_at_home(cell.cell_contents, home) for cell in function.__closure__ or ()]
    reached: list[Any] = []
    if not _is_installed(function):
        reached = _reached(function.__globals__, _names(function.__code__), home, frozenset())
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, reached]


def _names(code: types.CodeType) -> frozenset[str]:
    """Globals and attributes that a function names, the functions inside it too."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def _reached(
    space: Mapping[str, Any], names: frozenset[str], home: str, inside: frozenset[str]
) -> list[tuple[str, Any]]:
    """The named values of a name space, and of the modules among them."""
    found: list[tuple[str, Any]] = []
    for name in sorted(names & set(space)):
        value = space[name]
        found.append((name, _at_home(value, home)))
        if isinstance(value, types.ModuleType) and value.__name__ not in inside:
            found += _reached(vars(value), names, home, inside | {value.__name__})
    return found


def _at_home(value: Any, home: str) -> Any:
    """A function or class of another package counts by its name only."""
    if isinstance(value, (types.FunctionType, type)) and _package(value) != home:
        return [value.__module__, value.__qualname__]
    return value


def _package(value: Any) -> str:
    return (value.__module__ or "").partition(".")[0]
