"""The TOML file that describes a sweep: its schema, and what it becomes.

Takes: a path, or the name of a packaged example.
Gives: `Config` (checked on reading; an unknown key is an error) and `Config.to_sweep()`.
Next file: `physics.py`, which turns the [system] and [[bath]] tables into a `build` function.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from heomdask import expansion as expansions
from heomdask.cli.physics import Matrix, PhysicsBuild, Quantity, operator
from heomdask.errors import InputError
from heomdask.results.solution import Stored

if TYPE_CHECKING:
    from heomdask.ensemble.axes import Axis
    from heomdask.ensemble.sweep import Sweep


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A TOML table whose unknown keys are errors."""


class AxisTable(_Table, kw_only=True, frozen=True):
    """Numbers with a unit: `values`, or `start`, `stop` and `step` (both ends included)."""

    values: list[float] | None = None
    start: float | None = None
    stop: float | None = None
    step: Annotated[float, msgspec.Meta(gt=0)] | None = None
    unit: str | None = None

    def array(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        ends = (self.start, self.stop, self.step)
        if self.values is not None and ends == (None, None, None):
            return np.array(self.values, dtype=np.float64)
        if self.values is not None or self.start is None or self.stop is None or self.step is None:
            raise InputError(
                "an axis must have either `values`, or `start`, `stop` and `step`, got "
                f"{', '.join(self.given()) or 'none of them'}."
            )
        count = int(np.floor((self.stop - self.start) / self.step + 1e-9)) + 1
        if count < 1:
            raise InputError(
                f"`stop` must not lie before `start`, got {self.start:g} to {self.stop:g}."
            )
        return np.asarray(self.start + self.step * np.arange(count), dtype=np.float64)

    def given(self) -> list[str]:
        return [n for n in ("values", "start", "stop", "step") if getattr(self, n) is not None]


class TermTable(_Table, kw_only=True, frozen=True):
    """`strength` x `operator`, added to the Hamiltonian; the strength may name an axis."""

    operator: Matrix
    strength: Quantity


class SystemTable(_Table, kw_only=True, frozen=True):
    """The system: its Hamiltonian, the initial state, and what is measured.

    `unit` is that of the Hamiltonian's numbers (none: dimensionless, as all plain numbers then are;
    with it, every energy, rate and temperature needs a unit of its own). `initial` is "site N" or a
    matrix or vector. `observables` are named operators; without them, the populations P1, P2, ...
    """

    hamiltonian: list[list[float | str] | float | str]
    unit: str | None = None
    terms: list[TermTable] = []
    initial: Matrix = "site 1"
    observables: dict[str, Matrix] = {}


class BathTable(_Table, kw_only=True, frozen=True):
    """One bath, or ("sites") an equal independent one on every site."""

    kind: Literal["drude-lorentz", "underdamped", "ohmic"]
    coupling: Matrix = "sites"
    T: Quantity
    lam: Quantity | None = None
    alpha: Quantity | None = None
    gamma: Quantity | None = None
    w0: Quantity | None = None
    s: float | None = None
    wc: Quantity | None = None


class LindbladTable(_Table, kw_only=True, frozen=True):
    """A Lindblad operator and its rate."""

    operator: Matrix
    rate: Quantity


class DisorderTable(_Table, kw_only=True, frozen=True):
    """Static Gaussian disorder of the site energies, by its standard deviation."""

    samples: Annotated[int, msgspec.Meta(ge=1)]
    site_energies: Quantity | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0


class SweepTable(_Table, kw_only=True, frozen=True):
    """The axes of the grid, and the disorder samples on every point of it."""

    axes: dict[str, AxisTable] = {}
    disorder: DisorderTable | None = None


class SolveTable(_Table, kw_only=True, frozen=True):
    """How every point is solved.

    `expansion` is "auto", "pade N", "matsubara N", "aaa TOL" or "esprit K"; `error` is what
    "auto" aims at, `tol` what the solver adds to that.
    """

    times: AxisTable
    depth: Annotated[int, msgspec.Meta(ge=0)] | Literal["auto"]
    expansion: str
    error: Annotated[float, msgspec.Meta(gt=0)] = 1e-3
    tol: Annotated[float, msgspec.Meta(gt=0)] = 1e-6
    backend: str = "auto"
    check_convergence: bool = True


class OutputTable(_Table, kw_only=True, frozen=True):
    """Where the store and the picture go, and whether states are kept beside observables."""

    store: str
    plot: str | None = None
    save: tuple[Stored, ...] = ("observables",)


class Config(_Table, kw_only=True, frozen=True):
    """A whole file. Either [system] and [[bath]], or `build` = "module:function" in their place."""

    solve: SolveTable
    output: OutputTable
    title: str = ""
    build: str | None = None
    system: SystemTable | None = None
    bath: list[BathTable] = []
    lindblad: list[LindbladTable] = []
    sweep: SweepTable = msgspec.field(default_factory=SweepTable)

    def sweep_axes(self) -> dict[str, Axis]:
        from heomdask.ensemble.axes import axis

        return {name: axis(a.array(), a.unit) for name, a in self.sweep.axes.items()}

    def to_sweep(self) -> Sweep:
        """The `Sweep` that this file describes."""
        from heomdask.ensemble.axes import axis
        from heomdask.ensemble.sweep import Sweep

        build, observables = self._build()
        disorder = self.sweep.disorder
        return Sweep(
            build,
            over=self.sweep_axes(),
            samples=None if disorder is None else disorder.samples,
            seed=0 if disorder is None else disorder.seed,
            times=axis(self.solve.times.array(), self.solve.times.unit),
            depth=self.solve.depth,
            expansion=parse_expansion(self.solve.expansion),
            error=self.solve.error,
            tol=self.solve.tol,
            backend=self.solve.backend,
            observables=observables,
            save=self.output.save,
        )

    def _build(self) -> tuple[Any, dict[str, Any]]:
        if (self.build is None) == (self.system is None):
            raise InputError(
                "a configuration must have either a [system] table or `build`, got "
                + ("both." if self.build else "neither.")
            )
        if self.build is not None:
            return load_function(self.build)
        assert self.system is not None
        physics = PhysicsBuild.from_tables(
            self.system,
            self.bath,
            self.lindblad,
            self.sweep.disorder,
            {name: a.unit for name, a in self.sweep.axes.items()},
        )
        named = self.system.observables or {f"P{j + 1}": f"site {j + 1}" for j in range(physics.d)}
        return physics, {k: operator(k, v, physics.d) for k, v in named.items()}


def load_function(path: str) -> tuple[Any, dict[str, Any]]:
    """``module:function`` -> the function and its ``observables`` attribute (or none)."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise InputError(f'`build` must be "module:function", got {path!r}.')
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"`build` must name an importable function, got {path!r} ({error}); "
            "run from the folder that holds the module."
        ) from error
    return function, dict(getattr(function, "observables", {}))


def parse_expansion(text: str) -> Any:
    """The method that a word and a number name: "pade 1" is ``Pade(1)``."""
    word, _, rest = text.strip().partition(" ")
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
    if path.suffix == ".toml" or path.exists():
        if not path.is_file():
            raise InputError(
                f"`CONFIG` must be a TOML file or an example, got {source!r}: no such file."
            )
        text = path.read_text(encoding="utf-8")
    elif source in examples():
        text = (resources.files("heomdask.examples") / f"{source}.toml").read_text(encoding="utf-8")
    else:
        raise InputError(
            f"`CONFIG` must be a TOML file or one of the examples {', '.join(examples())}, "
            f"got {source!r}."
        )
    return parse(text, source)


def parse(text: str, source: str) -> Config:
    """A configuration from TOML text; `source` names it in errors."""
    try:
        return msgspec.convert(tomllib.loads(text), Config)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise InputError(
            f"{source} is not a valid configuration: {error}; "
            "`heomdask schema` lists what is allowed."
        ) from None


def schema() -> str:
    """The JSON schema of the file."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Config)), indent=2).decode()
