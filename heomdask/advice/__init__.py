"""Advice before a run: how deep a hierarchy, and how many exponents, a problem needs.

Takes: a `Problem` and its output times.
Gives: `advise` and `Advice`, an estimate in a fraction of a second.
Next file: `advice.py`, then `dephasing.py`, `mixing.py` and `estimate.py`.
"""

from heomdask.advice.advice import Advice
from heomdask.advice.estimate import advise, rough_error

__all__ = ["Advice", "advise", "rough_error"]
