"""A small store, and shards to put into it."""

from __future__ import annotations

from typing import Any

import numpy as np

from heomdask.outcome import Outcome
from heomdask.results.chunks import Files, Shard, Variable
from heomdask.results.store import Coordinate, Layout, status_variable

RHO = Variable("rho", "complex128", (("time", 3), ("i", 2), ("j", 2)))
P = Variable("P", "float64", (("time", 3),))


def layout(shard: tuple[int, ...] = (1, 2)) -> Layout:
    return Layout(
        dimensions=("T", "sample"),
        extents=(2, 5),
        coordinates=(
            Coordinate("T", "T", np.array([300.0, 77.0]), "K"),
            Coordinate("sample", "sample", np.arange(5)),
            Coordinate("time", "time", np.array([0.0, 1.0, 2.0]), "fs"),
        ),
        variables=(RHO, P, status_variable()),
        shard=shard,
        attrs={"digest": "x", "specification": {"axes": []}, "probes": [], "observables": []},
    )


def filled(files: Files, shard: Shard, rng: np.random.Generator) -> dict[str, Any]:
    values = files.blanks()
    values["rho"].real = rng.standard_normal(values["rho"].shape)
    values["rho"].imag = rng.standard_normal(values["rho"].shape)
    values["P"][:] = rng.standard_normal(values["P"].shape)
    values["status"][:] = Outcome.DONE
    files.commit(shard, values)
    return values
