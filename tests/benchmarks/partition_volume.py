"""What strategies of a partition send, counted from structure, and the speed that a model predicts.

python tests/benchmarks/partition_volume.py [CASE ...] prints the tables of
docs/design/013-partition-strategy.md. No state is ever allocated. METIS is counted too where
pymetis is installed.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from heomdask.bench.cases import FMO_7, FMO_14, RING, SPIN_BOSON, System
from heomdask.expansion import Matsubara
from heomdask.generator.build import build_plan
from heomdask.hierarchy.index_set import IndexSet
from heomdask.hierarchy.numbering import Numbering
from heomdask.hierarchy.section import Section
from heomdask.hierarchy.truncation import Depth
from heomdask.partition.coupling import support, work
from heomdask.partition.halo import reads
from heomdask.partition.part import Part, part_of, section_part
from heomdask.partition.split import Bisection, Levels, Lexicographic
from heomdask.plan import Plan
from heomdask.preparation import prepare

PARTS = (2, 4, 8, 16, 64)


def sites() -> np.ndarray:
    """Fifty sites on a line, every pair coupled as dipoles are."""
    site = np.arange(50)
    h = -0.02 / np.maximum(abs(site[:, None] - site), 1) ** 3
    np.fill_diagonal(h, 0.02 * np.cos(1.7 * site))
    return h


SITES = System(
    "sites", 50, 50, sites, lambda: [np.diag(row) for row in np.eye(50)], RING.bath,
    Matsubara(0), 0.0,
)  # fmt: skip
# system, depth, nanoseconds per ADO of one core: docs/performance.md; fmo-14-8 as fmo-14-6, and
# sites-50-3 by its work, at the rate of ring-16-4
CASES: dict[str, tuple[System, int, float]] = {
    "spinboson-3-40": (SPIN_BOSON, 40, 17),
    "fmo-7-6": (FMO_7, 6, 199),
    "fmo-7-8": (FMO_7, 8, 369),
    "fmo-14-4": (FMO_14, 4, 347),
    "fmo-14-5": (FMO_14, 5, 382),
    "fmo-14-6": (FMO_14, 6, 485),
    "fmo-14-8": (FMO_14, 8, 485),
    "ring-16-4": (RING, 4, 2650),
    "sites-50-3": (SITES, 3, 78000),
}


@dataclass(frozen=True)
class Count:
    """One strategy for one number of parts; volumes in elements."""

    case: str
    strategy: str
    parts: int
    full: int  # with whole ADOs
    cut: int  # with the elements that are read
    largest: int  # what one part sends or receives, cut
    messages: int
    most_messages: int  # of one part, sent or received
    balance: float  # work of the largest part over the mean
    boundary: float  # of the largest part: share of rows that wait
    seconds: float  # to find owners, and rows and plan of one part
    state: int  # elements of the whole

    @property
    def volume(self) -> str:
        return f"{self.full / self.state:.2f} → {self.cut / self.state:.3f}"

    @property
    def cost(self) -> str:
        largest = self.largest / self.state
        return f"{largest:.3f}, {self.messages:,}, {self.balance:.3f}, {self.seconds:.2f}"


class Structure:
    """A case without states: its plan, its work and its links."""

    def __init__(self, name: str) -> None:
        system, depth, self.ns = CASES[name]
        self.name, self.d = name, system.d
        self.expanded = prepare(system.problem(), depth=1, expansion=system.expansion).expanded
        self.numbering = Numbering(Depth(depth).bounds(system.modes))
        self.whole = build_plan([self.expanded], IndexSet(self.numbering.bounds))
        self.support, self.work = support(self.whole), work(self.whole)
        self.indices = self.numbering.unrank(np.arange(self.numbering.n_ado))
        self.costs = self.work.of(self.numbering, self.indices)
        self.state = self.numbering.n_ado * self.d**2

    def parts(self, strategy: Callable[..., object], parts: int) -> Iterator[Part]:
        """One part after the other, each from its own rows; by METIS from the whole."""
        if strategy is metis:
            owner = metis(self.whole, self.costs, parts)
            yield from (part_of(self.whole, owner, number) for number in range(parts))
            return
        split = strategy(self.numbering, parts, self.work)
        for number in range(parts):
            section = Section(self.numbering, split.rows(number))
            yield section_part(build_plan([self.expanded], section), section, split)

    def count(self, strategy: Callable[..., object], parts: int) -> Count:
        received, sent = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
        incoming, outgoing = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
        loads, waits, full = np.zeros(parts), np.zeros(parts), 0
        seconds, started = 0.0, time.perf_counter()
        for number, part in enumerate(self.parts(strategy, parts)):
            if number == 0:
                seconds = time.perf_counter() - started
            for owner, wanted in reads(part, self.support).items():
                received[number] += len(wanted)
                sent[owner] += len(wanted)
                incoming[number] += 1
                outgoing[owner] += 1
            full += (part.n_cols - part.n_rows) * self.d**2
            loads[number] = self.costs[part.columns[: part.n_rows]].sum()
            waits[number] = 1 - part.n_interior / max(part.n_rows, 1)
        return Count(
            self.name, strategy.__name__.lower(), parts, full, int(received.sum()),
            int(max(received.max(), sent.max())), int(incoming.sum()),
            int(max(incoming.max(), outgoing.max())), float(loads.max() / loads.mean()),
            float(waits[loads.argmax()]), seconds, self.state,
        )  # fmt: skip


def metis(whole: Plan, costs: np.ndarray, parts: int) -> np.ndarray:
    import pymetis

    links = [p.entries()[:2] for p in whole.patterns if not p.is_identity]
    rows, cols = (np.concatenate([link[i] for link in links]) for i in (0, 1))
    pairs = np.unique(np.stack([rows, cols], axis=1)[rows != cols], axis=0)
    starts = np.searchsorted(pairs[:, 0], np.arange(whole.n_rows + 1))
    weights = np.maximum(np.rint(costs / costs.max() * 1000), 1).astype(int)
    adjacency = pymetis.CSRAdjacency(starts, pairs[:, 1])
    _, owner = pymetis.part_graph(parts, adjacency, vweights=weights.tolist())
    return np.asarray(owner, dtype=np.int64)


@dataclass(frozen=True)
class Machine:
    """Stated constants, not measured: one part, and the way to the others."""

    name: str
    cores: float  # how many cores of docs/performance.md one part is worth
    latency: float  # seconds for each message of a part, and each stage of a reduction
    bandwidth: float  # bytes per second into and out of a part
    copy: float  # bytes per second of packing and unpacking


MACHINES = (
    Machine("cores, shared memory", 1, 2e-6, 8e9, 4e9),
    Machine("nodes, 10 Gbit/s", 16, 30e-6, 1.1e9, 20e9),
    Machine("nodes, 100 Gbit/s", 16, 20e-6, 11e9, 20e9),
    Machine("GPUs, NVLink", 200, 10e-6, 200e9, 1000e9),
)


def speedups(count: Count, case: Structure, machine: Machine) -> tuple[float, float]:
    """Against one part of the same kind: without overlap of work and messages, and with."""
    alone = case.numbering.n_ado * case.ns * 1e-9 / machine.cores
    compute = alone / count.parts * count.balance
    nbytes = count.largest * case.whole.dtype.itemsize
    copies = 2 * nbytes / machine.copy
    send = count.most_messages * machine.latency + nbytes / machine.bandwidth
    reduction = np.ceil(np.log2(count.parts)) * machine.latency
    inner = compute * (1 - count.boundary)
    apart = compute + copies + send + reduction
    overlapped = max(inner, send) + compute - inner + copies + reduction
    return alone / apart, alone / overlapped


def strategies() -> list[Callable[..., object]]:
    found: list[Callable[..., object]] = [Lexicographic, Levels, Bisection]
    try:
        import pymetis
    except ImportError:
        return found
    return [*found, metis] if pymetis else found


def table(counts: list[Count], cell: Callable[[Count], str]) -> None:
    names = list(dict.fromkeys(c.strategy for c in counts))
    print(f"\n| case | parts | {' | '.join(names)} |\n| --- | ---: {'| ---: ' * len(names)}|")
    for case, parts in dict.fromkeys((c.case, c.parts) for c in counts):
        own = [cell(c) for c in counts if (c.case, c.parts) == (case, parts)]
        print(f"| {case} | {parts} | {' | '.join(own)} |")


def speed_table(cases: list[Structure], counts: list[Count]) -> None:
    """Of the best strategy of ours: without overlap, with, and which one."""
    print("\n| case | machine | " + " | ".join(f"{p} parts" for p in PARTS) + " |")
    print("| --- | --- " + "| ---: " * len(PARTS) + "|")
    for case in cases:
        own = [c for c in counts if c.case == case.name and c.strategy != "metis"]
        for machine in MACHINES:
            cells = []
            for parts in PARTS:
                found = [(*speedups(c, case, machine), c.strategy) for c in own if c.parts == parts]
                apart, overlapped, strategy = max(found, key=lambda f: f[1])
                cells.append(f"{apart:.1f}, {overlapped:.1f} {strategy[:3]}")
            print(f"| {case.name} | {machine.name} | " + " | ".join(cells) + " |")


def main(names: list[str]) -> None:
    cases, counts = [], []
    for name in names or CASES:
        cases.append(Structure(name))
        for parts, strategy in itertools.product(PARTS, strategies()):
            counts.append(cases[-1].count(strategy, parts))
    table(counts, lambda c: c.volume)
    table(counts, lambda c: c.cost)
    speed_table(cases, counts)


if __name__ == "__main__":
    main(sys.argv[1:])
