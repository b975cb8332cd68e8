"""What a steady state is returned as.

Takes: arrays collected by `steady.py`.
Gives: `SteadyState`.
Next file: `dataset.py`, the labelled form of a whole sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from heomdask.errors import InputError
from heomdask.outcome import Outcome
from heomdask.results.solution import Ados, Complex

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class SteadyState:
    """The steady state of one problem.

    Attributes
    ----------
    rho : (d, d), trace 1, or None if not saved.
    observables : name -> number, real for Hermitian observables.
    outcome : how it ended; ``outcome.advice`` says what to do about it.
    ados : the whole hierarchy, unscaled, or None if not saved; `guess` of a neighbouring problem,
        or `rho0` of `hd.evolve`.
    stats : `applications` of the generator in all, and those spent on each question
        (`applications_unique`, `applications_stable`, `applications_solve`); `residual`, the norm
        of G x; `gap`, by which the residual was judged: the smallest ``|G v|`` that was met of a v
        of norm 1 and trace 0, as a rule no more than the slowest rate of relaxation; `rightmost`,
        the largest real part of an eigenvalue that was found, and the residual of that pair;
        seconds of each step, ...
    dims : tensor structure in QuTiP's form.
    """

    rho: Complex | None
    observables: Mapping[str, float | complex]
    outcome: Outcome
    ados: Ados | None = field(default=None, repr=False)
    stats: Mapping[str, Any] = field(default_factory=dict, repr=False)
    dims: list[list[int]] = field(default_factory=list)

    def to_xarray(self) -> xarray.Dataset:
        """A labelled dataset: `rho` (i, j), each observable a number, stats as attributes."""
        import xarray

        data: dict[str, Any] = {name: ((), value) for name, value in self.observables.items()}
        coords: dict[str, Any] = {}
        if self.rho is not None:
            data["rho"] = (("i", "j"), self.rho)
            coords["i"] = coords["j"] = np.arange(len(self.rho))
        plain = {k: v for k, v in self.stats.items() if isinstance(v, (str, int, float))}
        return xarray.Dataset(data, coords, {"outcome": self.outcome.name.lower(), **plain})

    def to_qutip(self) -> Any:
        """The density matrix as a QuTiP `Qobj` with the problem's `dims`."""
        import qutip

        if self.rho is None:
            raise InputError('`save` must contain "rho" for a QuTiP state, got a run without it.')
        return qutip.Qobj(self.rho, dims=self.dims)
