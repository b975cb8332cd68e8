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
import fcntl
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heomdask.errors import HeomdaskWarning, StoreError
from heomdask.outcome import Outcome
from heomdask.results.chunks import (
    PARTIAL,
    Files,
    Shard,
    Variable,
    deleted,
    replace,
    sweep_leftovers,
)

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

    def __init__(self, path: Path, group: zarr.Group) -> None:
        self.path = path
        self.group = group
        self.attrs: dict[str, Any] = dict(group.attrs)
        for name in OURS + THEIRS:
            if name not in self.attrs:
                raise damaged_metadata(path, f"it lacks the attribute {name!r}")
        self.dimensions: tuple[str, ...] = tuple(self.attrs["dimensions"])
        self.extents: tuple[int, ...] = tuple(self.attrs["extents"])
        shard: tuple[int, ...] = tuple(self.attrs["shard"])
        names = self.attrs["variables"]
        self.files = Files(str(path), shard, tuple(self._variable(n, shard) for n in names))
        axes = [name for axis in self.attrs["specification"]["axes"] for name in axis["names"]]
        folders = [f.parent for f in path.glob("*/zarr.json")]
        others = {*axes, *TEXTS, *(f.name for f in folders if f.suffix != PARTIAL)}
        for name in others.difference(names):
            self._array(name)

    # -- opening ---------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, layout: Layout) -> Store:
        """A new store; it is one only when it is whole.

        Made in memory, written beside its place and renamed. An empty folder that stands there (a
        mount point, maybe) stays and is filled, with the metadata of the group last.
        """
        attrs = {
            "heomdask_store": FORMAT,
            **layout.attrs,
            "dimensions": list(layout.dimensions),
            "extents": list(layout.extents),
            "shard": list(layout.shard),
            "variables": [v.name for v in layout.variables],
        }
        name = f"{path.name}.{uuid.uuid4().hex}{PARTIAL}"
        partial = path / name if path.is_dir() else path.with_name(name)
        try:
            for key, content in _files(layout, attrs).items():
                file = partial / key
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            if path.is_dir():
                for part in sorted(partial.iterdir(), key=lambda p: p.name == "zarr.json"):
                    part.rename(path / part.name)
                partial.rmdir()
            else:
                partial.rename(path)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise unwritable(path, error) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Store:
        """An existing store of this package; anything else is refused."""
        import zarr

        if not path.exists():
            raise StoreError(f"`store` must be a heomdask store, got {path}, where nothing is.")
        if not (path / "zarr.json").exists():
            raise StoreError(
                f"`store` must be a heomdask store, or for a new one a path where nothing is yet, "
                f"got {path}, which has no zarr.json; choose another path."
            )
        try:
            group = zarr.open_group(str(path), mode="r+", use_consolidated=False)
        except Exception as error:
            raise damaged_metadata(path, str(error)) from error
        found = group.attrs.get("heomdask_store")
        if found is None:
            raise StoreError(
                f"`store` must be a heomdask store, got {path}, whose zarr.json another program "
                "wrote or damaged; choose another path, or put a copy of that file back."
            )
        if found != FORMAT:
            raise StoreError(
                f"`store` must have format {FORMAT} for this version of heomdask, got {path} with "
                f"format {found}; use the version that made it."
            )
        return cls(path, group)

    def _array(self, name: str) -> zarr.Array[Any]:
        import zarr

        try:
            array = self.group[name]
        except Exception as error:
            raise damaged_metadata(self.path / name, str(error)) from error
        if not isinstance(array, zarr.Array):
            raise damaged_metadata(self.path / name, "it is no array")
        return array

    def _variable(self, name: str, shard: tuple[int, ...]) -> Variable:
        """What an array is, after a check that a shard is one chunk of it."""
        array = self._array(name)
        names = array.metadata.dimension_names or ()  # type: ignore[union-attr]  # only format 2 has none
        if len(names) != array.ndim:
            raise damaged_metadata(self.path / name, "it does not name its dimensions")
        tail_names = names[len(shard) :]
        tail = tuple(zip(map(str, tail_names), array.shape[len(shard) :], strict=True))
        if array.chunks != (*shard, *array.shape[len(shard) :]) or array.compressors:
            raise StoreError(
                f"the store {self.path} is damaged: {name!r} has chunks {array.chunks} where a "
                f"shard is {shard}; two writers in one chunk would lose points. Use another store."
            )
        return Variable(name, str(array.dtype), tail, dict(array.attrs))

    # -- use -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the store as its only driver; leftovers of killed ones are swept away."""
        try:
            lock = os.open(self.path / "status" / "driver.lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise unwritable(self.path, error) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"the store {self.path} is in use by another run; wait for it, or end it."
                ) from None
            except OSError:  # a file system without locks: then nothing guards
                pass
            sweep_leftovers(self.path)
            yield
        finally:
            os.close(lock)

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

    def damaged(self) -> list[Path]:
        """Chunk files that are cut off, or gone though their points were computed."""
        return [file for files in self.files.survey(self.extents)[1].values() for file in files]

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
                f"the chunk file in {self.path / name} is damaged ({error}); put a copy of it "
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
        return Store.open(self.path)

    def heal(self) -> Store:
        """Cut what an interrupted growth left; make points of damaged files pending, with a word.

        What the other files of such points hold stays until they are computed again.
        """
        resized = self._resize(self.extents)
        codes, damaged = self.files.survey(self.extents)
        for shard, files in damaged.items():
            if shard in codes:
                replace(self.files.file("status", shard), codes[shard].tobytes())
            for file in files:
                file.unlink(missing_ok=True)
        if damaged:
            first = next(iter(damaged.values()))[0]
            warnings.warn(
                f"chunk files of {len(damaged)} shards are damaged or missing in the store, the "
                f"first is {first}; their points are pending again.",
                HeomdaskWarning,
                stacklevel=4,
            )
        return Store.open(self.path) if resized else self

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
            replace(self.files.file("status", shard), status.tobytes())
        if found:
            record_failures(str(self.path), dict.fromkeys(map(tuple, found), ("", "")))


def record_failures(path: str, records: Mapping[Shard, tuple[str, str]]) -> None:
    """Keep error text and traceback of failed points (index in the store -> texts).

    They lie in chunks like all else, so a shard's owner is their only writer.
    """
    import zarr

    try:
        group = zarr.open_group(path, mode="r+", use_consolidated=False)
    except FileNotFoundError:
        raise deleted(Path(path)) from None
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
    """Replace such an array; only the driver writes it."""
    store.group.create_array(
        name, data=values, overwrite=True, fill_value=np.nan, attributes=dict(attrs),
        dimension_names=[d for d in store.dimensions if d != "sample"], **_NO_CODEC,
    )  # fmt: skip


def damaged_metadata(folder: Path, what: str) -> StoreError:
    """The error for a zarr.json that cannot be used."""
    return StoreError(
        f"{folder / 'zarr.json'} is damaged or missing ({what}); put a copy of it back, or use "
        "another store."
    )


def unwritable(path: Path, error: Exception) -> StoreError:
    """The error for a place where no store can be made."""
    return StoreError(
        f"`store` must be a place that can be written, got {path} ({error}); choose another path "
        "or mend the permissions."
    )


def local_path(store: str | Path) -> Path:
    """The folder of a store; a URL is refused, since stores are local folders so far."""
    if not isinstance(store, (str, os.PathLike)) or not str(store).strip():
        raise StoreError(f"`store` must be the path of a folder, got {store!r}; name one.")
    if "://" in str(store):
        raise StoreError(
            f"`store` must be a local path, got {str(store)!r}; stores behind a URL are not in "
            "this version: run into a local folder and copy it."
        )
    if Path(store).is_file():
        raise StoreError(f"`store` must be a folder, got the file {store}; choose another path.")
    return Path(store).resolve()  # workers may have another working folder


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written, before any work starts."""
    folder = path
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise unwritable(path, NotADirectoryError(f"{folder} is not a folder"))
    probe = folder / f"{uuid.uuid4().hex}{PARTIAL}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error) from error


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
