"""A TOML file that describes a sweep: how it is read, and what it becomes.

Takes: a path, or the name of a packaged example.
Gives: `read`, a checked `Config`, and `to_sweep`, the `Sweep` of one.
Next file: `quantities.py`, for numbers with units.
"""

from __future__ import annotations

import importlib
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from heomdask import checks, toml
from heomdask import expansion as expansions
from heomdask.cli.physics import PhysicsBuild, operator
from heomdask.cli.quantities import Quantities
from heomdask.cli.tables import AxisTable, Config, SystemTable, UntilTable
from heomdask.ensemble.axes import Axis, axis
from heomdask.ensemble.stopping import StandardError
from heomdask.ensemble.sweep import SOLVER_AXES, Sweep
from heomdask.errors import InputError


def to_sweep(config: Config) -> Sweep:
    """The `Sweep` that a file describes."""
    solve, disorder = config.solve, config.sweep.disorder
    axes = {name: _axis(f"sweep.axes.{name}", a) for name, a in config.sweep.axes.items()}
    for name, value in (("depth", solve.depth), ("expansion", solve.expansion)):
        checks.one_of(f"solve.{name}", value, f"sweep.axes.{name}", axes.get(name))
    build, observables = _build(config)
    sweep = Sweep(
        build,
        over=axes,
        title=config.title,
        samples=None if disorder is None else disorder.samples,
        seed=0 if disorder is None else disorder.seed,
        until=() if disorder is None else [_rule(table) for table in disorder.until],
        times=_axis("solve.times", solve.times),
        depth=solve.depth,
        expansion=None if solve.expansion is None else parse_expansion(solve.expansion),
        error=solve.error,
        tol=solve.tol,
        backend=solve.backend,
        observables=observables,
        save=config.output.save,
    )
    if config.system is not None:
        # what a bath refuses is said here of the file's keys, and not later of `build`
        sweep.point((0,) * len(sweep.grid.shape))
    return sweep


def _rule(table: UntilTable) -> StandardError:
    return StandardError(table.observable, table.below)


def _axis(key: str, table: AxisTable) -> Axis:
    """The values of an axis, or of the output times, with their unit."""
    name = key.rpartition(".")[2]
    if name in SOLVER_AXES and table.unit is not None:
        raise checks.refuse(key, "without a `unit`", table.unit)
    if name == "expansion":
        return axis([parse_expansion(value) for value in table.values or ()])
    numbers = table.numbers(key)
    checks.real_vector(key, numbers)
    if name == "depth":
        return axis([int(n) if n.is_integer() else n for n in numbers.tolist()])
    return axis(numbers, table.unit)


def _build(config: Config) -> tuple[Any, dict[str, Any]]:
    """The function that builds a point, and the observables; the units are complete."""
    system, axes = config.system, config.sweep.axes
    if (config.build is None) == (system is None):
        raise InputError(
            "a configuration must have either a [system] table or `build`, got "
            + ("both." if config.build else "neither.")
        )
    quantities = Quantities(axes)
    if system is not None:
        build, observables = _from_tables(config, system, quantities)
    else:
        build, observables = _from_python(config, quantities)
    times = config.solve.times.unit
    quantities.note("solve.times", times, "plain numbers", 'add for example unit = "fs".')
    quantities.require_units_throughout()
    return build, observables


def _from_tables(
    config: Config, system: SystemTable, quantities: Quantities
) -> tuple[PhysicsBuild, dict[str, Any]]:
    physics = PhysicsBuild.from_tables(
        system, config.bath, config.lindblad, config.sweep.disorder, quantities
    )
    idle = [a for a in config.sweep.axes if a not in quantities.used and a not in SOLVER_AXES]
    if idle:
        raise InputError(
            f"`sweep.axes` must each be used by a quantity, got {', '.join(idle)} that nothing "
            'refers to; write e.g. lam = "lam" in a [[bath]].'
        )
    named = system.observables or {f"P{j + 1}": f"site {j + 1}" for j in range(physics.d)}
    return physics, {k: operator(k, v, physics.d) for k, v in named.items()}


def _from_python(config: Config, quantities: Quantities) -> tuple[Any, dict[str, Any]]:
    """Of a bare axis only the function knows whether it should have a unit."""
    disorder = config.sweep.disorder
    if config.bath or config.lindblad or (disorder and disorder.site_energies is not None):
        raise InputError(
            "`build` must stand alone, got [[bath]], [[lindblad]] or `site_energies` beside it, "
            "which belong to a [system]; leave them out, the function makes them."
        )
    for name, table in config.sweep.axes.items():
        if table.unit is not None:
            quantities.note(f"sweep.axes.{name}", table.unit, "", "")
    return load_function(config.build or "")


def load_function(path: str) -> tuple[Any, dict[str, Any]]:
    """``module:function`` -> the function and its ``observables`` attribute (or none)."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise InputError(f'`build` must be "module:function", got {path!r}.')
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: in a clone of this repository lies another heomdask
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"`build` must name an importable function, got {path!r} ({error}); "
            "run from the folder that holds the module."
        ) from error
    return function, dict(getattr(function, "observables", {}))


def parse_expansion(text: str | float) -> Any:
    """The method that a word and a number name: "pade 1" is ``Pade(1)``."""
    word, _, rest = str(text).strip().partition(" ")
    kinds: dict[str, Any] = {
        "pade": (expansions.Pade, int),
        "matsubara": (expansions.Matsubara, int),
        "aaa": (expansions.AAA, float),
        "esprit": (expansions.ESPRIT, int),
    }
    if word == "auto" and not rest:
        return "auto"
    try:
        cls, number = kinds[word.lower()]
        return cls(number(rest))
    except (KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            '`expansion` must be "auto", "pade N", "matsubara N", "aaa TOL" or "esprit K", '
            f"got {text!r}."
        ) from None


def examples() -> tuple[str, ...]:
    """The names of the packaged examples."""
    folder = resources.files("heomdask.examples")
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml")))


def read(source: str) -> Config:
    """The configuration in a file, or of a packaged example by its name."""
    path = Path(source)
    if source in examples() and not path.is_file():
        path = Path(str(resources.files("heomdask.examples"))) / f"{source}.toml"
    allowed = f"a TOML file or one of the examples {', '.join(examples())}"
    return parse(toml.read("CONFIG", path, allowed), source)


def parse(text: str, source: str) -> Config:
    """A configuration from TOML text; `source` names it in errors."""
    listed = "docs/reference/toml.md and `heomdask schema` list"
    config: Config = toml.decode(text, Config, source, what="configuration", listed=listed)
    return config
