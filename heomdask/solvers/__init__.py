"""Integrators on any `BackendTraits`: they know plans and states, and no hierarchy."""

from heomdask.solvers.bounds import Bounds, field_of_values, rounding
from heomdask.solvers.drives import Drives
from heomdask.solvers.propagate import propagate
from heomdask.solvers.trajectory import Trajectory

__all__ = ["Bounds", "Drives", "Trajectory", "field_of_values", "propagate", "rounding"]
