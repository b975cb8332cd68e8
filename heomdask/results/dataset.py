"""The store of a sweep as a labelled dataset.

Takes: a store, also while it is being filled.
Gives: `open`, an `xarray.Dataset` sorted by its axes, and `mean`, statistics that skip missing
    points and say how many there were; `failures`, what went wrong where; `progress_text`.
Next file: none in this folder; `../ensemble/` fills stores.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heomdask import checks
from heomdask.errors import HeomdaskError, HeomdaskWarning, InputError, StoreError
from heomdask.outcome import Outcome
from heomdask.results.chunks import damaged_chunk
from heomdask.results.folder import Folder, folder_of
from heomdask.results.moments import Moments, from_parts
from heomdask.results.store import TEXTS, Store
from heomdask.results.wording import in_short

if TYPE_CHECKING:
    import xarray

BLOCK_NBYTES = 32 * 2**20  # of a variable, read at once
PER_POINT = ("status", "n_ado", "applications", "bits", "seconds", *TEXTS)


def open(store: str | Path | Folder) -> xarray.Dataset:
    """A store as a dataset, loaded on use, every axis ascending.

    Parameters
    ----------
    store : path or URL of what `Sweep.run` filled or is filling.

    Returns
    -------
    Variables with the sweep's dimensions, then `sample`, then `time` (then `i`, `j`); points that
    are not there yet are NaN, and `status` says why. The axes' values stand as the user wrote
    them, their unit in ``attrs["units"]``.
    """
    import xarray

    folder = folder_of(store)
    for file in Store.open(folder).damaged():
        raise damaged_chunk(file)
    try:
        dataset: xarray.Dataset = xarray.open_zarr(folder.zarr(), consolidated=False, chunks=None)
    except Exception as error:
        raise StoreError(
            f"the coordinates in {folder} are damaged ({error}); put a copy of them back, or use "
            "another store."
        ) from error
    axes = dataset.attrs["specification"]["axes"]
    names = [name for a in axes for name in a["names"]]
    dataset = dataset.set_coords([n for n in names if n not in dataset.coords])
    for a in axes:
        keys = [dataset[n] for n in a["names"]]
        if a["dimension"] != "point" and all(k.dtype.kind in "if" for k in keys):
            order = np.lexsort([k.values for k in reversed(keys)])
            if not np.array_equal(order, np.arange(len(order))):
                dataset = dataset.isel({a["dimension"]: order})
    shown = [*dataset.attrs["variables"], *TEXTS]
    return dataset[[*shown[:-2], *(n for n in dataset.data_vars if n not in shown), *TEXTS]]


def failures(store: str | Path | Folder) -> Iterator[tuple[str, str]]:
    """Failed points: where (axis values in words) and the error's text."""
    dataset = open(store)
    failed = np.argwhere(dataset["status"].values == Outcome.FAILED)
    dims = dataset["status"].dims
    names = [n for a in dataset.attrs["specification"]["axes"] for n in a["names"]] + ["sample"]
    for index in failed:
        point = dataset.isel(dict(zip(dims, index.tolist(), strict=True)))
        words = [f"{d} {i}" for d, i in zip(dims, index, strict=True) if d not in dataset.coords]
        words += [_words(point, name) for name in names if name in point.coords]
        yield ", ".join(words), str(point["error"].values)


def progress_text(store: str | Path | Folder) -> str:
    """How many points a store holds, if it is one yet, in a few words."""
    try:
        status = Store.open(folder_of(store)).status()
    except HeomdaskError:
        return "nothing was computed yet"
    needed = status[status != Outcome.NOT_NEEDED]
    held = np.count_nonzero(needed != Outcome.PENDING)
    return f"{held} of {needed.size} points are in {store}"


def _words(point: xarray.Dataset, name: Hashable) -> str:
    unit = point[name].attrs.get("units", "")
    return f"{name} = {in_short(str(point[name].values))} {unit}".rstrip()


def mean(dataset: xarray.Dataset, over: str = "sample", *, weights: Any = None) -> xarray.Dataset:
    """Mean and standard error over a dimension, of the points that are done.

    Parameters
    ----------
    dataset : from `open` or `Sweep.run`, or a part of it; it may be larger than memory.
    over : the dimension: "sample", "point", or an axis.
    weights : one number a point along `over` (a quadrature, say); default equal.

    Returns
    -------
    For every variable its mean, and ``<name>_error``, the standard error of that mean (only for
    equal weights; of complex variables that of real and imaginary part as one complex number);
    `count`, how many points went into it, so that the variance is ``error**2 * count``. Points that
    are pending, failed, unstable or not converged are left out, the weights of the others scaled
    up, and a warning says how many; where none is left the mean is NaN. Samples that a stopping
    rule found not needed are left out of a mean over `sample` without a word.
    """
    if over not in dataset["status"].dims:
        dims = ", ".join(repr(str(d)) for d in dataset["status"].dims)
        raise checks.refuse("over", f"one of the dimensions {dims}", over)
    status = dataset["status"].load().drop_attrs(deep=False)
    status = status.transpose(over, *(d for d in status.dims if d != over))
    good = status == int(Outcome.DONE)
    count = good.sum(over)
    _warn_of_missing(status, count, over)
    share = None
    if weights is not None:
        share = good * _weights(weights, dataset, over)
        share = share / share.sum(over).where(count > 0)  # NaN where no weight is left
    result = dataset.drop_vars(dataset.data_vars).drop_dims(over, errors="ignore")
    for name, values in dataset.data_vars.items():
        if name in PER_POINT or not set(good.dims) <= set(values.dims):
            continue
        center, error = _statistics(values, good, share)
        center = center.where(count > 0)
        result[name] = center.drop_attrs(deep=False).assign_attrs(values.attrs)
        if weights is None:
            said = f"standard error of the mean of {name} over {over}"
            result[f"{name}_error"] = error.assign_attrs(long_name=said)
    result["count"] = count.assign_attrs(long_name=f"points along {over} that are done")
    return result


def _warn_of_missing(status: xarray.DataArray, count: xarray.DataArray, over: str) -> None:
    """What a mean leaves out; of samples not what a rule found not needed."""
    spared = int((status == int(Outcome.NOT_NEEDED)).sum())
    needed = status.size - (spared if over == "sample" else 0)
    missing = needed - int(count.sum())
    if not missing:
        return
    remedy = "see `status`"
    if over != "sample" and spared:
        remedy = "a rule stopped the samples sooner here than there: take the mean over them first"
    warnings.warn(
        f"the mean over {over!r} leaves out {missing} of {needed} points that are not "
        f"done (at least {int(count.min())} of {status.sizes[over]} used at each place); {remedy}.",
        HeomdaskWarning,
        stacklevel=3,
    )


def _weights(weights: Any, dataset: xarray.Dataset, over: str) -> Any:
    import xarray

    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (dataset.sizes[over],) or not np.all(np.isfinite(array)):
        raise InputError(
            f"`weights` must be {dataset.sizes[over]} finite numbers, one a point along {over!r}, "
            f"got the shape {array.shape}."
        )
    return xarray.DataArray(array, dims=over)


def _statistics(
    values: xarray.DataArray, good: xarray.DataArray, share: xarray.DataArray | None
) -> tuple[xarray.DataArray, xarray.DataArray]:
    """Mean and standard error over the first dimension of `good`, one block in memory at a time."""
    import xarray

    over, *cells = map(str, good.dims)
    tail = [d for d in values.dims if d not in good.dims]
    kept = [d for d in values.dims if d != over]
    center = np.empty([values.sizes[d] for d in (*cells, *tail)], dtype=values.dtype)
    error = np.empty_like(center)
    axes = [values.dims.index(d) for d in (over, *cells, *tail)]
    lengths = _block_lengths(values, [over, *reversed(cells)])
    for place in itertools.product(*(_pieces(values.sizes[d], lengths[d]) for d in cells)):
        where = dict(zip(cells, place, strict=True))
        found: Moments | None = None
        total: Any = 0.0
        for along in _pieces(values.sizes[over], lengths[over]):
            part = {**where, over: along}
            block = values.isel(part).values.transpose(axes)
            counted = good.isel(part).values
            if share is not None:
                factor = share.isel(part).values.reshape(counted.shape + (1,) * len(tail))
                clean = np.where(counted.reshape(factor.shape), block, 0)
                total = total + (clean * factor).sum(axis=0)
            else:
                moments = Moments.of(block, counted)
                found = moments if found is None else found.merge(moments)
        if found is None:
            center[place] = total
        else:
            center[place] = from_parts(found.mean, values.dtype)
            error[place] = from_parts(found.standard_error, values.dtype)
    named = [xarray.DataArray(a, dims=(*cells, *tail)).transpose(*kept) for a in (center, error)]
    return named[0], named[1]


def _block_lengths(values: xarray.DataArray, dims: list[str]) -> dict[str, int]:
    """Points of a block along each dimension: whole shards, the first dimension grows first."""
    shard = values.encoding.get("preferred_chunks", {})
    lengths = {d: min(int(shard.get(d, 1)), values.sizes[d]) for d in dims}
    others = math.prod(n for d, n in values.sizes.items() if d not in lengths)
    nbytes = math.prod(lengths.values()) * others * values.dtype.itemsize
    room = max(1, BLOCK_NBYTES // max(nbytes, 1))
    for d in dims:
        times = min(room, -(-values.sizes[d] // max(lengths[d], 1)))
        lengths[d] *= times
        room //= max(times, 1)
    return lengths


def _pieces(size: int, length: int) -> list[slice]:
    return [slice(first, first + length) for first in range(0, size, max(length, 1))]
