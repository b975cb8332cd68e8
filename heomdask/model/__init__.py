"""The physics: systems, baths, temperatures, drives. No numerics of the hierarchy.

Takes: what the user wrote.
Gives: the public names below.
Next file: `exponents.py`.
"""

from heomdask.model.bath import Bath
from heomdask.model.brownian import UnderdampedBrownian
from heomdask.model.drives import Drive, Samples
from heomdask.model.drude import DrudeLorentz
from heomdask.model.exponents import Exponents
from heomdask.model.ohmic import Ohmic
from heomdask.model.problem import Coupling, Problem, counter_term
from heomdask.model.sampled import CorrelationFunction, SpectralDensity

__all__ = [
    "Bath",
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
]
