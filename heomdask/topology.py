"""Where threads may run: the CPUs of this process, by NUMA node and physical core.

Takes: what Linux tells in /sys, and the affinity that this process inherited (from Slurm, taskset).
Gives: `allowed`, the CPUs, by which threads and workers are counted; `Topology`, which keeps the
    threads of a team, and local workers, to nodes.
Next file: `backends/native.py`, whose teams are placed.

Placement was tested on simulated topologies only; what it gains has not been measured.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SYSTEM = Path("/sys/devices/system")

Cpus = tuple[int, ...]


def allowed() -> Cpus:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Topology:
    """The CPUs that may be used.

    Attributes
    ----------
    nodes : of each NUMA node its physical cores, of each core its CPUs (SMT has several).
    """

    nodes: tuple[tuple[Cpus, ...], ...]

    @classmethod
    def read(cls, root: Path = SYSTEM, cpus: Iterable[int] | None = None) -> Topology:
        """Of these CPUs; default: all that this process may use.

        It is one node where `root` does not tell the node of each of them.
        """
        return _read(root, frozenset(allowed() if cpus is None else cpus))

    def cpus(self, node: int) -> Cpus:
        return tuple(sorted(cpu for core in self.nodes[node] for cpu in core))

    def team(self, threads: int, near: int) -> tuple[Cpus, ...]:
        """CPUs that each thread of a team is kept to; none where that is left to the system.

        They are all those of a node: which of them is idle, the system sees better. Threads go to
        the node of the CPU `near` first, then to others, and share a physical core only when there
        are more threads than cores. Neighbours are on one node, as parts of a state are in memory.
        """
        nodes = sorted(range(len(self.nodes)), key=lambda node: near not in self.cpus(node))
        seats = sorted(
            (sibling, turn)
            for turn, node in enumerate(nodes)
            for core in self.nodes[node]
            for sibling in range(len(core))
        )
        if threads == 1 or len(nodes) == 1 or threads > len(seats):
            return ()
        return tuple(self.cpus(nodes[turn]) for turn in sorted(turn for _, turn in seats[:threads]))

    def worker(self, number: int) -> Cpus:
        """CPUs of the node that a worker is kept to; none where there is one node.

        Workers take turns over the nodes, and as many go to each as it has CPUs.
        """
        if len(self.nodes) == 1:
            return ()
        seats = sorted(
            (sibling, place, node)
            for node, cores in enumerate(self.nodes)
            for place, core in enumerate(cores)
            for sibling in range(len(core))
        )
        return self.cpus(seats[number % len(seats)][2])

    def __str__(self) -> str:
        each = [self.cpus(node) for node in range(len(self.nodes))]
        several = "by which threads and local workers are placed (tested on simulated nodes only)"
        return (
            f"{sum(map(len, each))} CPUs may be used, on {sum(map(len, self.nodes))} cores; "
            f"NUMA nodes: {len(each)} (CPUs {'; '.join(map(_ranges, each))}), "
            + (several if len(each) > 1 else "so threads are placed by the system")
        )


@functools.cache  # a file for each CPU
def _read(root: Path, usable: frozenset[int]) -> Topology:
    folders = sorted(root.glob("node/node[0-9]*"), key=lambda folder: int(folder.name[4:]))
    nodes = [found for f in folders if (found := usable & _listed(f / "cpulist"))]
    if frozenset().union(*nodes) != usable:
        nodes = [usable]
    return Topology(tuple(_cores(root, node) for node in nodes))


def _cores(root: Path, cpus: frozenset[int]) -> tuple[Cpus, ...]:
    """The physical cores of these CPUs; each its own where that is not told."""
    siblings = "cpu/cpu{}/topology/thread_siblings_list"
    cores = {tuple(sorted({c} | _listed(root / siblings.format(c)) & cpus)) for c in cpus}
    return tuple(sorted(cores))


def _listed(file: Path) -> set[int]:
    """Of a file like ``0-3,8``; none without it."""
    try:
        parts = [part.partition("-") for part in file.read_text().strip().split(",") if part]
    except OSError:
        return set()
    return {n for first, _, last in parts for n in range(int(first), int(last or first) + 1)}


def _ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers as `_listed` reads them."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    return ",".join("-".join(map(str, run)) for run in runs)
