"""Expansions: a bath's correlation function as finitely many exponents.

Takes: a bath from `model/` and a method.
Gives: `Exponents`, and an estimate of their error.
Next file: `poles.py`, then `rational.py`, `methods.py`, `cache.py`, `aaa.py`, `esprit.py`,
`notices.py`, `report.py`.
"""

from heomdask.expansion.aaa import AAA
from heomdask.expansion.cache import Keyed, expand_once
from heomdask.expansion.esprit import ESPRIT
from heomdask.expansion.methods import Expansion, Matsubara, Pade, expand
from heomdask.expansion.notices import warn
from heomdask.expansion.report import diagonal_form, expansion_error

__all__ = [
    "AAA",
    "ESPRIT",
    "Expansion",
    "Keyed",
    "Matsubara",
    "Pade",
    "diagonal_form",
    "expand",
    "expand_once",
    "expansion_error",
    "warn",
]
