"""What an estimate says: `Advice`.

Takes: nothing.
Gives: `Advice`, with its printed form.
Next file: `dephasing.py`, then `mixing.py` and `estimate.py`, which find it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heomdask import memory
from heomdask.expansion import Expansion
from heomdask.hierarchy.truncation import Truncation


@dataclass(frozen=True)
class Advice:
    """A depth and an expansion, and what they are estimated to be worth.

    Attributes
    ----------
    depth : whole number, or the truncation that was given.
    expansion : method for the baths that bring none of their own; None where all do.
    estimated_error : expansion_error + depth_error, of an element of rho.
    expansion_error, depth_error : its two parts.
    n_ado : number of ADOs that this takes.
    nbytes : memory that `hd.evolve` takes for it, at its peak, from a density matrix.
    error : what was aimed at.
    smaller : the best that does fit, with less depth or a shorter expansion, where this does not
        fit into the memory that is free here; else None.
    """

    depth: int | Truncation
    expansion: Expansion | None
    estimated_error: float
    expansion_error: float
    depth_error: float
    n_ado: int
    nbytes: int
    error: float
    smaller: Advice | None = field(default=None, compare=False)

    @property
    def sufficient(self) -> bool:
        """Whether the estimate lies within `error`: an estimate, which only a run can confirm."""
        return self.estimated_error <= self.error

    def __str__(self) -> str:
        verdict = "within" if self.sufficient else "above"
        text = f"{self._choice()}, {verdict} the {self.error:.1e} asked for"
        if self.smaller is not None:
            text += f"; too large for this machine, where this fits: {self.smaller._choice()}"
        return f"{text}. This is an estimate, not a run: hd.converge runs the real thing."

    def _choice(self) -> str:
        return (
            f"depth={self.depth}, expansion={self.expansion}: {self.n_ado:,} ADOs, "
            f"{memory.readable(self.nbytes)}, estimated error {self.estimated_error:.1e} "
            f"(expansion {self.expansion_error:.1e}, depth {self.depth_error:.1e})"
        )
