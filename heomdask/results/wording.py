"""How what a store keeps as text reads in a message, a table or a picture.

Takes: a text of the store.
Gives: the same for people: a method or a truncation in short.
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
