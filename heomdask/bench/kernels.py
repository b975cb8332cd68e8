"""One application of a case's plan, on one thread and on all, beside limits and peers.

Takes: a `Case` and an `Effort`.
Gives: `Kernel`, one for each precision and number of threads, and `Peer`, one for each of them.
Next file: `solves.py`, what it comes to in a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heomdask import memory
from heomdask.backends.traits import Selection
from heomdask.bench import peers
from heomdask.bench.cases import Case
from heomdask.bench.machine import native, peak, triad
from heomdask.bench.timing import Action, Effort, Seconds, Spread
from heomdask.bench.work import Work, work_of
from heomdask.plan import Plan

if TYPE_CHECKING:
    from heomdask.backends.native import NativeBackend, NativeCompiled

_STATES = 18  # of both precisions, on one thread and on all, and the arrays of the triads
_TERMS = 10  # of a segment


@dataclass(frozen=True)
class Kernel:
    """One application; shares are of the limits measured in the same rounds.

    `bandwidth_share` compares with a triad of the footprint of the two states, in the caches if
    they are. `segment_*` is one term of a polynomial, of ten that are computed in one call: what
    the solvers do.
    """

    case: str
    n_ado: int
    members: int
    precision: str
    threads: int
    work: Work
    nanoseconds: Spread  # per ADO and member
    gflops: Spread
    peak_share: Spread
    bandwidth_share: Spread
    segment_nanoseconds: Spread
    segment_peak_share: Spread


@dataclass(frozen=True)
class Peer:
    """One application by another, for one member; how many times longer than ours it takes."""

    case: str
    name: str
    nanoseconds: Spread
    ratios: dict[int, Spread]  # by our number of threads, in double precision


@dataclass(frozen=True)
class Measured:
    """What a case gave, and what was left out, with the reason."""

    kernels: list[Kernel]
    peers: list[Peer]
    left_out: list[str]


def measure(case: Case, effort: Effort, threads: list[int]) -> Measured:
    """All figures of a case, in the same rounds."""
    n_ado = case.n_ado
    need = _STATES * 8 * case.system.d**2 * n_ado * case.members
    if need > memory.available():
        return Measured([], [], [f"{case.name}: needs about {memory.readable(need)}"])
    one, plan, alone = case.prepared(), case.plan(), case.plan(1)
    bench = _Bench(case, plan, threads)
    found = peers.actions(one.expanded, case.depth, alone, work_of(alone).elements)
    runs = {name: action for name, action in found.items() if isinstance(action, Action)}
    seconds = effort.interleave(bench.actions | {("peer", name): a for name, a in runs.items()})
    ours = {n: seconds["apply", "float64", n] / case.members for n in bench.threads}
    return Measured(
        bench.kernels(seconds),
        [
            Peer(
                case.name, name, Spread.of(1e9 * seconds["peer", name] / n_ado),
                {n: Spread.of(seconds["peer", name] / own) for n, own in ours.items()},
            )
            for name in runs
        ],
        [f"{name} of {case.name}: {why}" for name, why in found.items() if isinstance(why, str)],
    )  # fmt: skip


def expected_seconds(case: Case, effort: Effort) -> float:
    """A guess: every action in every round, and the building of the peers' matrices."""
    elements = case.n_ado * 12 * case.system.d**2 * (1 if case.system.d < 16 else 2.7)
    calls = case.members * 3e-9 * elements + 6e-9 * elements
    actions = 10 if case.members == 1 else 18
    return 0.3 + (effort.rounds + 2) * (actions * effort.sample + calls) + 5e-7 * elements


class _Bench:
    """Our actions, and what one call of each is; on as many threads as the backend would use."""

    def __init__(self, case: Case, plan: Plan, threads: list[int]) -> None:
        self.case = case
        self.plan = plan
        self.actions: dict[Hashable, Action] = {}
        self.amounts: dict[Hashable, float] = {}
        self.works: dict[tuple[str, int], Work] = {}
        for n in threads:
            backend = native(n)
            for precision in ("float64",) if case.members == 1 else ("float64", "float32"):
                compiled = backend.compile(plan, precision)
                if compiled.threads == n:  # else it is the same as on fewer
                    self._add(backend, compiled, precision)

    @property
    def threads(self) -> list[int]:
        return sorted({n for _, n in self.works})

    def _add(self, backend: NativeBackend, compiled: NativeCompiled, precision: str) -> None:
        n = compiled.threads
        self.works[precision, n] = work_of(self.plan, precision)
        self.actions["apply", precision, n], self.actions["segment", precision, n] = (
            Action(call, n) for call in _calls(backend, compiled)
        )
        for what, (action, amount) in {
            "peak": peak(backend, precision),
            "triad": triad(backend, 2 * compiled.engine.state_size * compiled.real.itemsize),
        }.items():
            self.actions[what, precision, n] = action
            self.amounts[what, precision, n] = amount

    def kernels(self, seconds: dict[Hashable, Seconds]) -> list[Kernel]:
        """Figures from the seconds of all rounds."""
        found = []
        for (precision, n), work in self.works.items():
            size = self.plan.n_rows * self.plan.n_members
            per_ado = seconds["apply", precision, n] / size
            term = seconds["segment", precision, n] / size / _TERMS
            rates = {
                what: self.amounts[what, precision, n] / seconds[what, precision, n]
                for what in ("peak", "triad")
            }
            found.append(
                Kernel(
                    self.case.name, self.plan.n_rows, self.plan.n_members, precision, n, work,
                    Spread.of(1e9 * per_ado), Spread.of(1e-9 * work.flops / per_ado),
                    Spread.of(work.flops / per_ado / rates["peak"]),
                    Spread.of(work.nbytes / per_ado / rates["triad"]),
                    Spread.of(1e9 * term), Spread.of(work.flops / term / rates["peak"]),
                )
            )  # fmt: skip
        return found


def _calls(
    backend: NativeBackend, compiled: NativeCompiled
) -> tuple[Callable[[], object], Callable[[], object]]:
    """One application, and one segment that stays bounded."""
    plan = compiled.plan
    rng = np.random.default_rng(1)
    x = backend.put(compiled, rng.normal(size=(plan.n_cols, plan.d, plan.d, 1)))
    out, *work = (backend.empty(compiled) for _ in range(3))
    coefficients = np.tile([1e-3, 0.1, -0.1, 0.1], (_TERMS + 1, 1))
    probe = Selection.whole([0], plan.d)
    return (
        lambda: backend.apply(compiled, x, out),
        lambda: backend.recur(compiled, x, coefficients, out, probe, (work[0], work[1])),
    )
