"""heomdask: ensembles of hierarchical equations of motion on a Dask cluster.

Takes: nothing; a name is imported when it is first used, so that ``import heomdask`` is quick.
Gives: the public names.
Next file: `model/problem.py`, where a user's work begins.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from heomdask import units as units
    from heomdask.advice import advise as advise
    from heomdask.batch import run_batch as run_batch
    from heomdask.convergence import converge as converge
    from heomdask.ensemble import SerialRunner as SerialRunner
    from heomdask.ensemble import StandardError as StandardError
    from heomdask.ensemble import Sweep as Sweep
    from heomdask.ensemble import Table as Table
    from heomdask.ensemble import axis as axis
    from heomdask.ensemble import mean as mean
    from heomdask.ensemble import open as open  # hd.open, as xarray's
    from heomdask.errors import BackendUnavailable as BackendUnavailable
    from heomdask.errors import HeomdaskError as HeomdaskError
    from heomdask.errors import HeomdaskWarning as HeomdaskWarning
    from heomdask.errors import InputError as InputError
    from heomdask.errors import SolveFailed as SolveFailed
    from heomdask.errors import StoreError as StoreError
    from heomdask.errors import TooLarge as TooLarge
    from heomdask.expansion import AAA as AAA
    from heomdask.expansion import ESPRIT as ESPRIT
    from heomdask.expansion import Matsubara as Matsubara
    from heomdask.expansion import Pade as Pade
    from heomdask.hierarchy.truncation import Depth as Depth
    from heomdask.hierarchy.truncation import ModeLimits as ModeLimits
    from heomdask.hierarchy.truncation import Weighted as Weighted
    from heomdask.model import CorrelationFunction as CorrelationFunction
    from heomdask.model import Coupling as Coupling
    from heomdask.model import Drive as Drive
    from heomdask.model import DrudeLorentz as DrudeLorentz
    from heomdask.model import Exponents as Exponents
    from heomdask.model import Ohmic as Ohmic
    from heomdask.model import Problem as Problem
    from heomdask.model import Samples as Samples
    from heomdask.model import SpectralDensity as SpectralDensity
    from heomdask.model import UnderdampedBrownian as UnderdampedBrownian
    from heomdask.model import counter_term as counter_term
    from heomdask.observables import interaction_energy as interaction_energy
    from heomdask.outcome import Outcome as Outcome
    from heomdask.preparation import prepare as prepare
    from heomdask.results.solution import Solution as Solution
    from heomdask.results.steady import SteadyState as SteadyState
    from heomdask.solve import as_linear_operator as as_linear_operator
    from heomdask.solve import evolve as evolve
    from heomdask.steady import steady_state as steady_state

_HOME = {
    "heomdask.advice": ("advise",),
    "heomdask.batch": ("run_batch",),
    "heomdask.convergence": ("converge",),
    "heomdask.ensemble": (
        "SerialRunner",
        "StandardError",
        "Sweep",
        "Table",
        "axis",
        "mean",
        "open",
    ),
    "heomdask.errors": (
        "BackendUnavailable",
        "HeomdaskError",
        "HeomdaskWarning",
        "InputError",
        "SolveFailed",
        "StoreError",
        "TooLarge",
    ),
    "heomdask.expansion": ("AAA", "ESPRIT", "Matsubara", "Pade"),
    "heomdask.hierarchy.truncation": ("Depth", "ModeLimits", "Weighted"),
    "heomdask.model": (
        "CorrelationFunction",
        "Coupling",
        "Drive",
        "DrudeLorentz",
        "Exponents",
        "Ohmic",
        "Problem",
        "Samples",
        "SpectralDensity",
        "UnderdampedBrownian",
        "counter_term",
    ),
    "heomdask.observables": ("interaction_energy",),
    "heomdask.outcome": ("Outcome",),
    "heomdask.preparation": ("prepare",),
    "heomdask.results.solution": ("Solution",),
    "heomdask.results.steady": ("SteadyState",),
    "heomdask.solve": ("as_linear_operator", "evolve"),
    "heomdask.steady": ("steady_state",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", "units", *sorted(_MODULE_OF)]  # all are strings


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name == "units":
        value = importlib.import_module("heomdask.units")
    else:
        raise AttributeError(f"module 'heomdask' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
