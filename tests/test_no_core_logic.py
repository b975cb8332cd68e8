"""Backends know plans, not HEOM: docs/design/016 says what each of their files has."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "design" / "016-no-core-logic-in-backends.md"
FILES = [
    path
    for folder in ("backends", "_native", "_cuda")
    for path in sorted((ROOT / "heomdask" / folder).rglob("*"))
    if path.is_file() and path.suffix not in {".so", ".pyc"} and not path.name.startswith(".")
]
TERMS = re.compile(
    r"(?<![a-z])(heom(?!dask)|baths?|exponents?|depth|hierarch(y|ies)|matsubara|pade|drude"
    r"|temperatures?|tiers?|reorgani[sz]ation|spectral|cbar|terminator)(?![a-z])",
    re.IGNORECASE,
)
ALLOWED = {  # a piece of the line: why it may stand there
    "none of which knows HEOM": "the rule itself",
    "or lower `depth`": "a remedy, in the words of the user who has to follow it",
    "and this hierarchy needs a matrix of": "an error, in the words of the user",
    "Tables that live as long as the hierarchy": "how long a table is kept",
    "accident of one member (c = cbar)": "an example of numbers that are equal by chance",
    "hierarchies that is the same by specification": "why all members of a batch get one form",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "heomdask"))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_word_of_heom(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [line.strip() for line in lines if TERMS.search(line)]
    assert not [line for line in found if not any(piece in line for piece in ALLOWED)]


def test_every_exception_is_needed() -> None:
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    assert all(any(piece in text for text in texts) for piece in ALLOWED)


def test_the_search_finds_what_it_is_for() -> None:
    for line in ("gamma = bath.gamma", "self._depth", "n_exponents", "# the Matsubara sum", "HEOM"):
        assert TERMS.search(line)
    for line in ("import heomdask", "a bathroom", "Weight"):
        assert not TERMS.search(line)


def test_the_record_names_every_file() -> None:
    rows = [row.split("|")[1] for row in RECORD.read_text().splitlines() if row.startswith("| `")]
    patterns = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]
    names = [name_of(path) for path in FILES]
    assert not [name for name in names if not any(fnmatch(name, p) for p in patterns)]
    assert not [p for p in patterns if not any(fnmatch(name, p) for name in names)]
