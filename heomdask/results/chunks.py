"""The chunk files of a store: how a worker reads and commits a shard.

Takes: the folder of a store and what its variables look like.
Gives: `Files`, which reads and atomically replaces one chunk of one variable.
Next file: `store.py`, which creates and extends the zarr arrays around these files.

A chunk is a plain little-endian array under zarr's default name (``<variable>/c.0.1.2``, one folder
a variable; codec "bytes", no compression: density matrices do not compress). Writing it without the
zarr library takes a seventh of the time and gives what resuming stands on: a file is there as a
whole or not at all, whenever the process is killed. A test holds both ways equal.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.errors import StoreError
from heomdask.outcome import Outcome
from heomdask.results.folder import Folder

Shard = tuple[int, ...]  # which block of points, one number a dimension
SOLVED = np.isin(np.arange(256), [outcome for outcome in Outcome if outcome.solved])  # by code
MISSING = {"f": np.nan, "c": complex(np.nan, np.nan), "u": 0, "i": 0}  # by kind of dtype


@dataclass(frozen=True)
class Variable:
    """One array of a store; its leading dimensions are those of the points.

    Attributes
    ----------
    name : of the array.
    dtype : "float64", "complex128" or "uint8".
    tail : (name, length) of the dimensions of one point's value, such as (("time", 101),).
    attrs : what is said about it in the store.
    """

    name: str
    dtype: str
    tail: tuple[tuple[str, int], ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one point's value."""
        return tuple(length for _, length in self.tail)

    @property
    def missing(self) -> Any:
        """What unwritten points hold: NaN, never zero (0, pending, for `status`)."""
        return MISSING[np.dtype(self.dtype).kind]

    @property
    def point_nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Files:
    """The chunk files of one store.

    Attributes
    ----------
    folder : of the store.
    shard : points of a shard along each dimension.
    variables : all arrays that shards consist of, `status` last: it is written after the data.
    stem : how the names of chunk files begin; zarr sees those with a "c" only.
    run : the file that stands for the run whose tasks write them; "" for anybody.
    """

    folder: Folder
    shard: tuple[int, ...]
    variables: tuple[Variable, ...]
    stem: str = "c"
    run: str = ""

    @functools.cached_property
    def _by_name(self) -> dict[str, Variable]:
        return {v.name: v for v in self.variables}

    def variable(self, name: str) -> Variable:
        return self._by_name[name]

    def blank(self, variable: Variable) -> NDArray[Any]:
        """A shard of which nothing is known yet."""
        return np.full((*self.shard, *variable.shape), variable.missing, dtype=variable.dtype)

    def blanks(self) -> dict[str, NDArray[Any]]:
        """The same of every variable."""
        return {v.name: self.blank(v) for v in self.variables}

    def chunk(self, name: str, shard: Shard) -> str:
        """The name of a chunk file."""
        return self._place(shard) + self._tail(name)

    def _place(self, shard: Shard) -> str:
        return ".".join([self.stem, *map(str, shard)])

    def _tail(self, name: str) -> str:
        return ".0" * len(self.variable(name).tail)

    def file(self, name: str, shard: Shard) -> str:
        """The same in the store's folder."""
        return f"{name}/{self.chunk(name, shard)}"

    def nbytes(self, name: str) -> int:
        """Of a chunk file; all of a variable are equal."""
        return self.variable(name).point_nbytes * math.prod(self.shard)

    def survey(
        self, extents: Sequence[int]
    ) -> tuple[dict[Shard, NDArray[Any]], dict[Shard, list[str]]]:
        """The status of all shards that have one, and the damaged files of shards.

        Points of a damaged shard that have values count as pending. `status` is read before the
        other files are looked for, as it is written after them.
        """
        counts = [-(-n // s) for n, s in zip(extents, self.shard, strict=True)]
        places = {shard: self._place(shard) for shard in np.ndindex(*counts)}
        written, nbytes = self.folder.sizes("status"), self.nbytes("status")
        whole: list[Shard] = []
        damaged: dict[Shard, list[str]] = {}
        for shard, place in places.items():
            size = written.get(place)
            if size == nbytes:
                whole.append(shard)
            elif size is not None:
                damaged[shard] = [self.file("status", shard)]
        codes = self.read_shards("status", whole)
        solved = {shard for shard, found in codes.items() if SOLVED[found].any()}
        for name in (v.name for v in self.variables[:-1]):
            sizes, nbytes, tail = self.folder.sizes(name), self.nbytes(name), self._tail(name)
            for shard, place in places.items():
                size = sizes.get(place + tail)
                if size != nbytes and (size is not None or shard in solved):
                    damaged.setdefault(shard, []).append(self.file(name, shard))
        for shard in damaged.keys() & codes.keys():
            codes[shard][SOLVED[codes[shard]]] = Outcome.PENDING
        return codes, damaged

    def read(self, name: str, shard: Shard) -> NDArray[Any]:
        """A shard's values (writable), blank where the file is missing."""
        return self.read_shards(name, [shard])[shard]

    def read_shards(self, name: str, shards: Sequence[Shard]) -> dict[Shard, NDArray[Any]]:
        """The same of several shards."""
        found = self._read([(name, shard) for shard in shards])
        return {shard: values for (_, shard), values in found.items()}

    def read_all(self, shard: Shard) -> dict[str, NDArray[Any]]:
        """The same of every variable."""
        found = self._read([(v.name, shard) for v in self.variables])
        return {name: values for (name, _), values in found.items()}

    def _read(self, wanted: Sequence[tuple[str, Shard]]) -> dict[tuple[str, Shard], NDArray[Any]]:
        files = {(name, shard): self.file(name, shard) for name, shard in wanted}
        there = self.folder.read(files.values())
        if len(there) < len(files):
            self.folder.require()
        found = {}
        for (name, shard), file in files.items():
            raw = there.get(file)
            if raw is None:
                found[name, shard] = self.blank(self.variable(name))
            elif len(raw) != self.nbytes(name):
                raise damaged_chunk(f"{self.folder}/{file}")
            else:
                found[name, shard] = self._values(name, raw)
        return found

    def whole(self, shard: Shard) -> dict[str, NDArray[Any]] | None:
        """All values of a shard, if none of its files is missing or damaged."""
        files = {v.name: self.file(v.name, shard) for v in self.variables}
        there = self.folder.read(files.values())
        found = {name: there.get(file, b"") for name, file in files.items()}
        if any(len(raw) != self.nbytes(name) for name, raw in found.items()):
            return None
        return {name: self._values(name, raw) for name, raw in found.items()}

    def _values(self, name: str, raw: bytes) -> NDArray[Any]:
        variable = self.variable(name)
        values = np.frombuffer(raw, np.dtype(variable.dtype).newbyteorder("<"))
        return values.astype(variable.dtype).reshape((*self.shard, *variable.shape))

    def commit(self, shard: Shard, values: Mapping[str, NDArray[Any]]) -> None:
        """Replace a shard: every variable's file as a whole, `status` after all others.

        A task that outlived its run, since the client or the scheduler was killed, writes nothing:
        the next run may have computed more of the shard.
        """
        self.folder.require()
        if self.run and not self.folder.read([self.run]):
            raise StoreError(f"the store {self.folder} belongs to another run by now.")
        contents = {}
        for variable in self.variables:
            dtype = np.dtype(variable.dtype).newbyteorder("<")
            data = np.ascontiguousarray(values[variable.name], dtype=dtype)
            contents[self.file(variable.name, shard)] = data.reshape(-1).view(np.uint8).data
        status = self.file("status", shard)
        self.folder.write({name: data for name, data in contents.items() if name != status})
        self.folder.write({status: contents[status]})

    def begin(self) -> Files:
        """The same files for the tasks of a new run, which is the only one that writes from now.

        Each run has a file of its own: a name that was never there before is in no cache.
        """
        earlier = [f"status/{n}" for n in self.folder.sizes("status") if n.startswith("run.")]
        run = f"status/run.{uuid.uuid4().hex}"
        self.folder.write({run: b"its tasks may write"})
        self.folder.delete(earlier)
        return dataclasses.replace(self, run=run)


def damaged_chunk(file: str) -> StoreError:
    """The error for a chunk file that is cut off, or gone though its points were computed."""
    return StoreError(
        f"the chunk file {file} is damaged or missing; run the sweep again on its store: the "
        "points of that file are computed again, all others stay."
    )
