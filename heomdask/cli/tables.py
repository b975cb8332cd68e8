"""The tables of a TOML file: every key with its type, unit, default and meaning.

Takes: nothing.
Gives: `Config`, which msgspec fills from a file (an unknown key is an error); `schema`, the same
    for programs; docs/reference/toml.md shows it to people.
Next file: `config.py`, which reads a file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from heomdask.errors import InputError
from heomdask.results.solution import Stored

Quantity = str | float  # "35 cm^-1", a plain number, or the name of an axis
Rows = list[list[float | str] | float | str]  # of a matrix, or its diagonal
Matrix = str | Rows  # or "site 1", "sx", ...

MOST_VALUES = 1_000_000  # of one axis


def _of(unit: str, meaning: str) -> Meta:
    """What a quantity of some dimension means."""
    return Meta(description=meaning, extra_json_schema={"unit": unit})


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A TOML table whose unknown keys are errors."""


class AxisTable(_Table, kw_only=True, frozen=True):
    """Values with a unit: `values`, or `start`, `stop` and `step` (both ends included)."""

    values: Annotated[
        list[float | str] | None,
        Meta(description="The values one by one; texts only on an axis named `expansion`."),
    ] = None
    start: Annotated[float | None, Meta(description="The first value of a range.")] = None
    stop: Annotated[float | None, Meta(description="Its last value.")] = None
    step: Annotated[float | None, Meta(description="The distance between two, above 0.")] = None
    unit: Annotated[
        str | None, Meta(description='The unit of the values, such as "K", "cm^-1" or "fs".')
    ] = None

    def numbers(self, name: str) -> NDArray[np.float64]:
        """The values, which must be numbers; `name` is that of the axis in errors."""
        values, start, stop, step = self.values, self.start, self.stop, self.step
        if values is None and start is not None and stop is not None and step is not None:
            return _range(name, start, stop, step)
        given = [n for n in ("values", "start", "stop", "step") if getattr(self, n) is not None]
        if values is None or given != ["values"]:
            raise InputError(
                f"`{name}` must have either `values`, or `start`, `stop` and `step`, got "
                f"{', '.join(given) or 'none of them'}."
            )
        numbers = [v for v in values if not isinstance(v, str)]
        if numbers != values:
            raise InputError(
                f"`{name}` must have numbers as values, got {values!r}; write numbers, and their "
                "unit once, as `unit`."
            )
        return np.array(numbers, dtype=np.float64)


def _range(name: str, start: float, stop: float, step: float) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is refused
        steps = np.float64(stop - start) / step if step > 0 else np.nan
    said = f"got start = {start:g}, stop = {stop:g}, step = {step:g}"
    if not np.isfinite(steps) or steps < -1e-9:
        raise InputError(
            f"`{name}` must run from a finite `start` up to a finite `stop` by a `step` above 0, "
            f"{said}."
        )
    if steps >= MOST_VALUES:
        raise InputError(
            f"`{name}` must have at most {MOST_VALUES:,} values, {said}, which are "
            f"{steps + 1:.3g}; give a larger `step` or a smaller `stop`."
        )
    if abs(steps - round(steps)) > 1e-6:
        last = start + step * int(steps)
        raise InputError(
            f"`{name}` must come to its `stop` by whole steps, {said}, which ends at {last:g}; "
            f"give stop = {last:g}, or another `step`."
        )
    return np.asarray(start + step * np.arange(round(steps) + 1), dtype=np.float64)


class TermTable(_Table, kw_only=True, frozen=True):
    """`strength` x `operator`, added to the Hamiltonian."""

    operator: Annotated[Matrix, Meta(description="A Hermitian operator without a unit.")]
    strength: Annotated[Quantity, _of("energy", "Its factor; may name an axis.")]


class SystemTable(_Table, kw_only=True, frozen=True):
    """The system: its Hamiltonian, the initial state, and what is measured."""

    hamiltonian: Annotated[
        Rows,
        _of("`unit`", 'Rows of numbers, or of texts such as "0.5-1j"; Hermitian.'),
    ]
    unit: Annotated[
        str | None,
        Meta(
            description='Of `hamiltonian`, such as "cm^-1", "meV" or "rad/fs"; none in a '
            "file without units."
        ),
    ] = None
    terms: Annotated[list[TermTable], Meta(description="What is added to `hamiltonian`.")] = []
    initial: Annotated[
        Matrix,
        Meta(
            description="The state at the first time: a matrix of trace 1 (or 0, for spectra), or "
            "a vector, which is normalised."
        ),
    ] = "site 1"
    observables: Annotated[
        dict[str, Matrix],
        Meta(description="Named operators; without any, the populations P1, P2, ..."),
    ] = {}


class BathTable(_Table, kw_only=True, frozen=True):
    """One bath; which keys it needs depends on its kind.

    "drude-lorentz": `lam`, `gamma`, `T`. "underdamped": `lam`, `gamma`, `w0`, `T`. "ohmic": `lam`
    or `alpha`, `s`, `wc`, `T`.
    """

    kind: Annotated[
        Literal["drude-lorentz", "underdamped", "ohmic"],
        Meta(description="The form of the spectral density."),
    ]
    coupling: Annotated[
        Matrix,
        Meta(
            description='The Hermitian operator that couples to the bath; "sites": an equal, '
            "independent bath on every site."
        ),
    ] = "sites"
    T: Annotated[Quantity, _of("temperature", "Temperature, at least 0.")]
    lam: Annotated[Quantity | None, _of("energy", "Reorganisation energy.")] = None
    alpha: Annotated[
        Quantity | None, _of("none", "Coupling strength of an ohmic bath, in place of `lam`.")
    ] = None
    gamma: Annotated[
        Quantity | None, _of("energy", "Cutoff (drude-lorentz) or damping (underdamped), a rate.")
    ] = None
    w0: Annotated[Quantity | None, _of("energy", "Frequency of the underdamped mode.")] = None
    s: Annotated[
        Quantity | None, _of("none", "Exponent of an ohmic bath: 1 is ohmic, above super-ohmic.")
    ] = None
    wc: Annotated[Quantity | None, _of("energy", "Cutoff frequency of an ohmic bath.")] = None


class LindbladTable(_Table, kw_only=True, frozen=True):
    """A Lindblad operator and its rate."""

    operator: Annotated[Matrix, Meta(description="Any operator without a unit.")]
    rate: Annotated[Quantity, _of("energy", "Its rate, at least 0.")]


class UntilTable(_Table, kw_only=True, frozen=True):
    """A stopping rule: with several, all must hold. None does before 32 samples."""

    observable: Annotated[str, Meta(description="Its name.")]
    below: Annotated[
        float,
        Meta(gt=0, description="Limit of the standard error of its mean, at every output time."),
    ]


class DisorderTable(_Table, kw_only=True, frozen=True):
    """Static Gaussian disorder of the site energies."""

    samples: Annotated[
        int, Meta(ge=1, description="Samples at every point of the grid; more may be added later.")
    ]
    until: Annotated[
        list[UntilTable],
        Meta(
            description="When a point of the grid has enough samples; then `samples` is the most "
            'it may get. `until = [{observable = "P1", below = 1e-3}]`.'
        ),
    ] = []
    site_energies: Annotated[
        Quantity | None, _of("energy", "Standard deviation of every site energy.")
    ] = None
    seed: Annotated[int, Meta(ge=0, description="Another seed draws other samples.")] = 0


class SweepTable(_Table, kw_only=True, frozen=True):
    """The grid: every combination of the axes' values, and the samples at each."""

    axes: Annotated[
        dict[str, AxisTable],
        Meta(
            description="Named axes, outermost first. A quantity refers to one by its name; "
            "`depth`, `expansion` and `tol` vary the hierarchy and the solver in place of [solve]."
        ),
    ] = {}
    disorder: Annotated[DisorderTable | None, Meta(description="Static disorder.")] = None


class SolveTable(_Table, kw_only=True, frozen=True):
    """How every point is solved. `depth` and `expansion` stand here or are axes."""

    times: Annotated[AxisTable, _of("time", "Output times, ascending; the first is the start.")]
    depth: Annotated[
        Annotated[int, Meta(ge=0)] | Literal["auto"] | None,
        Meta(description='Tiers of the hierarchy, at least 0; "auto" decides at each point.'),
    ] = None
    expansion: Annotated[
        str | None,
        Meta(
            description='How the bath becomes exponents: "pade N", "matsubara N", "aaa TOL", '
            '"esprit K" or "auto".'
        ),
    ] = None
    error: Annotated[float, Meta(gt=0, description='What "auto" aims at.')] = 1e-3
    tol: Annotated[
        float,
        Meta(gt=0, description="Largest error of rho that the solver adds, at every output time."),
    ] = 1e-6
    backend: Annotated[
        str, Meta(description='One that `heomdask backends` lists; "auto" takes the fastest.')
    ] = "auto"
    check_convergence: Annotated[
        bool, Meta(description="Solve up to 16 points again with larger hierarchies, at the end.")
    ] = True


class OutputTable(_Table, kw_only=True, frozen=True):
    """Where the store and the picture go, and what is kept."""

    store: Annotated[str, Meta(description="Path or URL of the store; `--store` overrides it.")]
    plot: Annotated[
        str | None, Meta(description="File of the picture; its suffix chooses the format.")
    ] = None
    save: Annotated[
        tuple[Stored, ...],
        Meta(description="What is kept at every time: observables, the density matrix, or both."),
    ] = ("observables",)


class Config(_Table, kw_only=True, frozen=True):
    """A whole file: [system] and [[bath]], or `build` in their place."""

    title: Annotated[str, Meta(description="Names the sweep, in the store and the picture.")] = ""
    build: Annotated[
        str | None,
        Meta(
            description='"module:function" in Python that builds one point, as for `hd.Sweep`; '
            "its attribute `observables` names operators."
        ),
    ] = None
    system: Annotated[SystemTable | None, Meta(description="The system.")] = None
    bath: Annotated[list[BathTable], Meta(description="Its baths.")] = []
    lindblad: Annotated[list[LindbladTable], Meta(description="Lindblad dissipators.")] = []
    sweep: Annotated[SweepTable, Meta(description="The grid.")] = msgspec.field(
        default_factory=SweepTable
    )
    solve: Annotated[SolveTable, Meta(description="How every point is solved.")]
    output: Annotated[OutputTable, Meta(description="Where the results go.")]


def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    return msgspec.json.schema(Config)
