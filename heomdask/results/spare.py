"""Points that were computed and then not needed: out of sight, but not lost.

Takes: the chunk files of a store.
Gives: `Spare`, which hides points of a shard and brings them back.
Next file: `store.py`.

What a store shows must not depend on which points happened to be under way when a stopping rule was
met, so those beyond it show neither values nor outcomes. Their numbers wait beside the chunk files
under names that zarr does not look for; should they be needed again, they are not computed again.
Whenever the process is killed, a point is whole, hidden, or pending.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.outcome import Outcome
from heomdask.results.chunks import SOLVED, Files, Shard


class Spare:
    """The hidden points of one store."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._data = [v.name for v in files.variables[:-1]]
        self._hidden = dataclasses.replace(files, stem="spare")

    def hide(self, shard: Shard, points: NDArray[np.bool_]) -> list[Shard]:
        """Make points of a shard not needed; which of them had failed (indices in the shard)."""
        status = self._files.read("status", shard)
        if np.all(status[points] == Outcome.NOT_NEEDED):
            return []
        failed = np.argwhere(points & (status == Outcome.FAILED))
        solved = points & SOLVED[status]
        if solved.any():
            self._keep(shard, solved, status)
            status[points] = Outcome.PENDING
            self._write_status(self._files, shard, status)
        if SOLVED[status].any():
            values = self._files.read_all(shard)
            for name in self._data:
                values[name][points] = self._files.variable(name).missing
            status[points] = Outcome.NOT_NEEDED
            self._files.commit(shard, {**values, "status": status})
        else:
            self._delete(self._files, shard, self._data)
            status[points] = Outcome.NOT_NEEDED
            self._write_status(self._files, shard, status)
        return [tuple(place) for place in failed.tolist()]

    def recall(self, shard: Shard, points: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Bring points that were not needed back, with values or pending; the shard's status."""
        status: NDArray[np.uint8] = self._files.read("status", shard)
        status[points & (status == Outcome.NOT_NEEDED)] = Outcome.PENDING
        self._write_status(self._files, shard, status)
        kept = self._kept(shard)
        back = points & (status == Outcome.PENDING) & SOLVED[kept["status"]]
        if back.any():
            values = self._files.read_all(shard)
            values["status"] = status
            for name, value in values.items():
                value[back] = kept[name][back]
            self._files.commit(shard, values)
            kept["status"][back] = Outcome.PENDING
            if SOLVED[kept["status"]].any():
                self._write_status(self._hidden, shard, kept["status"])
            else:
                self._delete(self._hidden, shard, ["status"])
                self._delete(self._hidden, shard, self._data)
        return status

    def _keep(self, shard: Shard, points: NDArray[np.bool_], status: NDArray[np.uint8]) -> None:
        """Copy points to where they are hidden, beside those that are there."""
        values, kept = self._files.read_all(shard), self._kept(shard)
        values["status"] = status
        for name, value in values.items():
            kept[name][points] = value[points]
        self._hidden.commit(shard, kept)

    def _kept(self, shard: Shard) -> dict[str, NDArray[Any]]:
        """What is hidden of a shard; nothing if its files are damaged."""
        if self._files.folder.exists(self._hidden.file("status", shard)):
            whole = self._hidden.whole(shard)
            if whole is not None:
                return whole
            self._delete(self._hidden, shard, ["status"])
        return self._files.blanks()

    @staticmethod
    def _write_status(files: Files, shard: Shard, status: NDArray[np.uint8]) -> None:
        files.folder.write({files.file("status", shard): status.tobytes()})

    @staticmethod
    def _delete(files: Files, shard: Shard, names: Iterable[str]) -> None:
        files.folder.delete(files.file(name, shard) for name in names)
