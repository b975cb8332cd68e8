"""Expansions made once: a sweep meets the same bath at many points, and advice tries it before.

Takes: a bath and a method.
Gives: `Keyed`, a bath as the key of a cache, and `expand_once`, its exponents with their warnings.
Next file: `report.py`, which says how good they are.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, field

from heomdask.expansion.methods import Expansion, expand
from heomdask.expansion.notices import collected
from heomdask.model.bath import Bath, ThermalBath
from heomdask.model.exponents import Exponents
from heomdask.model.problem import FORMULAS


@dataclass(frozen=True)
class Keyed:
    """A bath that is equal to every other of the same content and the same J(w)."""

    identity: Hashable
    bath: Bath = field(compare=False)

    @classmethod
    def of(cls, bath: Bath) -> Keyed:
        if type(bath) in FORMULAS:
            return cls(bath, bath)  # type: ignore[arg-type]  # these have a hash
        return cls((bath.digest, bath.answers() if isinstance(bath, ThermalBath) else ""), bath)


@functools.lru_cache(maxsize=4096)
def expand_once(keyed: Keyed, method: Expansion | None) -> tuple[Exponents, tuple[str, ...]]:
    """The bath's exponents, and what there is to warn of, which is left to the caller.

    A bath that is given as exponents needs no method.
    """
    with collected() as notices:
        return expand(keyed.bath, method), tuple(notices)
