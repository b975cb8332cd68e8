"""The zarr store of a sweep: created, opened, extended, resumed.

Takes: a `Layout` (dimensions with their coordinates, variables, shard shape, attributes).
Gives: `Store`, the arrays on disk, and `failures`, the side record of what went wrong.
Next file: `wording.py`, then `dataset.py`, the store as a labelled dataset.

zarr format 3, no consolidated metadata, fill value NaN. Only the driver changes metadata; workers
replace whole chunk files (`chunks.py`). The committed extents stand in the attributes and are
written last when the store grows, so a store whose growth was interrupted is healed on opening.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask.errors import HeomdaskWarning, StoreError
from heomdask.outcome import Outcome
from heomdask.results.chunks import Files, Shard, Variable
from heomdask.results.folder import GROUP, Folder, deleted

if TYPE_CHECKING:
    import zarr

FORMAT = 1
OURS = ("dimensions", "extents", "shard", "variables")  # attributes that this file keeps
THEIRS = ("specification", "digest", "probes", "observables")  # and those that every store has
TEXTS = ("error", "traceback")  # strings per point; written only where a point failed
_NO_CODEC: dict[str, Any] = {"compressors": None, "filters": None}
_FLAT: dict[str, Any] = {
    "name": "default",
    "separator": ".",
}  # chunk files side by side: no folder for each index


@dataclass(frozen=True)
class Coordinate:
    """One array of axis values: its dimension, its values as written, their unit."""

    name: str
    dimension: str
    values: NDArray[Any]
    unit: str | None = None


@dataclass(frozen=True)
class Layout:
    """All that is needed to create a store.

    Attributes
    ----------
    dimensions : names of the points' dimensions, in order.
    extents : their lengths.
    coordinates : of the points' dimensions, and of the variables' own (`time`).
    variables : in the order in which a shard is written, `status` last.
    shard : points of a shard along each dimension.
    attrs : of the group: the specification, its digest, ...
    """

    dimensions: tuple[str, ...]
    extents: tuple[int, ...]
    coordinates: tuple[Coordinate, ...]
    variables: tuple[Variable, ...]
    shard: tuple[int, ...]
    attrs: Mapping[str, Any]


def status_variable() -> Variable:
    """`status`: one code of `Outcome` a point."""
    attrs = {
        "long_name": "outcome of the point",
        "flag_values": [int(o) for o in Outcome],
        "flag_meanings": " ".join(o.name.lower() for o in Outcome),
    }
    return Variable("status", "uint8", (), attrs)


class Store:
    """A store on disk, as the driver sees it."""

    def __init__(self, folder: Folder, group: zarr.Group) -> None:
        self.folder = folder
        self.group = group
        self.attrs: dict[str, Any] = dict(group.attrs)
        for name in OURS + THEIRS:
            if name not in self.attrs:
                raise damaged_metadata(str(folder), f"it lacks the attribute {name!r}")
        self.dimensions: tuple[str, ...] = tuple(self.attrs["dimensions"])
        self.extents: tuple[int, ...] = tuple(self.attrs["extents"])
        shard: tuple[int, ...] = tuple(self.attrs["shard"])
        names = self.attrs["variables"]
        self.files = Files(folder, shard, tuple(self._variable(n, shard) for n in names))
        axes = [name for axis in self.attrs["specification"]["axes"] for name in axis["names"]]
        arrays = folder.read(f"{name}/zarr.json" for name in folder.names() if name != GROUP)
        others = {*axes, *TEXTS, *(file.removesuffix("/zarr.json") for file in arrays)}
        for name in others.difference(names):
            self._array(name)

    # -- opening ---------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Folder, layout: Layout) -> Store:
        """A new store, made in memory; it is one only when it is whole."""
        attrs = {
            "heomdask_store": FORMAT,
            **layout.attrs,
            "dimensions": list(layout.dimensions),
            "extents": list(layout.extents),
            "shard": list(layout.shard),
            "variables": [v.name for v in layout.variables],
        }
        folder.create(_files(layout, attrs))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Folder) -> Store:
        """An existing store of this package; anything else is refused."""
        import zarr

        if not folder.exists(GROUP):
            if not folder.names():
                raise StoreError(
                    f"`store` must be a heomdask store, got {folder}, where nothing is."
                )
            raise StoreError(
                f"`store` must be a heomdask store, or for a new one a path where nothing is yet, "
                f"got {folder}, which has no zarr.json; choose another path."
            )
        try:
            group = zarr.open_group(folder.zarr(), mode="r+", use_consolidated=False)
        except Exception as error:
            raise damaged_metadata(str(folder), str(error)) from error
        found = group.attrs.get("heomdask_store")
        if found is None:
            raise StoreError(
                f"`store` must be a heomdask store, got {folder}, whose zarr.json another program "
                "wrote or damaged; choose another path, or put a copy of that file back."
            )
        if found != FORMAT:
            raise StoreError(
                f"`store` must have format {FORMAT} for this version of heomdask, got {folder} "
                f"with format {found}; use the version that made it."
            )
        return cls(folder, group)

    def _array(self, name: str) -> zarr.Array[Any]:
        import zarr

        try:
            array = self.group[name]
        except Exception as error:
            raise damaged_metadata(f"{self.folder}/{name}", str(error)) from error
        if not isinstance(array, zarr.Array):
            raise damaged_metadata(f"{self.folder}/{name}", "it is no array")
        return array

    def _variable(self, name: str, shard: tuple[int, ...]) -> Variable:
        """What an array is, after a check that a shard is one chunk of it."""
        array = self._array(name)
        names = array.metadata.dimension_names or ()  # type: ignore[union-attr]  # only format 2 has none
        if len(names) != array.ndim:
            raise damaged_metadata(f"{self.folder}/{name}", "it does not name its dimensions")
        tail_names = names[len(shard) :]
        tail = tuple(zip(map(str, tail_names), array.shape[len(shard) :], strict=True))
        if array.chunks != (*shard, *array.shape[len(shard) :]) or array.compressors:
            raise StoreError(
                f"the store {self.folder} is damaged: {name!r} has chunks {array.chunks} where a "
                f"shard is {shard}; two writers in one chunk would lose points. Use another store."
            )
        return Variable(name, str(array.dtype), tail, dict(array.attrs))

    # -- use -------------------------------------------------------------------------------------

    def driving(self) -> contextlib.AbstractContextManager[None]:
        """Hold the store as its only driver."""
        return self.folder.driving()

    def status(self) -> NDArray[np.uint8]:
        """Codes of `Outcome` on the whole grid; points whose files are damaged are pending."""
        full = [-(-n // s) * s for n, s in zip(self.extents, self.files.shard, strict=True)]
        result = np.zeros(full, dtype=np.uint8)
        for shard, codes in self.files.survey(self.extents)[0].items():
            block = tuple(
                slice(i * s, (i + 1) * s) for i, s in zip(shard, self.files.shard, strict=True)
            )
            result[block] = codes
        return result[tuple(slice(n) for n in self.extents)]

    def commits(self) -> list[tuple[float, int]]:
        """When each shard was written last, in order, and how many points it has."""
        written = self.folder.written("status")
        found = []
        for shard, codes in self.files.survey(self.extents)[0].items():
            if (when := written.get(self.files.chunk("status", shard))) is not None:
                blank = np.isin(codes, (Outcome.PENDING, Outcome.NOT_NEEDED))
                found.append((when, int(np.count_nonzero(~blank))))
        return sorted(found)

    def damaged(self) -> list[str]:
        """Chunk files that are cut off, or gone though their points were computed."""
        damaged = self.files.survey(self.extents)[1]
        return [f"{self.folder}/{file}" for files in damaged.values() for file in files]

    def dtype(self, name: str) -> np.dtype[Any]:
        """In what the values of a coordinate are kept."""
        return np.dtype(self._array(name).dtype)

    def labels(self, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Values of the coordinates along one dimension, as tuples in the store's order."""
        return list(zip(*(self._coordinate(name) for name in names), strict=True))

    def _coordinate(self, name: str) -> list[Any]:
        array = self._array(name)
        try:
            if not array.nchunks_initialized:
                raise FileNotFoundError("its values are missing")
            values: list[Any] = np.asarray(array[:]).tolist()
        except Exception as error:
            raise StoreError(
                f"the chunk file in {self.folder}/{name} is damaged ({error}); put a copy of it "
                "back, or use another store."
            ) from error
        return values

    def extend(self, extents: tuple[int, ...], added: tuple[Coordinate, ...]) -> Store:
        """Append axis values.

        Parameters
        ----------
        extents : the new ones, none smaller than before.
        added : the new values only, for every coordinate that grows.
        """
        self._resize(extents)
        ends = dict(zip(self.dimensions, extents, strict=True))
        for coordinate in added:
            first = ends[coordinate.dimension] - len(coordinate.values)
            self._array(coordinate.name)[first:] = coordinate.values
        self.group.attrs["extents"] = list(extents)
        return Store.open(self.folder)

    def heal(self) -> Store:
        """Cut what an interrupted growth left; make points of damaged files pending, with a word.

        What the other files of such points hold stays until they are computed again.
        """
        resized = self._resize(self.extents)
        codes, damaged = self.files.survey(self.extents)
        for shard, files in damaged.items():
            if shard in codes:
                self.folder.write({self.files.file("status", shard): codes[shard].tobytes()})
            self.folder.delete(files)
        if damaged:
            first = next(iter(damaged.values()))[0]
            warnings.warn(
                f"chunk files of {len(damaged)} shards are damaged or missing in the store, the "
                f"first is {self.folder}/{first}; their points are pending again.",
                HeomdaskWarning,
                stacklevel=4,
            )
        return Store.open(self.folder) if resized else self

    def _resize(self, extents: tuple[int, ...]) -> bool:
        """Give every array along the points' dimensions, coordinates too, these extents.

        Returns whether any had others.
        """
        sizes = dict(zip(self.dimensions, extents, strict=True))
        resized = False
        for _, array in self.group.arrays():
            names = array.metadata.dimension_names or ()  # type: ignore[union-attr]  # only format 2 has none
            shape = tuple(
                sizes.get(str(name), length)
                for name, length in zip(names, array.shape, strict=True)
            )
            if shape != array.shape:
                array.resize(shape)
                resized = True
        return resized

    def forget(self, outcome: Outcome) -> None:
        """Make points of an outcome pending again, and drop what was recorded of them."""
        found = np.argwhere(self.status() == outcome).tolist()
        for shard in {
            tuple(i // n for i, n in zip(p, self.files.shard, strict=True)) for p in found
        }:
            status = self.files.read("status", shard)
            status[status == outcome] = Outcome.PENDING
            self.folder.write({self.files.file("status", shard): status.tobytes()})
        if found:
            record_failures(self.folder, dict.fromkeys(map(tuple, found), ("", "")))


def record_failures(folder: Folder, records: Mapping[Shard, tuple[str, str]]) -> None:
    """Keep error text and traceback of failed points (index in the store -> texts).

    They lie in chunks like all else, so a shard's owner is their only writer.
    """
    import zarr

    try:
        group = zarr.open_group(folder.zarr(), mode="r+", use_consolidated=False)
    except FileNotFoundError:
        raise deleted(str(folder)) from None
    for point, texts in records.items():
        for name, text in zip(TEXTS, texts, strict=True):
            group[name][point] = text  # type: ignore[index]  # an array, not a group


def read_per_grid(store: Store, name: str) -> NDArray[np.float64]:
    """An array over the grid without its samples, NaN where nothing is known yet."""
    extents = dict(zip(store.dimensions, store.extents, strict=True))
    result = np.full([n for d, n in extents.items() if d != "sample"], np.nan)
    if name in store.group:
        known = np.asarray(store._array(name)[...])
        result[tuple(map(slice, known.shape))] = known
    return result


def write_per_grid(
    store: Store, name: str, values: NDArray[np.float64], attrs: Mapping[str, Any]
) -> None:
    """Keep such an array, whose chunk is replaced at once; only the driver writes it."""
    if name in store.group and store._array(name).shape == values.shape:
        store._array(name)[...] = values
        return
    store.group.create_array(
        name, data=values, overwrite=True, fill_value=np.nan, attributes=dict(attrs),
        dimension_names=[d for d in store.dimensions if d != "sample"], **_NO_CODEC,
    )  # fmt: skip


def damaged_metadata(place: str, what: str) -> StoreError:
    """The error for a zarr.json that cannot be used."""
    return StoreError(
        f"{place}/zarr.json is damaged or missing ({what}); put a copy of it back, or use "
        "another store."
    )


def _files(layout: Layout, attrs: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a new store, by their names in its folder."""
    import zarr

    files: dict[str, Any] = {}
    group = zarr.create_group(zarr.storage.MemoryStore(files), attributes=dict(attrs))
    for variable in layout.variables:
        _create_array(group, layout, variable)
    for name in TEXTS:
        group.create_array(
            name, shape=layout.extents, chunks=layout.shard, dtype="string",
            fill_value="", dimension_names=layout.dimensions, **_NO_CODEC,
        )  # fmt: skip
    for coordinate in layout.coordinates:
        _create_coordinate(group, coordinate)
    return {key: content.to_bytes() for key, content in files.items()}


def _create_array(group: zarr.Group, layout: Layout, variable: Variable) -> None:
    group.create_array(
        variable.name,
        shape=(*layout.extents, *variable.shape),
        chunks=(*layout.shard, *variable.shape),
        dtype=variable.dtype,
        fill_value=variable.missing,
        chunk_key_encoding=_FLAT,
        dimension_names=(*layout.dimensions, *(name for name, _ in variable.tail)),
        attributes=dict(variable.attrs),
        **_NO_CODEC,
    )


def _create_coordinate(group: zarr.Group, coordinate: Coordinate) -> None:
    text = coordinate.values.dtype.kind == "O"
    array = group.create_array(
        coordinate.name,
        shape=coordinate.values.shape,
        chunks=(max(1024, len(coordinate.values)),),
        dtype="string" if text else coordinate.values.dtype,
        dimension_names=(coordinate.dimension,),
        attributes={} if coordinate.unit is None else {"units": coordinate.unit},
        config={"write_empty_chunks": True},  # so that a missing file is noticed
        **_NO_CODEC,
    )
    array[:] = coordinate.values
