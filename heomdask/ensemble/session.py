"""A sweep and its store, brought together: created, or recognised, grown, and driven to the end.

Takes: a `Sweep`, a folder, and something that computes.
Gives: `run`, the steps of `Sweep.run`.
Next file: `task.py`, what a worker does.
"""

from __future__ import annotations

import contextlib
import math
import platform
import textwrap
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import heomdask
from heomdask import memory
from heomdask.backends import registry
from heomdask.ensemble import named, pickling, shards
from heomdask.ensemble.grid import Match, match
from heomdask.ensemble.probe import Probe, probe, probes, variables
from heomdask.ensemble.stopping import remember
from heomdask.ensemble.sweep import Sweep
from heomdask.errors import BackendUnavailable, HeomdaskWarning, StoreError, TooLarge
from heomdask.expansion.notices import warn
from heomdask.outcome import Outcome
from heomdask.preparation import doubt
from heomdask.results.folder import Folder
from heomdask.results.store import Coordinate, Layout, Store
from heomdask.results.wording import difference

if TYPE_CHECKING:
    import xarray
    from distributed import Client

    from heomdask.ensemble.cluster import Workers
    from heomdask.ensemble.runner import Runner


def run(
    sweep: Sweep,
    folder: Folder,
    client: Client | Runner | Workers | None,
    *,
    progress: bool,
    retry_failed: bool,
) -> xarray.Dataset:
    """Refuse what cannot work; open the store; compute what it lacks; return it."""
    from heomdask.ensemble.cluster import require_computing
    from heomdask.ensemble.driver import drive
    from heomdask.ensemble.task import Work
    from heomdask.results.dataset import failures
    from heomdask.results.dataset import open as open_dataset

    require_computing(client)
    pickling.dumps(sweep)
    folder.require_writable()
    found = probes(sweep)
    _warn_of_doubts(sweep, found)
    if folder.names():
        store = recognise(sweep, folder)
    else:
        new = layout(sweep, found)
        require_disk(folder, store_nbytes(new))
        store = Store.create(folder, new)
    with _told_how_to_go_on(folder), store.driving():
        store = store.heal()
        if retry_failed:
            store.forget(Outcome.FAILED)
        store, matched = grow(sweep, store)
        remember(sweep.until, store)
        work = Work(sweep, matched, store.files, store.extents)
        failed = drive(work, store, found, client, progress=progress)
    dataset = open_dataset(folder)
    if failed:
        where, error = next(failures(folder))
        warnings.warn(
            f"{failed} of {sweep.grid.size} points failed; in the store, the first is at {where}: "
            f"{textwrap.shorten(error, 200)}; see `error` and `traceback` in the dataset, and "
            "`retry_failed` (`heomdask run --retry-failed`).",
            HeomdaskWarning,
            stacklevel=3,
        )
    _warn_of_unphysical(dataset)
    return dataset


@contextlib.contextmanager
def _told_how_to_go_on(folder: Folder) -> Iterator[None]:
    """What the store holds, as a last line below the traceback of Ctrl-C."""
    from heomdask.results.dataset import progress_text

    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"{progress_text(folder)}; run the sweep on it again to go on.")
        raise


def _warn_of_doubts(sweep: Sweep, found: list[Probe]) -> None:
    """Hierarchies that are far too small, by an estimate: said once, before a run."""
    times = sweep.times.vector
    for seen in found:
        said = None if seen.prepared is None else doubt(seen.prepared, times)
        if said is not None:
            warn(f"{said} (at {sweep.grid.describe(seen.index)})")
            return


def _warn_of_unphysical(dataset: xarray.Dataset) -> None:
    """Points that have numbers which should not be used: said once, at the end of a run."""
    status = dataset["status"].values
    counts = {o: int(np.count_nonzero(status == o)) for o in Outcome}
    bad = {o: n for o, n in counts.items() if n and o.solved and not o.good}
    if bad:
        words = ", ".join(f"{n} {o}" for o, n in bad.items())
        worst = max(bad, key=lambda o: bad[o])
        warnings.warn(
            f"{sum(bad.values())} of {status.size} points did not end well ({words}); hd.mean "
            f"leaves them out. {worst.advice}",
            HeomdaskWarning,
            stacklevel=4,
        )


def store_nbytes(new: Layout) -> int:
    """What a full store takes, its padding included."""
    shard = sum(v.point_nbytes for v in new.variables) * math.prod(new.shard)
    return shard * math.prod(-(-n // s) for n, s in zip(new.extents, new.shard, strict=True))


def require_disk(folder: Folder, nbytes: int) -> None:
    """Refuse a store that cannot fit on its disk."""
    free = folder.free()
    if free is not None and nbytes > free:
        raise TooLarge(
            f"The store needs about {memory.readable(nbytes)} and {memory.readable(free)} are free "
            f"on the disk of {folder}; save observables only, give fewer `times`, or another place."
        )


def layout(sweep: Sweep, found: list[Probe]) -> Layout:
    """What the sweep's store looks like when it is new."""
    kept = variables(sweep, found)
    point_nbytes = sum(v.point_nbytes for v in kept)
    coordinates = [
        Coordinate(name, d.name, a.labels, a.unit)
        for d in sweep.grid.dimensions
        for name, a in d.axes
    ]
    if sweep.samples is not None:
        coordinates.append(Coordinate("sample", "sample", np.arange(sweep.samples)))
    coordinates.append(Coordinate("time", "time", sweep.times.labels, sweep.times.unit))
    attrs = {
        "title": sweep.title,
        "specification": sweep.specification,
        "digest": sweep.digest,
        "observables": list(sweep.observables) if "observables" in sweep.save else [],
        "seed": sweep.seed,
        "probes": [_remember(sweep, p) for p in found],
        named.ATTRIBUTE: named.digests(sweep),
        "versions": versions(),
        "backend": _backend_facts(sweep.backend),
    }
    shape = shards.shard_shape(sweep.grid.shape, point_nbytes)
    return Layout(sweep.grid.names, sweep.grid.shape, tuple(coordinates), kept, shape, attrs)


def versions() -> dict[str, str]:
    """What made the store."""
    import zarr

    return {
        "heomdask": heomdask.__version__,
        "numpy": np.__version__,
        "zarr": zarr.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _backend_facts(name: str) -> dict[str, str]:
    """Which backend the sweep asked for, and what it is where the store was made.

    "auto" is decided for each hierarchy by whoever computes it, so no more is known of it here.
    Data are bit-identical within one backend and instruction set.
    """
    if name == "auto":
        return {"asked": name}
    try:
        info = registry.get(name).info
    except BackendUnavailable:  # the workers may have it
        return {"asked": name}
    return {"asked": name, "name": info.name, "isa": info.isa}


def _remember(sweep: Sweep, found: Probe) -> dict[str, Any]:
    """A probe as plain data; its place by labels, which do not move when the store grows."""
    places = zip(sweep.grid.dimensions, found.index, strict=False)
    return {
        "labels": [list(d.keys[i]) if d.unique else i for d, i in places],
        "sample": sweep.grid.sample(found.index),
        "digest": found.digest,
    }


def recognise(sweep: Sweep, folder: Folder) -> Store:
    """Open a store, after a check that it is this sweep's."""
    store = Store.open(folder)
    if differences := _differences(sweep, store):
        raise StoreError(
            f"the store {folder} belongs to another sweep: {differences}. Use another "
            "store for this sweep; only axis values and samples may be added to one."
        )
    match_store(sweep, store)  # a table with other rows is refused here
    if others := named.changed(sweep, store):
        words = ", ".join(f"{label!r} on the axis {name!r}" for name, label in others)
        raise StoreError(
            f"the store {folder} belongs to another sweep: {words} now stands for another object "
            "than when the store was filled. Use another name for it, or another store."
        )
    for remembered in store.attrs["probes"]:
        index = _find(sweep, remembered)
        if index is None or remembered["digest"].startswith("failed"):
            continue
        now = probe(sweep, index)
        if now.digest != remembered["digest"]:
            raise StoreError(
                f"the store {folder} belongs to another sweep: at {sweep.grid.describe(index)} "
                "the problem or the initial state is another now than when the store was made. Use "
                "another store for this sweep."
            )
    return store


def _differences(sweep: Sweep, store: Store) -> str:
    there = dict(store.attrs["specification"])
    there["axes"] = [
        {**a, "kinds": [k.replace("i", "f") for k in a["kinds"]]}  # older stores keep int64
        for a in there["axes"]
    ]
    pairs = [(key, there.get(key), here) for key, here in sweep.specification.items()]
    return "; ".join(difference(*pair) for pair in pairs if pair[1] != pair[2])


def _find(sweep: Sweep, remembered: dict[str, Any]) -> tuple[int, ...] | None:
    """The index of a remembered probe in the sweep's grid, if it is asked for."""
    index: list[int] = []
    for dimension, label in zip(sweep.grid.dimensions, remembered["labels"], strict=True):
        if not dimension.unique:
            place = label if label < len(dimension) else -1
        else:
            key = tuple(label)
            place = dimension.keys.index(key) if key in dimension.keys else -1
        index.append(place)
    if sweep.samples is not None:
        index.append(remembered["sample"] if remembered["sample"] < sweep.samples else -1)
    return None if min(index) < 0 else tuple(index)


def match_store(sweep: Sweep, store: Store) -> Match:
    """Where the store's places lie in the sweep's grid."""
    for name, a in (pair for d in sweep.grid.dimensions for pair in d.axes):
        dtype = store.dtype(name)
        if dtype.kind == "i" and np.any(a.labels != a.labels.astype(dtype)):
            raise StoreError(
                f"the store {store.folder} keeps whole numbers only for {name!r}, an older "
                "version's way, and the sweep has others; use another store."
            )
    stored = [store.labels(tuple(n for n, _ in d.axes)) for d in sweep.grid.dimensions]
    samples = store.extents[-1] if sweep.samples is not None else None
    return match(sweep.grid, stored, samples)


def grow(sweep: Sweep, store: Store) -> tuple[Store, Match]:
    """Append the axis values and samples that the store lacks."""
    found = match_store(sweep, store)
    samples = store.extents[-1] if sweep.samples is not None else 0
    extents = tuple(len(o) for o in found.order)
    added = [
        Coordinate(name, d.name, a.labels[list(new)], a.unit)
        for d, new in zip(sweep.grid.dimensions, found.new, strict=True)
        for name, a in d.axes
        if new
    ]
    if sweep.samples is not None and sweep.samples > samples:
        added.append(Coordinate("sample", "sample", np.arange(samples, sweep.samples)))
    if extents != store.extents:
        named.remember(sweep, store)
        store = store.extend(extents, tuple(added))
    return store, found
