"""Tables that live as long as the hierarchy that they are made from.

Takes: a function of patterns.
Gives: `kept`, the same function, which makes each table once.
Next file: `crossings.py`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from typing import TypeVar

from heomdask.plan import Pattern

T = TypeVar("T")


def kept(make: Callable[..., T]) -> Callable[..., T]:
    """Remember results for as long as the first of the patterns lives; they must not refer to it.

    Parameters
    ----------
    make : function of a tuple of patterns, and of other hashable arguments.
    """
    tables: weakref.WeakKeyDictionary[Pattern, dict[Hashable, T]] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def once(patterns: tuple[Pattern, ...], *rest: Hashable) -> T:
        own = tables.setdefault(patterns[0], {})
        key = (tuple(map(weakref.ref, patterns)), *rest)
        if key not in own:
            own[key] = make(patterns, *rest)
        return own[key]

    return once
