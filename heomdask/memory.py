"""Memory: what a run takes, what is free here, and the refusal of what cannot fit.

Takes: the size of a hierarchy, of a batch and of its output.
Gives: `Size`, which predicts bytes; `require`: nothing, or `TooLarge` with both numbers and a
    remedy, before any work starts.
Next file: `preparation.py`, which counts a hierarchy before it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from heomdask.errors import TooLarge

SMALL = 32_000_000  # bytes that always fit: asking the system takes longer than using them
STATES = {"constant": 9, "driven": 11}  # state vectors that a solver in time holds at once
LINK_BYTES = 128  # per ADO and mode: index tables of the plan and of a backend
_CGROUP = Path("/sys/fs/cgroup")


def available() -> int:
    """Bytes that this process may still take: free memory, or less where a cgroup says so."""
    free = int(psutil.virtual_memory().available)
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - used))


@dataclass(frozen=True)
class Size:
    """What decides how much memory a hierarchy takes.

    Attributes
    ----------
    n_ado, d, n_modes : ADOs, of (d, d) each, and modes.
    real : whether an ADO is one real matrix, not a complex one.
    driven : whether anything depends on time.
    """

    n_ado: int
    d: int
    n_modes: int
    real: bool
    driven: bool

    def run_bytes(
        self,
        n_members: int = 1,
        n_times: int = 1,
        *,
        columns: float | None = None,
        save: Sequence[str] = ("rho", "observables"),
        final_ados: bool = False,
        states: int | None = None,
    ) -> int:
        """What a run takes at its peak.

        Parameters
        ----------
        n_members : of the batch, which are alike in size.
        columns : members that a state of the backend has room for, its padding included; default:
            no more than there are.
        n_times, save, final_ados : as for `run_batch`.
        states : state vectors that the solver holds at once; default: one in time.
        """
        elements = self.d * self.d * self.n_ado
        full = 16 * elements * n_members  # unscaled and complex, as a user gets it
        held = states or STATES["driven" if self.driven else "constant"]
        need = int(held * (8 if self.real else 16) * elements * (columns or n_members))
        need += LINK_BYTES * self.n_ado * self.n_modes
        need += 2 * full * final_ados + (n_times + 16) * full * ("ados" in save)
        need += 16 * self.d * self.d * n_times * n_members * ("rho" in save)
        return need


def fits(nbytes: float) -> bool:
    """Whether so many bytes are free."""
    return nbytes < SMALL or nbytes <= available()


def readable(nbytes: float) -> str:
    """1234567890 -> '1.23 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} TB"


def require(nbytes: float, what: str, remedy: str) -> None:
    """Raise `TooLarge` if `nbytes` is more than what is free."""
    if not fits(nbytes):
        raise TooLarge(
            f"{what} needs about {readable(nbytes)} and {readable(available())} are free; {remedy}."
        )
