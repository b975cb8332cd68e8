"""The specification of a sweep: what is built at each point, over which axes, solved how.

Takes: the user's arguments.
Gives: `Sweep`: frozen, checked, picklable; `plan()` says what it needs, `run()` does it.
Next file: `session.py`, which brings a sweep and its store together.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, units
from heomdask.backends.registry import NAMES
from heomdask.ensemble.axes import RESERVED, Axis, axis, dimensions, sample_rng
from heomdask.ensemble.grid import Grid, Index
from heomdask.ensemble.stopping import rules
from heomdask.errors import InputError
from heomdask.observables import InteractionEnergy, Observable
from heomdask.results.folder import folder_of
from heomdask.results.solution import STORED
from heomdask.solvers.propagate import METHODS

if TYPE_CHECKING:
    import xarray
    from distributed import Client

    from heomdask.ensemble.cluster import Workers
    from heomdask.ensemble.plan import SweepPlan
    from heomdask.ensemble.runner import Runner, SerialRunner
    from heomdask.model.problem import Problem

SOLVER_AXES = ("depth", "expansion", "tol")


@dataclass(frozen=True)
class Point:
    """One point, built: a problem, its initial state, and how it is to be solved."""

    problem: Problem
    rho0: Any
    depth: Any
    expansion: Any
    tol: float
    error: float


@dataclass(frozen=True, eq=False)
class Sweep:
    """Many problems, solved alike, in one labelled store.

    Parameters
    ----------
    build : function of the axes by name (internal values), and of `rng` if there are `samples`,
        that returns ``(Problem, rho0)``. It must be picklable: it travels to the workers.
    over : the axes: ``{"T": hd.axis([77, 300], "K"), ...}``, outermost first; a tuple of names with
        a tuple of axes runs those together; a `Table` or a list of points gives one dimension
        `point`. Axes named `depth`, `expansion` or `tol` go to the solver, not to `build`.
    times : output times, ``hd.axis(range(0, 1001, 10), "fs")`` or internal numbers.
    depth, expansion : as in `hd.evolve`; "auto" is decided from each point alone.
    error : what "auto" aims at, as in `hd.advise`.
    samples : disorder samples at every point of the grid; sample s sees the same random numbers
        everywhere, whatever else the sweep holds.
    seed : of the samples.
    until : `hd.StandardError(...)`, or several, all of which must hold: a point of the grid whose
        mean is known that well needs no more samples, and `samples` is the most that it may get.
    tol : as in `hd.evolve`.
    observables : name -> operator (d, d), or `hd.interaction_energy(bath)`.
    save : "observables", "rho" or both; default: observables if there are any, else rho.
    method, backend : as in `hd.evolve`.
    title : names the sweep in a new store (``attrs["title"]``) and in pictures of it.
    """

    build: Callable[..., Any]
    over: Any = field(default_factory=dict, kw_only=True)
    times: Any = field(kw_only=True)
    depth: Any = field(default=None, kw_only=True)
    expansion: Any = field(default=None, kw_only=True)
    samples: int | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    until: Any = field(default=(), kw_only=True)
    error: float = field(default=1e-3, kw_only=True)
    tol: float = field(default=1e-6, kw_only=True)
    observables: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    save: Sequence[str] = field(default=(), kw_only=True)
    method: str = field(default="auto", kw_only=True)
    backend: str = field(default="auto", kw_only=True)
    title: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.build):
            raise checks.refuse("build", "a function that returns (Problem, rho0)", self.build)
        if self.samples is not None:
            self._set("samples", checks.whole_number("samples", self.samples, low=1))
        self._set("seed", checks.whole_number("seed", self.seed))
        self._set("error", checks.real_number("error", self.error, low=0.0, strict=True))
        self._set("tol", checks.tolerance("tol", self.tol))
        if isinstance(self.depth, np.integer):
            self._set("depth", int(self.depth))
        checks.choice("method", self.method, METHODS)
        checks.choice("backend", self.backend, NAMES)
        if not isinstance(self.title, str):
            raise checks.refuse("title", "a text", self.title)
        if not self.grid.names:
            raise InputError("`over` must name an axis, or `samples` be given; got neither.")
        self._set("times", _times(self.times))
        self._set("observables", _observables(self.observables, self.grid))
        self._set("save", _save(self.save, bool(self.observables)))
        stored = tuple(self.observables) if "observables" in self.save else ()
        self._set("until", rules(self.until, self.samples, stored))
        self._check_solver_axes()
        self._check_signature()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_solver_axes(self) -> None:
        varied = [n for n in self.parameter_names if n in SOLVER_AXES]
        for name in varied:
            if name != "tol" and getattr(self, name) is not None:
                raise InputError(f"`{name}` must be an axis or a value, got both; leave out one.")
        columns = dict(pair for d in self.grid.dimensions for pair in d.axes)
        if "tol" in columns:
            for value in columns["tol"].internal:
                checks.tolerance("over['tol']", value)

    def _check_signature(self) -> None:
        try:
            signature = inspect.signature(self.build)
        except (TypeError, ValueError):  # a compiled callable: it will say so itself
            return
        names = [n for n in self.parameter_names if n not in SOLVER_AXES]
        if self.samples is not None:
            names.append("rng")
        try:
            signature.bind(**dict.fromkeys(names))
        except TypeError as error:
            raise InputError(
                f"`build` must take the arguments ({', '.join(names)}): every axis by name"
                f"{', and `rng` since there are samples' if self.samples is not None else ''}; got "
                f"build{signature} ({error})."
            ) from None

    # -- points ----------------------------------------------------------------------------------

    @cached_property
    def grid(self) -> Grid:
        return Grid(dimensions(self.over), self.samples)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(name for d in self.grid.dimensions for name, _ in d.axes)

    def rng(self, index: Index) -> np.random.Generator | None:
        """The random numbers of a point, if there are samples; new ones each time."""
        sample = self.grid.sample(index)
        return None if sample is None else sample_rng(self.seed, sample)

    def point(self, index: Index, rng: np.random.Generator | None = None) -> Point:
        """Build one point, with `rng(index)`; whatever `build` raises comes through."""
        parameters = self.grid.parameters(index)
        solver = {n: parameters.pop(n, getattr(self, n)) for n in SOLVER_AXES}
        if self.samples is not None:
            parameters["rng"] = rng or self.rng(index)
        built = self.build(**parameters)
        if not isinstance(built, tuple) or len(built) != 2:
            raise checks.refuse("build", "a function that returns (Problem, rho0)", built)
        rho0 = built[1].copy() if isinstance(built[1], np.ndarray) else built[1]
        return Point(built[0], rho0, error=self.error, **solver)

    # -- identity --------------------------------------------------------------------------------

    @cached_property
    def specification(self) -> dict[str, Any]:
        """Everything but the extents and the stopping rules, as plain data."""
        return {
            "axes": [
                {
                    "dimension": d.name,
                    "names": [n for n, _ in d.axes],
                    "units": [a.unit for _, a in d.axes],
                    "kinds": [a.labels.dtype.kind for _, a in d.axes],
                }
                for d in self.grid.dimensions
            ],
            "samples": self.samples is not None,
            "seed": self.seed,
            "times": {
                "unit": self.times.unit,
                "number": len(self.times),
                "first": self.times.values[0],
                "last": self.times.values[-1],
                "digest": digest_of_bytes(np.array(self.times.values, dtype=np.float64).tobytes()),
            },
            "depth": repr(self.depth),
            "expansion": repr(self.expansion),
            "error": self.error,
            "tol": self.tol,
            "method": self.method,
            "observables": {
                n: repr(o) if isinstance(o, InteractionEnergy) else digest_of_bytes(o.tobytes())
                for n, o in self.observables.items()
            },
            "save": list(self.save),
        }

    @cached_property
    def digest(self) -> str:
        """Of the specification; two sweeps of one digest may share a store."""
        return digest_of_bytes(json.dumps(self.specification, sort_keys=True).encode())

    # -- action ----------------------------------------------------------------------------------

    def plan(
        self,
        store: str | Path | None = None,
        *,
        workers: int | Workers | None = None,
        retry_failed: bool = False,
    ) -> SweepPlan:
        """What the sweep needs: points, ADOs, memory, tasks, seconds, bytes of the store.

        Parameters
        ----------
        store : where it would go, a path or a URL; what is there already is left out.
        workers : how many of this machine share the work, or the `Workers` that will; default: one
            a core.
        retry_failed : as of `run`: points that failed before are to be computed, too.

        Raises
        ------
        TooLarge : if a point cannot fit in a worker's memory, or the store on its disk.
        """
        from heomdask.ensemble.plan import make_plan

        folder = None if store is None else folder_of(store)
        return make_plan(self, folder, workers, retry_failed=retry_failed)

    def run(
        self,
        store: str | Path,
        *,
        client: Client | Runner | Workers | None = None,
        progress: bool = True,
        retry_failed: bool = False,
    ) -> xarray.Dataset:
        """Compute all points that the store lacks. Run it again to resume or to extend.

        Parameters
        ----------
        store : of zarr; created, resumed, or extended by new values and samples. The path of a
            folder, or a URL: ``s3://bucket/name.zarr``, or of anything else that fsspec knows.
            Its settings for fsspec travel to the workers, credentials of the environment do not.
        client : a Dask client; a runner such as `SerialRunner()`; `Workers`, which are started if
            there is anything to compute; or None, for one single-threaded worker process on every
            core of this machine.
        progress : show a progress bar; without a terminal, a line now and then.
        retry_failed : try points again that an earlier run recorded as failed.

        Returns
        -------
        The dataset on the store, sorted by its axes, loaded on use.
        """
        from heomdask.ensemble.session import run

        return run(self, folder_of(store), client, progress=progress, retry_failed=retry_failed)

    def check_convergence(
        self,
        store: str | Path,
        *,
        client: Client | SerialRunner | Workers | None = None,
        progress: bool = True,
    ) -> xarray.Dataset:
        """Say how far the answers in a filled store are from those of larger hierarchies.

        Each point is solved again at depth + 1, and with one more term of its expansion; sample 0
        stands for all samples. At most 16 points of the grid are checked, of a larger grid its
        corners; what the store knows already is not computed again.

        Parameters
        ----------
        store : path or URL of the zarr store, after `run`.
        client : a Dask client; a `SerialRunner` computes here; None starts local workers.
        progress : show a progress bar; without a terminal, a line now and then.

        Returns
        -------
        The dataset on the store, now with `convergence_error`: the sum of the largest changes of
        any observable (of rho without observables) in both runs; NaN where it was not computed.
        """
        from heomdask.ensemble.convergence_check import check_convergence

        return check_convergence(self, folder_of(store), client, progress=progress)


def digest_of_bytes(data: bytes) -> str:
    """A short name of some bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def _times(value: Any) -> Axis:
    if not isinstance(value, Axis):
        value = axis(value) if isinstance(value, Iterable) else value
    if not isinstance(value, Axis):
        raise checks.refuse("times", "an ascending list of times", value)
    if value.unit is not None:
        units.convert(1.0, value.unit, "time", name="times")
    checks.times("times", value.values)
    internal: NDArray[np.float64] = checks.times("times", value.internal)
    floats = tuple(float(v) for v in value.values)
    return Axis(floats, value.unit, tuple(internal.tolist()))


def _observables(value: Any, grid: Grid) -> dict[str, Observable]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise checks.refuse("observables", "a mapping from names to operators", value)
    taken = RESERVED | {"count"} | {f"{name}_error" for name in value} | set(grid.names)
    taken |= {name for d in grid.dimensions for name, _ in d.axes}
    found: dict[str, Observable] = {}
    for name, operator in value.items():
        if not isinstance(name, str) or not name or "/" in name or name.startswith((".", "__")):
            raise checks.refuse("observables", "a mapping whose keys are names", name)
        if name in taken:
            raise InputError(
                f"`observables` must not use the name {name!r}, which the store needs for an axis "
                "or a variable of its own; rename it."
            )
        if isinstance(operator, InteractionEnergy):
            found[name] = operator
        else:
            found[name] = checks.square_matrix(f"observables[{name!r}]", operator)
    return found


def _save(value: Any, has_observables: bool) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else tuple(value or ())
    if not words:
        return ("observables",) if has_observables else ("rho",)
    for word in words:
        checks.choice("save", word, STORED)
    if "rho" not in words and not has_observables:
        raise InputError(
            '`save` must keep something, got "observables" without any; give `observables`, or '
            'save "rho".'
        )
    return tuple(w for w in STORED if w in words)
