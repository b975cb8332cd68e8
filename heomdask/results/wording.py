"""How what a store keeps reads in a message, a table or a picture.

Takes: a text of the store; entries of the specifications of a store and of a sweep.
Gives: the same for people: a method or a truncation in short, and what differs.
Next file: `dataset.py`.
"""

from __future__ import annotations

import ast
from typing import Any

from heomdask.expansion import AAA, ESPRIT, Matsubara, Pade
from heomdask.hierarchy.truncation import Depth, ModeLimits, Weighted

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Pade, Matsubara, AAA, ESPRIT, Depth, ModeLimits, Weighted)
}


def in_short(text: str) -> str:
    """``Pade(N=2, coefficients='consistent')`` -> ``Pade(2)``; any other text as it stands."""
    try:
        match ast.parse(text, mode="eval").body:
            case ast.Call(func=ast.Name(id=name), args=[], keywords=fields) if name in _KINDS:
                values = {str(f.arg): ast.literal_eval(f.value) for f in fields}
                return str(_KINDS[name](**values))
    except (SyntaxError, ValueError, TypeError):  # not written by a store
        pass
    return text


def difference(key: str, there: Any, here: Any) -> str:
    """How an entry of a store's specification (there) differs from a sweep's (here)."""
    kept, asked = _in_words(key, there), _in_words(key, here)
    if kept != asked:
        return f"`{key}` is {kept} there and {asked} here"
    if key == "observables":
        names = ", ".join(sorted(name for name in here if here[name] != there[name]))
        return f"`{key}` has another operator here for {names}"
    if key == "times":
        return f"`{key}` is {kept} at both, with others between"
    return f"`{key}` is {there!r} there and {here!r} here"


def _in_words(key: str, value: Any) -> str:
    """An entry of a specification."""
    match key, value:
        case "times", {"unit": unit, "number": number, "first": first, "last": last}:
            return f"{number} values from {first:g} to {last:g} {unit or ''}".rstrip()
        case "axes", [*dimensions]:
            return "; ".join(map(_axes_in_words, dimensions)) or "none"
        case "observables", {**named}:
            return ", ".join(sorted(map(str, named))) or "none"
        case "save", [*words]:
            return " and ".join(words)
        case "samples", bool():
            return "given" if value else "left out"
    return in_short(str(value))


def _axes_in_words(dimension: dict[str, Any]) -> str:
    """The axes that run together along a dimension, with their units."""
    named = zip(dimension["names"], dimension["units"], dimension["kinds"], strict=True)
    words = [
        f"{name}{f' / {unit}' if unit else ''}{' (names)' if kind == 'O' else ''}"
        for name, unit, kind in named
    ]
    own = dimension["names"] == [dimension["dimension"]]
    return ", ".join(words) + ("" if own else f" along {dimension['dimension']}")
