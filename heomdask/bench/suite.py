"""All measurements in a row, each with the time that it is expected to take.

Takes: names or patterns, and whether it shall be quick.
Gives: `Step`s to run one after the other, and the `Report` that they fill.
Next file: `tables.py`, the report in words.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from heomdask import topology
from heomdask.bench import construction, kernels, machine, solves
from heomdask.bench.cases import CASES, Case
from heomdask.bench.construction import BUILDS, Constructed, Construction
from heomdask.bench.kernels import Kernel, Peer
from heomdask.bench.machine import Machine
from heomdask.bench.solves import SOLVES, Solve, Solved
from heomdask.bench.timing import FULL, QUICK, Effort
from heomdask.errors import InputError, TooLarge


@dataclass
class Report:
    """Everything that was measured, and what was left out."""

    machine: Machine
    kernels: list[Kernel] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    solves: list[Solved] = field(default_factory=list)
    builds: list[Constructed] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Step:
    """One measurement; `seconds` is a guess for a machine that does nothing else."""

    name: str
    seconds: float
    run: Callable[[Report], None]


def thread_counts() -> list[int]:
    """One, and all."""
    return sorted({1, len(topology.allowed())})


def begin(quick: bool) -> Report:
    """An empty report of this machine, whose limits are measured first."""
    effort = QUICK if quick else FULL
    backends = [machine.native(n) for n in thread_counts()]
    found = [machine.limits(backend, effort) for backend in backends]
    return Report(machine.describe(found, backends[0].info.isa))


def steps(quick: bool, patterns: list[str]) -> list[Step]:
    """What is to be measured; patterns as of a shell choose by name."""
    effort = QUICK if quick else FULL
    every: list[tuple[bool, Step]] = [(case.quick, _kernel(case, effort)) for case in CASES]
    every += [(solve.quick, _solve(solve, quick)) for solve in SOLVES]
    every += [(build.quick, _build(build)) for build in BUILDS]
    for pattern in patterns:
        if not fnmatch.filter([step.name for _, step in every], pattern):
            names = ", ".join(step.name for _, step in every)
            raise InputError(f"`case` must name one of {names}; got {pattern!r}.")
    if patterns:
        return [s for _, s in every if any(fnmatch.fnmatch(s.name, p) for p in patterns)]
    return [step for is_quick, step in every if is_quick or not quick]


def _kernel(case: Case, effort: Effort) -> Step:
    def run(report: Report) -> None:
        found = kernels.measure(case, effort, thread_counts())
        report.kernels += found.kernels
        report.peers += found.peers
        report.left_out += found.left_out

    return Step(case.name, kernels.expected_seconds(case, effort), run)


def _solve(solve: Solve, quick: bool) -> Step:
    effort = dataclasses.replace(QUICK if quick else FULL, rounds=3 if quick else 5)

    def run(report: Report) -> None:
        report.solves.append(solves.measure(solve, effort, thread_counts()))

    return Step(solve.name, solves.expected_seconds(solve, effort), run)


def _build(build: Construction) -> Step:
    def run(report: Report) -> None:
        try:
            report.builds.append(construction.measure(build))
        except TooLarge as error:
            report.left_out.append(str(error))

    return Step(build.name, construction.expected_seconds(build), run)
