"""How a solve ended: values, each with advice.

Takes: nothing.
Gives: `Outcome`, an enum whose members carry a code for stores and a paragraph of advice.
Next file: `solvers/`, which return one per member.
"""

from __future__ import annotations

import enum


class Outcome(enum.IntEnum):
    """Codes are part of the store's format: they only ever grow."""

    PENDING = 0
    DONE = 1
    FAILED = 2
    UNSTABLE = 3
    NOT_CONVERGED = 4
    NOT_NEEDED = 5
    NOT_FINITE = 6
    TOO_MANY_STEPS = 7
    ROUNDING = 8
    NOT_UNIQUE = 9

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def good(self) -> bool:
        """Whether the numbers are fit for use."""
        return self in (Outcome.DONE, Outcome.ROUNDING)

    @property
    def solved(self) -> bool:
        """Whether the point has values, good or not."""
        return self not in (Outcome.PENDING, Outcome.FAILED, Outcome.NOT_NEEDED)

    @property
    def advice(self) -> str:
        return _ADVICE[self]


_ADVICE = {
    Outcome.PENDING: "Not computed yet.",
    Outcome.DONE: "Finished; the tolerance was met and nothing unphysical was seen.",
    Outcome.FAILED: "An error was raised while the point was set up or solved; its text is kept.",
    Outcome.UNSTABLE: (
        "The reduced density matrix left the physical range by far (its trace norm grew by more "
        "than 0.1), or the generator has an eigenvalue with a positive real part: the truncated "
        "hierarchy is unstable here. Raise `depth`; with a Matsubara terminator, use hd.Pade(N); "
        "at low temperature, raise N."
    ),
    Outcome.NOT_CONVERGED: (
        "The trace norm of the reduced density matrix rose by more than 0.001, which an exact "
        "map never does: the hierarchy is too shallow or the expansion too short. Raise `depth` "
        "or N; hd.advise and hd.converge tell by how much."
    ),
    Outcome.NOT_NEEDED: "Left out: the stopping rule was met without this sample.",
    Outcome.NOT_FINITE: (
        "The state became NaN or infinite. Look at the drives' values and at the rates; raise "
        "`depth` or use hd.Pade(N) if the hierarchy exploded."
    ),
    Outcome.TOO_MANY_STEPS: (
        "The step limit was reached: the generator is very stiff for these times. The fastest "
        "rates come from high Matsubara or Pade terms: use fewer with a terminator, or raise "
        "`tol`. Of a steady state: the residual stopped falling before `tol` was met; raise `tol`, "
        "or start from the `guess` of a neighbouring problem."
    ),
    Outcome.NOT_UNIQUE: (
        "There is more than one steady state: something is conserved (an operator that commutes "
        "with the Hamiltonian and all couplings), or parts of the system are not connected. What "
        "was found is one of many. The limit of one initial state comes from hd.evolve to a long "
        "time; else restrict the problem to one block, or couple the blocks."
    ),
    Outcome.ROUNDING: (
        "Rounding errors of so many steps may add up to more than `tol`, which nothing vouches "
        "for. Raise `tol`, or shorten the run."
    ),
}
