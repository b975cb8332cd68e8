"""What comes before the first step: index set, links, plan, and its compilation.

Takes: a `Construction`, a case.
Gives: `Constructed`, seconds of each stage, from nothing.
Next file: `suite.py`, which puts all measurements in a row.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from heomdask import memory
from heomdask.bench.cases import FMO_14, FMO_21, Case
from heomdask.bench.machine import native
from heomdask.bench.timing import Spread
from heomdask.generator.build import Expanded, build_plan
from heomdask.hierarchy.index_set import IndexSet
from heomdask.hierarchy.truncation import Depth
from heomdask.memory import LINK_BYTES
from heomdask.preparation import prepare

STAGES = ("index set", "links", "plan", "compile")


@dataclass(frozen=True)
class Construction:
    """A case without members, built so many times."""

    case: Case
    rounds: int
    quick: bool = False

    @property
    def name(self) -> str:
        return f"build-{self.case.name}"


@dataclass(frozen=True)
class Constructed:
    """Seconds of each stage, and bytes of the compiled plan."""

    name: str
    n_ado: int
    seconds: dict[str, Spread]
    nbytes: int


BUILDS = (
    Construction(Case(FMO_14, 6), rounds=5, quick=True),
    Construction(Case(FMO_21, 7), rounds=1),
)


def needs(build: Construction) -> int:
    """Bytes, about: tables of the plan and of the backend."""
    return 2 * LINK_BYTES * build.case.system.modes * build.case.n_ado


def expected_seconds(build: Construction) -> float:
    """A guess."""
    return 1e-6 * build.rounds * build.case.n_ado * build.case.system.modes


def measure(build: Construction) -> Constructed:
    """Build it anew each time: nothing that the package keeps is used."""
    memory.require(needs(build), f"The case {build.name}", "leave it out")
    system = build.case.system
    # exponents do not depend on the depth, so they come from the smallest hierarchy
    expanded = prepare(system.problem(), depth=0, expansion=system.expansion).expanded
    runs = [_stages(expanded, Depth(build.case.depth)) for _ in range(build.rounds)]
    taken = np.array([seconds for seconds, _ in runs])
    spreads = {stage: Spread.of(column) for stage, column in zip(STAGES, taken.T, strict=True)}
    return Constructed(build.name, build.case.n_ado, spreads, runs[0][1])


def _stages(expanded: Expanded, depth: Depth) -> tuple[list[float], int]:
    """Seconds of each stage; bytes of the compiled plan."""
    times = [time.thread_time()]
    ados = IndexSet(depth.bounds(expanded.n_modes, expanded.rates))
    times.append(time.thread_time())
    for k in range(ados.n_modes):
        for link in (ados.up, ados.down, ados.number):
            link(k)
    times.append(time.thread_time())
    plan = build_plan([expanded], ados)
    times.append(time.thread_time())
    compiled = native(1).compile(plan)
    times.append(time.thread_time())
    return list(np.diff(times)), compiled.nbytes
