"""The TOML file: what it becomes, and what is refused, in terms of its own keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toml_files import PLAIN

import heomdask as hd
from heomdask.cli.config import parse, read, to_sweep
from heomdask.errors import InputError
from heomdask.units import cm1

IN_UNITS = """
[system]
unit = "cm^-1"
hamiltonian = [[100, 50], [50, 0]]
[[bath]]
kind = "drude-lorentz"
lam = "lam"
gamma = "1/(50 fs)"
T = "300 K"
[sweep.axes]
lam = { values = [5, 35], unit = "cm^-1" }
[solve]
times = { start = 0, stop = 100, step = 10, unit = "fs" }
depth = 2
expansion = "pade 1"
[output]
store = "x.zarr"
"""
PYTHON = """
build = "module:function"
[sweep.axes]
T = { values = [77], unit = "K" }
[solve]
times = { values = [0, 1] }
depth = 2
expansion = "pade 1"
[output]
store = "x.zarr"
"""
LINDBLAD = '[[lindblad]]\noperator = "sz"\nrate = {}\n[sweep.axes]'


def sweep(text: str, *changes: tuple[str, str]) -> hd.Sweep:
    """The sweep of a file after some replacements."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return to_sweep(parse(text, "test.toml"))


def test_a_stopping_rule_belongs_to_the_disorder() -> None:
    disorder = "[sweep.disorder]\nsamples = 90\nsite_energies = 0.1\n"
    rules = 'until = [{ observable = "P1", below = 0.01 }, { observable = "P2", below = 0.1 }]\n'
    found = sweep(PLAIN, ("[solve]", f"{disorder}{rules}[solve]"))
    assert found.until == (hd.StandardError("P1", 0.01), hd.StandardError("P2", 0.1))
    assert found.samples == 90
    with pytest.raises(InputError, match=r"`until` .* got 'P3'; there are 'P1', 'P2'"):
        sweep(PLAIN, ("[solve]", f"{disorder}{rules.replace('P2', 'P3')}[solve]"))


# -- units: everything has one, or nothing


@pytest.mark.parametrize(
    ("text", "old", "new", "name", "carrier"),
    [
        (IN_UNITS, 'unit = "cm^-1"\n', "", "hamiltonian", "T"),
        (IN_UNITS, ', unit = "fs"', "", "solve.times", "hamiltonian"),
        (IN_UNITS, '"300 K"', "300", "T", "hamiltonian"),
        (IN_UNITS, ', unit = "cm^-1"', "", "lam", "hamiltonian"),
        (PLAIN, "lam = 0.1", 'lam = "35 cm^-1"', "hamiltonian", "lam"),
        (PLAIN, "step = 0.5", 'step = 0.5, unit = "fs"', "hamiltonian", "solve.times"),
        (PLAIN, "1.0] }", '1.0], unit = "K" }', "hamiltonian", "T"),
        (PYTHON, "module:function", "math:hypot", "solve.times", "sweep.axes.T"),
    ],
)
def test_units_of_a_file_are_complete(
    text: str, old: str, new: str, name: str, carrier: str
) -> None:
    with pytest.raises(InputError) as caught:
        sweep(text, (old, new))
    begin, remedy = str(caught.value).split(" has one, got ")
    assert begin == f"`{name}` must have a unit, because `{carrier}`"
    assert ' = "' in remedy


def test_numbers_may_be_dimensionless_or_internal() -> None:
    plain = sweep(PLAIN).point((0,)).problem
    internal = sweep(
        PLAIN,
        ("[system]", '[system]\nunit = "rad/fs"'),
        ("lam = 0.1", 'lam = "0.1 rad/fs"'),
        ("gamma = 0.5", 'gamma = "0.5 / fs"'),
        ('T = "T"', 'T = "0.5 K"'),
        ("T = { values = [0.5, 1.0] }", ""),
        ("[sweep.axes]", "[sweep.axes]\ndepth = { values = [2] }"),
        ("depth = 2\n", ""),
        ("step = 0.5", 'step = 0.5, unit = "fs"'),
    )
    np.testing.assert_array_equal(internal.point((0,)).problem.H, plain.H)
    assert sweep(IN_UNITS).point((0,)).problem.H[0, 1] == pytest.approx(50 * cm1)


# -- the hierarchy as an axis


def test_depth_and_expansion_may_be_axes() -> None:
    found = sweep(
        PLAIN,
        ("[sweep.axes]", '[sweep.axes]\nexpansion = { values = ["pade 1", "matsubara 2"] }'),
        ("[sweep.axes]", "[sweep.axes]\ndepth = { start = 2, stop = 4, step = 1 }"),
        ('depth = 2\nexpansion = "pade 1"\n', ""),
    )
    assert found.grid.shape == (3, 2, 2)
    depths = [found.point((i, 0, 0)).depth for i in range(3)]
    assert depths == [2, 3, 4] and all(isinstance(n, int) for n in depths)
    assert found.point((0, 1, 0)).expansion == hd.Matsubara(2)


# (the file, what is replaced, by what, how the message begins, what else it holds)
WRONG: list[tuple[str, str, str, str, str]] = [
    (PLAIN, "depth = 2\n", "", "One of `solve.depth` and `sweep.axes.depth`", "none"),
    (PLAIN, "1.0] }", "1.0] }\ndepth = { values = [2] }", "One of `solve.depth`", "both"),
    (IN_UNITS, "[sweep.axes]", '[sweep.axes]\ntol = { values = [1], unit = "K" }',
     "`sweep.axes.tol`", "without a `unit`"),
    (PLAIN, "[0.5, 1.0]", '[0.5, "warm"]', "`sweep.axes.T`", "'warm'"),
    # the physics, by the file's own keys
    (PLAIN, "[0.5, -0.25]", "[0.1, -0.25]", "`hamiltonian` must be Hermitian", "0.4"),
    (PLAIN, "[[0.25,", "[[nan,", "`hamiltonian` must be finite", "NaN"),
    (PLAIN, "-0.25]]", "-0.25]]\nterms = [{ operator = [[0, 1], [0, 0]], strength = 1 }]",
     "`operator` must be Hermitian", ""),
    (PLAIN, '"sz"', "[[0, 1], [0, 0]]", "`coupling` must be Hermitian", ""),
    (PLAIN, "lam = 0.1", "lam = nan", "`lam`", "nan"),
    (PLAIN, "lam = 0.1", "lam = -0.1", "`lam`", "-0.1"),
    (PLAIN, "gamma = 0.5", "gamma = 0", "`gamma`", "above 0"),
    (PLAIN, "[0.5, 1.0]", "[0.5, -1.0]", "`sweep.axes.T` must not be negative", "`T`"),
    (PLAIN, "[0.5, 1.0]", "[0.5, inf]", "`sweep.axes.T` must be finite", ""),
    (IN_UNITS, '"1/(50 fs)"', '"-100 cm^-1"', "`gamma`", "'-100 cm^-1'"),
    (PLAIN, "[sweep.axes]", LINDBLAD.format("-0.1"), "`rate`", "-0.1"),
    (PLAIN, "-0.25]]", "-0.25]]\ninitial = [[1, 0], [0, 1]]", "`initial` must have the trace 1",
     "got 2"),
    (PLAIN, "-0.25]]", "-0.25]]\ninitial = [[nan, 0], [0, 1]]", "`initial` must be finite", ""),
    (PLAIN, "[solve]", "[sweep.disorder]\nsamples = 3\n[solve]", "`site_energies`", "samples"),
    (PYTHON, "[sweep.axes]", LINDBLAD.format("1"), "`build` must stand alone", "lindblad"),
    # ranges
    (PLAIN, "stop = 1,", "stop = inf,", "`solve.times` must run", "stop = inf"),
    (PLAIN, "stop = 1,", "stop = nan,", "`solve.times` must run", "stop = nan"),
    (PLAIN, "stop = 1,", "stop = -1,", "`solve.times` must run", "stop = -1"),
    (PLAIN, "step = 0.5", "step = 0", "`solve.times` must run", "step = 0"),
    (PLAIN, "step = 0.5", "step = 0.3", "`solve.times` must come to its `stop`", "stop = 0.9"),
    (PLAIN, "stop = 1,", "stop = 1e18,", "`solve.times` must have at most 1,000,000", "1e+18"),
    (PLAIN, "stop = 1,", "", "`solve.times` must have either", "start, step"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "begin", "inside"), WRONG)
def test_one_sentence_in_terms_of_the_file(
    text: str, old: str, new: str, begin: str, inside: str
) -> None:
    with pytest.raises(InputError) as caught:
        sweep(text, (old, new))
    said = str(caught.value)
    assert said.startswith(begin) and inside in said
    assert "\n" not in said and len(said) < 300


def test_an_operator_of_trace_zero_may_be_propagated() -> None:
    start: Any = sweep(PLAIN, ("-0.25]]", "-0.25]]\ninitial = [[0, 1], [0, 0]]")).point((0,)).rho0
    np.testing.assert_array_equal(start, [[0, 1], [0, 0]])


# -- files


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(PLAIN.encode() + "# Förster".encode("latin-1"))
    (tmp_path / "folder.toml").mkdir()
    for name, reason in (("latin", "UTF-8"), ("folder", "directory"), ("none", "No such file")):
        path = str(tmp_path / f"{name}.toml")
        with pytest.raises(InputError, match=f"^`CONFIG` must .*{reason}"):
            read(path)


def test_a_mark_at_the_start_is_no_matter_nor_a_folder_of_an_examples_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").write_text(PLAIN, encoding="utf-8-sig")
    (tmp_path / "fmo").mkdir()
    assert read("x.toml").output.store == "x.zarr"
    assert read("fmo").output.store == "fmo.zarr"
