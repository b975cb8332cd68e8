"""One hierarchy in one process and in two: time of a step, waiting, packing, against the model.

python tests/benchmarks/partition_two_processes.py [CASE ...] prints the table of
docs/design/013-partition-strategy.md that is measured. Every process has a core of its own, one
thread for kernels, and makes only the rows that it owns. A step is one application of G and one
reduction of a number, as Runge-Kutta has it; a term is one of a segment of `TERMS`.

Times are milliseconds by the clock on the wall: of the quickest few calls, which count, and the
median, and of the processor. Where these are far apart, other work had the cores; then only the
processor time of what a step is made of says something, each piece timed by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from partition_volume import CASES, Machine, Structure, speedups

from heomdask.backends.native import NativeBackend
from heomdask.backends.traits import Selection
from heomdask.generator.build import build_plan
from heomdask.hierarchy.numbering import Numbering
from heomdask.hierarchy.section import Section
from heomdask.hierarchy.truncation import Depth
from heomdask.partition.backend import PartitionedBackend
from heomdask.partition.coupling import work
from heomdask.partition.links.sockets import SocketLinks
from heomdask.partition.part import Part, section_part
from heomdask.partition.split import Lexicographic
from heomdask.preparation import prepare

NAMES = ("fmo-14-5", "fmo-14-6", "ring-16-4")
KINDS = ("unix", "memory", "tcp")
TOKEN = bytes(16)
SECONDS = 2.0  # for which everything is repeated
QUICKEST = 0.02  # of all repeats are quicker than what counts: on a busy machine, the undisturbed
TERMS = 20


class Clock:
    """Seconds by the wall and by the processor, summed by name."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def timed(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **named: object) -> object:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*args, **named)
            finally:
                self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall
                self.cpu[name] = self.cpu.get(name, 0.0) + time.thread_time() - cpu

        return run


def own_rows(name: str, rank: int, size: int) -> Part:
    """The part of one process, made from its own rows."""
    system, depth, _ = CASES[name]
    expanded = prepare(system.problem(), depth=1, expansion=system.expansion).expanded
    numbering = Numbering(Depth(depth).bounds(system.modes))
    some = np.arange(64) * numbering.n_ado // 64
    few = build_plan([expanded], Section(numbering, some))
    split = Lexicographic(numbering, size, work(few))
    section = Section(numbering, split.rows(rank))
    return section_part(build_plan([expanded], section), section, split)


class Member:
    """What one process of a group measures."""

    def __init__(self, name: str, kind: str, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        where = "tcp:127.0.0.1" if kind == "tcp" else "unix"
        self.links = SocketLinks(rank, size, TOKEN, where)
        print(self.links.address.replace("unix:", f"{kind}:"), flush=True)
        self.links.meet(json.loads(sys.stdin.readline()))
        part = own_rows(name, rank, size)
        self.local = NativeBackend(threads=1)
        self.backend = PartitionedBackend(self.local, self.links)
        self.compiled = self.backend.compile(part)
        host = np.random.default_rng(rank).standard_normal((part.n_cols, part.d, part.d))
        self.x, self.out = self.backend.put(self.compiled, host), self.backend.empty(self.compiled)

    def step(self) -> None:
        self.backend.apply(self.compiled, self.x, self.out)
        self.links.allreduce(np.ones(1), "max")

    def segment(self) -> None:
        table = np.zeros((TERMS + 1, 4))
        table[1:, 0], table[0, 3] = 1e-6, 1.0
        spare = self.backend.empty(self.compiled), self.backend.empty(self.compiled)
        probe = Selection.whole([0], self.compiled.plan.d)
        if self.size > 1:
            self.backend.recur(self.compiled, self.x, table, self.out, probe, spare)
        else:
            self.local.recur(self.compiled.local, self.x, table, self.out, probe, spare)

    def exchange(self, nbytes: int) -> Callable[[], None]:
        """Everybody sends everybody so much, and nothing is computed."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        array = np.zeros(max(nbytes // 8, 1))
        return lambda: void(self.links.swap(dict.fromkeys(others, array)))

    def times(self, call: Callable[[], None]) -> list[float]:
        """Seconds of one call: the median of many, and the quickest few; equally many for all."""
        for _ in range(2):
            started = time.perf_counter()
            call()
        once = self.links.allreduce(np.array([time.perf_counter() - started]), "max")[0]
        found = np.empty(int(np.clip(SECONDS / once, 50, 5000)))
        for k in range(len(found)):
            started = time.perf_counter()
            call()
            found[k] = time.perf_counter() - started
        return np.quantile(found, [0.5, QUICKEST]).tolist()

    def pieces(self) -> list[float]:
        """Processor time of interior, boundary, packing and unpacking, each by itself."""
        part, local, own = self.compiled.plan, self.local, self.compiled.local
        calls: list[Callable[[], object]] = [
            lambda rows=rows: local.apply(own, self.x, self.out, rows=rows)
            for rows in ((0, part.n_interior), (part.n_interior, part.n_rows))
        ]
        for sent, received in zip(
            self.compiled.sends.values(), self.compiled.receives.values(), strict=True
        ):
            buffer = np.zeros((len(received), 1), self.compiled.dtype)
            calls.append(lambda sent=sent: local.pack(own, self.x, sent))
            calls.append(lambda to=received, b=buffer: local.unpack(own, b, to, self.x))
        found = []
        for call in calls:
            seconds = np.empty(60)
            for k in range(len(seconds)):
                started = time.thread_time()
                call()
                seconds[k] = time.thread_time() - started
            found.append(float(np.quantile(seconds, 0.1)))
        return found

    def shares(self, repeats: int) -> dict[str, float]:
        """Seconds of a step by what they went to."""
        clock, local = Clock(), self.local
        local.pack, local.unpack = (clock.timed("copies", f) for f in (local.pack, local.unpack))
        self.links.finish = clock.timed("finish", self.links.finish)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            self.step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        waiting, copies = clock.wall["finish"] - clock.cpu["finish"], clock.wall.get("copies", 0.0)
        found = {"wall": wall, "cpu": cpu, "waiting": waiting, "copies": copies}
        return {name: seconds / repeats for name, seconds in found.items()}

    def report(self) -> dict[str, object]:
        sent = sum(len(s) for s in self.compiled.sends.values()) * self.compiled.dtype.itemsize
        found: dict[str, object] = {
            "sent": sent,
            "pieces": self.pieces(),
            "step": self.times(self.step),
            "term": [seconds / TERMS for seconds in self.times(self.segment)],
            "ping": self.times(self.exchange(8)),
            "message": self.times(self.exchange(sent)),
        }
        repeats = np.array([max(10.0, SECONDS // found["step"][0])])
        repeats = int(self.links.allreduce(repeats, "max")[0])
        return found | {"shares": self.shares(repeats)}


def void(_: object) -> None:
    """For calls whose result nobody wants."""


def member(name: str, kind: str, rank: str, size: str) -> None:
    os.sched_setaffinity(0, {int(rank) % os.cpu_count()})
    own = Member(name, kind, int(rank), int(size))
    print(json.dumps(own.report()), flush=True)
    own.links.allreduce(np.ones(1), "max")  # nobody leaves before all are ready
    own.links.close()


def group(name: str, kind: str, size: int) -> list[dict[str, object]]:
    """What every process of a group measured."""
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, "member", name, kind, str(rank), str(size)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )
            for rank in range(size)
        ]  # fmt: skip
        addresses = [one.stdout.readline().strip() for one in members]
        for one in members:
            one.stdin.write(json.dumps(addresses) + "\n")
            one.stdin.flush()
        return [json.loads(one.stdout.readline()) for one in members]


def quickest(found: list[dict[str, object]], what: str) -> float:
    """Of the slowest part, what took how long where nothing disturbed it."""
    return max(one[what][1] for one in found)


def median(found: list[dict[str, object]], what: str) -> float:
    return max(one[what][0] for one in found)


def predicted(structure: Structure, alone: float, found: list[dict[str, object]]) -> list[str]:
    """Speed-ups of the model with constants that were measured here: apart, and overlapped."""
    nbytes = max(one["sent"] for one in found)
    latency = quickest(found, "ping")
    copies = max(one["shares"]["copies"] for one in found)
    machine = Machine(
        "here", 1, latency, nbytes / max(quickest(found, "message") - latency, 1e-9),
        2 * nbytes / copies,
    )  # fmt: skip
    structure.ns = alone / structure.numbering.n_ado * 1e9
    apart, overlapped = speedups(structure.count(Lexicographic, 2), structure, machine)
    constants = f"{latency * 1e6:.0f} µs, {machine.bandwidth / 1e9:.1f}, {machine.copy / 1e9:.1f}"
    return [constants, f"{apart:.2f}, {overlapped:.2f}"]


def main(names: list[str]) -> None:
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(
        "| case | links | interior, boundary, pack, unpack | step: quickest, median, processor | "
        "term: quickest, median | waiting, copies | speed-up of a step, of a term | "
        "latency, GB/s of links, of copies | model: apart, overlapped |"
    )
    for name in names:
        structure = Structure(name)
        runs = {"alone": group(name, "unix", 1)} | {kind: group(name, kind, 2) for kind in KINDS}
        alone = {what: quickest(runs["alone"], what) for what in ("step", "term")}
        for kind, found in runs.items():
            line = [name, kind, *own_figures(found)]
            speed = [alone[what] / quickest(found, what) for what in ("step", "term")]
            line += [", ".join(f"{s:.2f}" for s in speed)]
            line += ["", ""] if kind == "alone" else predicted(structure, alone["step"], found)
            print(f"| {' | '.join(line)} |", flush=True)
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)


def own_figures(found: list[dict[str, object]]) -> list[str]:
    """Milliseconds, and shares of a step, of the part that took longest."""
    step, term = ([quickest(found, w), median(found, w)] for w in ("step", "term"))
    shares = {key: max(one["shares"][key] for one in found) for key in found[0]["shares"]}
    step.append(shares["cpu"])
    pieces = np.max([one["pieces"] for one in found], axis=0)
    cells = [", ".join(f"{1e3 * t:.2f}" for t in times) for times in (pieces, step, term)]
    part = [shares[what] / shares["wall"] for what in ("waiting", "copies")]
    return [*cells, ", ".join(f"{share:.0%}" for share in part)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        member(*sys.argv[2:])
    else:
        main(sys.argv[1:] or list(NAMES))
