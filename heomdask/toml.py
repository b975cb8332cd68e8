"""TOML files of a known form, and what is wrong with one.

Takes: TOML text and the type that it should be.
Gives: `read`, its text, and `decode`, the filled type; or an `InputError` that names the key that
    was most likely meant.
Next file: `cli/config.py`, for a sweep; `ensemble/profiles.py`, for a cluster.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from heomdask.errors import InputError


def read(name: str, path: Path, allowed: str) -> str:
    """The text of a file; `name` is that of the argument in errors, `allowed` what it may be."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError:
        raise InputError(
            f"`{name}` must be text in UTF-8, got {str(path)!r}, which is not; save it as UTF-8."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"`{name}` must be {allowed}, got {str(path)!r}: {reason}.") from None


def decode(text: str, form: Any, source: str, *, what: str, listed: str) -> Any:
    """The text as a `form`.

    Parameters
    ----------
    text, form : the TOML text, and a msgspec type whose unknown keys are errors.
    source : names the text in errors.
    what, listed : what it should be, and "... list" the keys that are allowed.
    """
    try:
        return msgspec.convert(tomllib.loads(text), form)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        said = str(error).rstrip(".")
        raise InputError(
            f"{source} is not a valid {what}: {said};{_meant(said, form)} {listed} what is allowed."
        ) from None


def _meant(error: str, form: Any) -> str:
    """The key, or the word for a value, that is most like one that is unknown."""
    unknown = re.search(r"unknown field `(\w+)`|[Ii]nvalid (?:enum )?value '([^']+)'", error)
    if unknown is None:
        return ""
    known: set[str] = set()
    for table in msgspec.json.schema(form)["$defs"].values():
        properties = table.get("properties", {})
        known.update(properties if unknown[1] else _words(properties))
    found = difflib.get_close_matches(unknown[1] or unknown[2], sorted(known), 1, 0.5)
    return "".join(f" did you mean `{word}`?" for word in found)


def _words(properties: dict[str, Any]) -> Iterator[str]:
    """The words that properties may have as values."""
    for value in properties.values():
        for branch in (value, value.get("items", {}), *value.get("anyOf", ())):
            yield from filter(lambda word: isinstance(word, str), branch.get("enum", ()))
