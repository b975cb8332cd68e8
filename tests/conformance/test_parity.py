"""One table of all backends: the error of one application, in units of the tolerance.

One structure of operators at a time, every dimension, precision and number of members. Where a
device is missing the cell says so, and is counted.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable

import numpy as np
import pytest
from gpuless.emulator import Compiler
from gpuless.strict import StrictCupy
from gpuless.tools import need

from heomdask.backends import registry
from heomdask.backends.cupy_ import CupyBackend
from heomdask.backends.traits import APPLY_TOLERANCE, BackendTraits
from heomdask.errors import BackendUnavailable
from heomdask.plan import Plan
from heomdask.testing.oracle import image
from heomdask.testing.random_plans import STRUCTURES, Case

LEVELS, MEMBERS, PRECISIONS = (2, 7), (1, 5), ("float64", "float32")
COLUMNS = list(itertools.product(STRUCTURES, MEMBERS))
NOT_RUN = "not run: no device"


def plan_with(structure: str, d: int, members: int) -> tuple[Case, Plan]:
    """Of a random plan what has operators of this structure, and rates."""
    case = Case(seed=21, d=d, members=members, form="real")
    plan = case.plan()
    sides = [{op.structure for op in (t.left, t.right) if op is not None} for t in plan.terms]
    assert {structure} in sides
    chosen = [t for t, found in zip(plan.terms, sides, strict=True) if found <= {structure}]
    return case, dataclasses.replace(plan, terms=tuple(chosen))


def error(backend: BackendTraits, structure: str, d: int, members: int, dtype: str) -> float:
    """In units of the tolerance."""
    case, plan = plan_with(structure, d, members)
    compiled = backend.compile(plan, dtype)
    x = case.state(plan).astype(compiled.dtype)
    out = backend.empty(compiled)
    backend.apply(compiled, backend.put(compiled, x), out)
    want, size = image(plan, x)
    apart = float(np.max(np.abs(backend.fetch(compiled, out) - want)))
    return apart / size / APPLY_TOLERANCE[dtype]


def test_every_backend_gives_the_same_within_the_tolerance(
    compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    backends: dict[str, Callable[[], BackendTraits]] = {
        name: functools.partial(registry.get, name) for name in registry.NAMES if name != "auto"
    }
    backends["cupy, emulated"] = lambda: CupyBackend(api=StrictCupy(compiler))
    lines = [f"{'':<30}" + "".join(f"{s[:9]} x{m}".rjust(13) for s, m in COLUMNS)]
    wrong, missing, ran = [], 0, set()
    for name, d, dtype in itertools.product(backends, LEVELS, PRECISIONS):
        label = f"{name}, d = {d}, {dtype}"
        try:
            backend = backends[name]()
        except BackendUnavailable:
            missing += len(COLUMNS)
            lines.append(f"{label:<30}   {NOT_RUN}")
            continue
        errors = [error(backend, structure, d, members, dtype) for structure, members in COLUMNS]
        wrong += [label for found in errors if not found <= 1]
        ran.add(name)
        lines.append(f"{label:<30}" + "".join(f"{found:13.1e}" for found in errors))
    lines.append(f"cells not run for want of a device: {missing}")
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert not wrong
    assert {"numpy", "native", "cupy, emulated"} <= ran
    assert missing == len(COLUMNS) * 4 * len(set(backends) - ran)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    need("g++")
    return Compiler(tmp_path_factory.mktemp("kernels"))
