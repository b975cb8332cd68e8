"""Writes outcomes.md from the enum: python docs/reference/generate.py."""

from __future__ import annotations

from pathlib import Path

from heomdask.outcome import Outcome

HEAD = """# Outcomes

How a solve ended: `solution.outcome` of one run, the variable `status` of a store (with CF
`flag_values` and `flag_meanings`). Codes are part of the store's format and only ever grow. With
`throw=True`, `hd.evolve` raises `hd.SolveFailed` with the advice instead of returning.

| code | name | what happened and what to do |
|---|---|---|
"""


def outcomes() -> str:
    """The page as text."""
    rows = [f"| {o.value} | `{o.name.lower()}` | {o.advice} |\n" for o in Outcome]
    return HEAD + "".join(rows) + "\nThis page is written by `python docs/reference/generate.py`.\n"


if __name__ == "__main__":
    Path(__file__).with_name("outcomes.md").write_text(outcomes(), encoding="utf-8")
