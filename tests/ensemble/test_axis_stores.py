"""Axes and their stores: values that are refined, stores of older versions, named objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from ensemble_support import build, sweep

import heomdask as hd
from heomdask.ensemble.runner import SerialRunner
from heomdask.errors import StoreError


def run(store: Path, over: Any, function: Any = build) -> Any:
    return sweep(function, over=over).run(store, client=SerialRunner(), progress=False)


def test_an_axis_of_whole_numbers_can_be_refined(tmp_path: Path) -> None:
    run(tmp_path / "s.zarr", {"e": [1, 2]})
    dataset = run(tmp_path / "s.zarr", {"e": [1, 1.5, 2]})
    assert dataset["e"].values.tolist() == [1.0, 1.5, 2.0]
    assert np.all(dataset["status"].values == 1)


def make_old(path: Path) -> None:
    """Turn a store into one of a version that kept whole numbers as int64."""
    group = zarr.open_group(str(path), mode="r+")
    specification: Any = group.attrs["specification"]
    specification["axes"][0]["kinds"] = ["i"]
    group.attrs["specification"] = specification
    values = np.asarray(group["e"][:]).astype(np.int64)  # type: ignore[index]  # it is an array
    group.create_array("e", data=values, overwrite=True, dimension_names=["e"], compressors=None)


def test_a_store_of_whole_numbers_still_opens(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    run(store, {"e": [1, 2]})
    make_old(store)
    dataset = run(store, {"e": [1, 2, 3]})
    assert dataset["e"].values.tolist() == [1, 2, 3]
    assert hd.open(store)["e"].dtype == np.int64
    with pytest.raises(StoreError, match="keeps whole numbers only for 'e'"):
        run(store, {"e": [1, 1.5, 2]})


def test_objects_are_known_by_their_names(tmp_path: Path) -> None:
    def of_array(e: Any) -> Any:
        return build(float(e[-1]))

    first, second = np.zeros(2000), np.zeros(2000)
    second[1500] = second[-1] = 1.0
    run(tmp_path / "s.zarr", {"e": hd.axis({"zero": first})}, of_array)
    dataset = run(tmp_path / "s.zarr", {"e": hd.axis({"zero": first, "one": second})}, of_array)
    assert dataset["e"].values.tolist() == ["zero", "one"]
    assert np.all(dataset["status"].values == 1)
    assert not np.allclose(dataset["c"][0], dataset["c"][1])
