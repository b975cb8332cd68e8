"""Expansions: a bath's correlation function as finitely many exponents.

Takes: a bath from `model/` and a method.
Gives: `Exponents`, and an estimate of their error.
Next file: `poles.py`, then `rational.py`, `methods.py`, `aaa.py`, `esprit.py`, `notices.py`,
`report.py`.
"""

from heomdask.expansion.aaa import AAA
from heomdask.expansion.esprit import ESPRIT
from heomdask.expansion.methods import Expansion, Matsubara, Pade, expand
from heomdask.expansion.notices import collected, warn
from heomdask.expansion.report import diagonal_form, expansion_error

__all__ = [
    "AAA",
    "ESPRIT",
    "Expansion",
    "Matsubara",
    "Pade",
    "collected",
    "diagonal_form",
    "expand",
    "expansion_error",
    "warn",
]
