"""Short text for people: of methods and truncations, and of how to install what is optional.

Takes: a dataclass; the name of an extra.
Gives: `Brief`, whose `str` is short; the repr stays whole, for stores and digests. `install`.
Next file: `checks.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar


class Brief:
    """A dataclass that reads ``Pade(2)``.

    Fields without a default stand by their place, others by name and only where they differ.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __str__(self) -> str:
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                words.append(_text(value))
            elif value != field.default:
                words.append(f"{field.name}={_text(value)}")
        return f"{type(self).__name__}({', '.join(words)})"


def install(extra: str) -> str:
    """The command that brings the packages of an extra."""
    return f"pip install 'heomdask[{extra}]' (in a clone: pip install '.[{extra}]')"


def _text(value: object) -> str:
    return repr(float(value)) if isinstance(value, float) else repr(value)  # numpy's too
