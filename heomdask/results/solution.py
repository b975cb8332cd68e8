"""What a run returns.

Takes: arrays collected by `solve.py`.
Gives: `Solution` for one problem, `BatchResult` for many, and `Ados`, from which a run restarts;
    `SAVE`, the words that say what of it is kept.
Next file: `dataset.py`, the labelled form of a whole sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from heomdask.errors import InputError
from heomdask.outcome import Outcome

if TYPE_CHECKING:
    import xarray

Complex = NDArray[np.complex128]

Stored = Literal["rho", "observables"]  # words of `save` that a store knows
STORED: tuple[str, ...] = get_args(Stored)
SAVE = (*STORED, "ados")  # all of them: the whole hierarchy is for single runs


@dataclass(frozen=True, eq=False)
class Ados:
    """All auxiliary density operators at one time, unscaled.

    ``evolve(..., rho0=ados)`` goes on exactly where the first run stopped. Going on from
    ``ados.rho`` alone is another experiment: the bath is then back in its own equilibrium and
    has forgotten the system.

    Attributes
    ----------
    values : (n_ado, d, d); row 0 is the reduced density matrix.
    indices : (n_ado, n_modes), the multi-index n of each ADO; empty where it is not known.
    modes : digest of the modes (gamma, c, cbar, lateral) that the indices count; "" where it is
        not known.
    """

    values: Complex
    indices: NDArray[np.integer[Any]]
    modes: str = ""

    @property
    def rho(self) -> Complex:
        """The reduced density matrix (d, d)."""
        first: Complex = self.values[0]
        return first

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=True if copy is None else copy)


@dataclass(frozen=True, eq=False)
class Solution:
    """One run.

    Attributes
    ----------
    times : (T,), internal units (fs where the problem's energies are in rad/fs).
    rho : (T, d, d), or None if not saved.
    observables : name -> (T,), real for Hermitian observables of Hermitian states.
    outcome : how it ended; ``outcome.advice`` says what to do about it.
    ados : the hierarchy at the last time, or None if it was not asked for.
    ados_at_times : (T, n_ado, d, d), unscaled; only with "ados" in `save`.
    stats : method, applications of the generator, ADOs, seconds of each step, ...
    dims : tensor structure in QuTiP's form.
    """

    times: NDArray[np.float64]
    rho: Complex | None
    observables: Mapping[str, NDArray[Any]]
    outcome: Outcome
    ados: Ados | None = field(default=None, repr=False)
    ados_at_times: Complex | None = field(default=None, repr=False)
    stats: Mapping[str, Any] = field(default_factory=dict, repr=False)
    dims: list[list[int]] = field(default_factory=list)

    def to_xarray(self) -> xarray.Dataset:
        """A labelled dataset: `rho` (time, i, j), each observable (time), stats as attributes."""
        import xarray

        data: dict[str, Any] = {n: ("time", v) for n, v in self.observables.items()}
        coords: dict[str, Any] = {"time": self.times}
        if self.rho is not None:
            data["rho"] = (("time", "i", "j"), self.rho)
            coords["i"] = coords["j"] = np.arange(self.rho.shape[-1])
        plain = {k: v for k, v in self.stats.items() if isinstance(v, (str, int, float))}
        return xarray.Dataset(data, coords, {"outcome": self.outcome.name.lower(), **plain})

    def to_qutip(self) -> Any:
        """A QuTiP `Result` with `times`, `states` and `e_data`.

        The states carry the problem's `dims`; the observables stand under their names.
        """
        import qutip
        from qutip.solver.result import Result

        if self.rho is None:
            raise InputError('`save` must contain "rho" for QuTiP states, got a run without them.')
        options = {"store_states": True, "store_final_state": True, "normalize_output": False}
        result = Result({}, options, solver="heomdask", stats=dict(self.stats))
        for time, matrix in zip(self.times, self.rho, strict=True):
            result.add(float(time), qutip.Qobj(matrix, dims=self.dims))
        result.e_data.update({name: list(values) for name, values in self.observables.items()})
        return result


@dataclass(frozen=True, eq=False)
class BatchResult:
    """Many runs that share one hierarchy and one list of times; members first.

    Attributes
    ----------
    times : (T,).
    rho : (M, T, d, d), or None if not saved.
    observables : name -> (M, T), real for Hermitian observables of Hermitian states.
    outcomes : M of them.
    stats : M of them.
    ados : M of them, or None if not asked for.
    ados_at_times : (M, T, n_ado, d, d), or None if not asked for.
    """

    times: NDArray[np.float64]
    rho: Complex | None
    observables: Mapping[str, NDArray[Any]]
    outcomes: list[Outcome]
    stats: list[dict[str, Any]]
    ados: list[Ados] | None = None
    ados_at_times: Complex | None = None

    def __len__(self) -> int:
        return len(self.outcomes)

    def take(self, members: NDArray[np.intp]) -> BatchResult:
        """The results of some members."""
        chosen = members.tolist()
        return BatchResult(
            self.times,
            None if self.rho is None else self.rho[members],
            {name: values[members] for name, values in self.observables.items()},
            [self.outcomes[m] for m in chosen],
            [self.stats[m] for m in chosen],
            None if self.ados is None else [self.ados[m] for m in chosen],
            None if self.ados_at_times is None else self.ados_at_times[members],
        )

    @classmethod
    def joined(cls, parts: Sequence[tuple[NDArray[np.intp], BatchResult]]) -> BatchResult:
        """Results without ADOs, each with the places of its members, as one."""
        places, results = zip(*parts, strict=True)
        whole = BatchResult(
            results[0].times,
            None if results[0].rho is None else np.concatenate([r.rho for r in results]),
            {
                name: np.concatenate([r.observables[name] for r in results])
                for name in results[0].observables
            },
            [outcome for r in results for outcome in r.outcomes],
            [own for r in results for own in r.stats],
        )
        return whole.take(np.argsort(np.concatenate(places)))

    def solution(self, member: int, dims: list[list[int]]) -> Solution:
        """One member as a `Solution`."""
        return Solution(
            times=self.times,
            rho=None if self.rho is None else self.rho[member],
            observables={n: v[member] for n, v in self.observables.items()},
            outcome=self.outcomes[member],
            ados=None if self.ados is None else self.ados[member],
            ados_at_times=None if self.ados_at_times is None else self.ados_at_times[member],
            stats=self.stats[member],
            dims=dims,
        )
