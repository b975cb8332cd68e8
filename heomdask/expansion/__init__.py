"""Expansions: a bath's correlation function as finitely many exponents.

Takes: a bath from `model/` and a method.
Gives: `Exponents`, and an estimate of their error.
Next file: `poles.py`, then `rational.py`, `methods.py`, `report.py`.
"""

from heomdask.expansion.methods import Expansion, Matsubara, Pade, expand

__all__ = ["Expansion", "Matsubara", "Pade", "expand"]
