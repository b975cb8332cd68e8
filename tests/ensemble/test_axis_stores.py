"""Axes and their stores: values that are refined, stores of older versions, named objects."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from ensemble_support import build, sweep

import heomdask as hd
from heomdask.backends import registry
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


class Shifted:
    """A plain class of a user's own."""

    def __init__(self, e: float) -> None:
        self.e = e


def of_shifted(e: Any) -> Any:
    return build(e.e if e.e < 2.5 else 2.5)


def test_another_object_behind_a_name_is_refused(tmp_path: Path) -> None:
    """Also where no probe looks, for the solver's axes, and for names that were added later."""
    store = tmp_path / "s.zarr"
    methods = {"low": hd.Matsubara(0), "high": hd.Pade(2)}

    def solve(names: Any) -> Any:
        what = sweep(lambda: build(0.3), over={"expansion": hd.axis(names)}, expansion=None)
        return what.run(store, client=SerialRunner(), progress=False)

    solve(methods)
    solve({**methods, "more": hd.Pade(3)})
    with pytest.raises(StoreError, match="'low' on the axis 'expansion' now stands for another"):
        solve({**methods, "low": hd.Pade(3)})
    with pytest.raises(StoreError, match="'more' on the axis 'expansion'"):
        solve({**methods, "more": hd.Pade(1)})
    solve({"more": hd.Pade(3)})


def test_another_object_far_from_the_probes_is_refused(tmp_path: Path) -> None:
    names = {f"n{k}": Shifted(0.1 * k) for k in range(20)}
    run(tmp_path / "s.zarr", {"e": hd.axis(names)}, of_shifted)
    run(tmp_path / "s.zarr", {"e": hd.axis({k: Shifted(v.e) for k, v in names.items()})},
        of_shifted)  # fmt: skip
    with pytest.raises(StoreError, match="'n7' on the axis 'e'"):
        run(tmp_path / "s.zarr", {"e": hd.axis({**names, "n7": Shifted(0.5)})}, of_shifted)


def test_a_store_without_a_record_of_its_names_still_opens(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    names = {"a": Shifted(0.0), "b": Shifted(1.0)}
    run(store, {"e": hd.axis(names)}, of_shifted)
    del zarr.open_group(str(store), mode="r+").attrs["named"]
    run(store, {"e": hd.axis({**names, "c": Shifted(2.0)})}, of_shifted)
    with pytest.raises(StoreError, match="'c' on the axis 'e'"):
        run(store, {"e": hd.axis({**names, "c": Shifted(1.5)})}, of_shifted)


DIGEST = """
import heomdask as hd, functools
from heomdask.ensemble import named
class Own:
    def __init__(self, x): self.x = {"x": x, "y": (1, "two")}
class Inside:
    pass
def shape(t): return 2.0 * t
def hidden(t): return Inside()
over = {"e": hd.axis({"own": Own(3.0), "f": shape, "p": functools.partial(shape, 1.0),
                      "m": hd.Pade(2), "h": hidden, "s": {1, 2}})}
print(named.digests(hd.Sweep(lambda e: None, over=over, times=[0.0, 1.0])))
"""


def test_digests_of_names_are_the_same_in_every_process(tmp_path: Path) -> None:
    """What cannot promise that has none."""
    said = set()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1
    assert set(ast.literal_eval(said.pop())["e"]) == {"own", "f", "p", "m"}


def test_a_store_claims_no_backend_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unused() -> None:
        raise AssertionError("every backend was imported")

    monkeypatch.setattr(registry, "available", unused)
    for name in ("auto", "numpy"):
        what = sweep(over={"e": [0.1]}, backend=name)
        what.run(tmp_path / name, client=SerialRunner(), progress=False)
    assert hd.open(tmp_path / "auto").attrs["backend"] == {"asked": "auto"}
    facts = hd.open(tmp_path / "numpy").attrs["backend"]
    assert (facts["asked"], facts["name"]) == ("numpy", "numpy")
    assert facts["isa"]
