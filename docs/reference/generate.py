"""Writes the pages of this folder from the program: python docs/reference/generate.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from heomdask.cli.plot import SUFFIXES
from heomdask.cli.tables import Matrix, Quantity, Rows, schema
from heomdask.ensemble import profiles
from heomdask.outcome import Outcome

OUTCOMES = """# Outcomes

How a solve ended: `solution.outcome` of one run, the variable `status` of a store (with CF
`flag_values` and `flag_meanings`). Codes are part of the store's format and only ever grow. With
`throw=True`, `hd.evolve` raises `hd.SolveFailed` with the advice instead of returning.

| code | name | what happened and what to do |
|---|---|---|
"""
TOML = f"""# The TOML file

What `heomdask run FILE` reads; [a first sweep](../howto/first-sweep.md) shows a whole one. A key
that is not listed here is an error. `heomdask schema` prints the same as a JSON schema.

- **Units.** Every energy, rate, time and temperature of a file has a unit, or none has; then
  hbar = kB = 1. A unit is an energy ("cm^-1", "meV", "rad/fs", "1/ps"), a time ("fs") or a
  temperature ("K"); what is a rate or a frequency counts as an energy.
  [Conventions](../explanation/conventions.md) says what each quantity means.
- A **quantity** is a text with a number and a unit ("35 cm^-1", "1/(50 fs)"), a plain number in a
  file without units, or the name of an axis, whose values it then takes. The column *unit* says of
  which kind it is.
- An **operator** is "site N" (the projector on a site), for two levels also "sx", "sy" or "sz", a
  list of rows, or a list of numbers (a diagonal). Complex numbers are texts: "0.5-1j".
- A **picture** has the format of its suffix: {", ".join(SUFFIXES)}.
"""
CLUSTER = """# The profile of a cluster

What `heomdask run CONFIG --cluster PROFILE` takes, and `Workers(cluster=PROFILE)` in Python:

- `local`: worker processes of this machine;
- `slurm`: one job of Slurm with the defaults below;
- `ssh:HOST,HOST`: machines that `ssh` logs in to without a password;
- `tcp://HOST:PORT` or `tls://HOST:PORT`: a scheduler that runs already;
- the path of a TOML file with the keys of one of the tables below, chosen by `kind`. A key that is
  not listed is an error. What a profile of Slurm leaves open is taken from Dask's own file
  `jobqueue.yaml` if there is one.

[deploy/clusters](../../deploy/clusters) holds examples, [Slurm](../howto/slurm.md) a walk through
one; `pool`, `more` and `gpus` are for [workers of unequal classes](../howto/unequal-workers.md).
"""
BELOW = {"Certificates": "`tls`", "Jobs": "`[[more]]`"}  # tables within a profile
FOOT = "\nThis page is written by `python docs/reference/generate.py`.\n"


def outcomes() -> str:
    """The page of outcomes as text."""
    rows = [f"| {o.value} | `{o.name.lower()}` | {o.advice} |\n" for o in Outcome]
    return OUTCOMES + "".join(rows) + FOOT


def toml() -> str:
    """The page of the TOML file as text: every table and key of the schema."""
    tables = schema()["$defs"]
    places: dict[str, list[str]] = {}
    _place(tables, "Config", "", places)
    return TOML + "".join(_table(tables[name], _title(at)) for name, at in places.items()) + FOOT


def cluster() -> str:
    """The page of the cluster profiles as text."""
    tables = profiles.schema()["$defs"]
    text = CLUSTER
    for name, table in tables.items():
        kind = table["properties"].pop("kind", None)
        title = BELOW[name] if kind is None else f'`kind = "{kind["enum"][0]}"`'
        text += _table(table, title)
    return text + FOOT


def _place(tables: dict[str, Any], name: str, path: str, places: dict[str, list[str]]) -> None:
    """Where in a file each table stands, in the order of reading."""
    places.setdefault(name, []).append(path)
    for key, value in tables[name]["properties"].items():
        inner, brackets = value, ""
        for one in value.get("anyOf", [value]):
            if one.get("type") == "array":
                inner, brackets = one["items"], "[]"
            elif "additionalProperties" in one:
                inner, brackets = one["additionalProperties"], ".NAME"
            elif "$ref" in one:
                inner = one
        if "$ref" in inner:
            below = f"{path}.{key}".lstrip(".") + brackets
            _place(tables, inner["$ref"].rsplit("/", 1)[1], below, places)


def _title(places: list[str]) -> str:
    named = [f"`[[{p[:-2]}]]`" if p.endswith("[]") else f"`[{p}]`" for p in places]
    return " and ".join(named) if places != [""] else "At the top"


def _table(table: dict[str, Any], title: str) -> str:
    text = f"\n## {title}\n\n{table['description']}\n\n"
    text += "| key | type | unit | default | meaning |\n|---|---|---|---|---|\n"
    for key, value in table["properties"].items():
        default = "required" if key in table["required"] else _default(value.get("default"))
        unit = value.get("unit", "")
        text += f"| `{key}` | {_type(value)} | {unit} | {default} | {value['description']} |\n"
    return text


def _default(value: Any) -> str:
    return f"`{json.dumps(value)}`" if value not in (None, [], {}) else ""


def _type(value: dict[str, Any]) -> str:
    """The type of a value in words."""
    branches = [b for b in value.get("anyOf", [value]) if b.get("type") != "null"]
    for word, of in {"quantity": Quantity, "operator": Matrix}.items():
        if branches == msgspec.json.schema(of)["anyOf"]:
            return word
    if value.get("items") == msgspec.json.schema(Rows)["items"]:
        return "rows of numbers"
    return " or ".join(_branch(b) for b in branches)


def _branch(value: dict[str, Any]) -> str:
    if "enum" in value:
        return " or ".join(f'"{word}"' for word in value["enum"])
    if "anyOf" in value:
        return " or ".join(_branch(b) for b in value["anyOf"])
    if value.get("type") == "array":
        inner = _branch(value["items"])
        return "tables" if inner == "table" else f"list of {inner}"
    if "additionalProperties" in value:
        inner = _type(value["additionalProperties"])
        return "named tables" if inner == "table" else f"named {inner}s"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return "table" if "$ref" in value else words.get(value["type"], value["type"])


if __name__ == "__main__":
    folder = Path(__file__).parent
    (folder / "outcomes.md").write_text(outcomes(), encoding="utf-8")
    (folder / "toml.md").write_text(toml(), encoding="utf-8")
    (folder / "cluster.md").write_text(cluster(), encoding="utf-8")
