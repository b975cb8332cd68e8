"""Advice before a run: how deep a hierarchy, and how many exponents, a problem needs.

Takes: a `Problem` and its output times.
Gives: `advise` and `Advice`, an estimate in milliseconds.
Next file: `dephasing.py`, then `estimate.py`.
"""

from heomdask.advice.estimate import Advice, advise

__all__ = ["Advice", "advise"]
