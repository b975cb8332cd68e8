"""Memory: what a run takes, what is free here, and the refusal of what cannot fit.

Takes: the size of a hierarchy, of a batch and of its output.
Gives: `Size`, which predicts bytes; `require`: nothing, or `TooLarge` with both numbers and a
    remedy, before any work starts.
Next file: `preparation.py`, which counts a hierarchy before it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from heomdask.errors import TooLarge

SMALL = 32_000_000  # bytes that always fit: asking the system takes longer than using them
STATES = {"constant": 9, "driven": 11}  # state vectors that a solver in time holds at once
LINK_BYTES = 128  # per ADO and mode: index tables of the plan and of a backend
_CGROUP = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")  # lines `number:controllers:path`; number 0 is version 2


def available() -> int:
    """Bytes that this process may still take: free memory, or less where a cgroup says so."""
    return max(0, min([int(psutil.virtual_memory().available), *_left_by_cgroups()]))


def _left_by_cgroups() -> Iterator[int]:
    """What is left in this process's group, and in every group around it, where they have limits.

    File pages that nobody uses count as left: they are dropped when memory runs short.
    """
    for folder, limit, usage, unused in _cgroups():
        try:
            most = (folder / limit).read_text().strip()
            used = int((folder / usage).read_text())
            if most != "max":
                yield int(most) - max(0, used - _entry(folder / "memory.stat", unused))
        except (OSError, ValueError):  # the group of the whole machine has no such files
            continue


def _cgroups() -> Iterator[tuple[Path, str, str, str]]:
    """Folders of groups, and in each the names of the limit, the usage and the unused file pages.

    In a container the path may be one of the host, whose folders are not seen here: its own group
    is then at the root.
    """
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = _CGROUP, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = _CGROUP / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = PurePosixPath(path.lstrip("/"))
        inside = [] if ".." in own.parts else [own, *own.parents]
        for folder in dict.fromkeys([*(root / p for p in inside), root]):
            yield (folder, *names)


def _entry(file: Path, name: str) -> int:
    """A number of a file of lines `name number`; 0 without it."""
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(pair[1]) for pair in pairs if pair[0] == name), 0)


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


def fits(nbytes: float, free: Callable[[], int] | None = None) -> bool:
    """Whether so many bytes are `free`, by default of the host's memory."""
    return nbytes < SMALL or nbytes <= (free or available)()


def readable(nbytes: float) -> str:
    """1234567890 -> '1.23 GB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} TB"


def require(nbytes: float, what: str, remedy: str, free: Callable[[], int] | None = None) -> None:
    """Raise `TooLarge` if `nbytes` is more than what is `free`, by default of the host's memory."""
    if not fits(nbytes, free):
        left = (free or available)()
        raise TooLarge(
            f"{what} needs about {readable(nbytes)} and {readable(left)} are free; {remedy}."
        )
