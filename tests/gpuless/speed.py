"""Times on a card, beside the copy ceiling and what docs/design/011 predicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from heomdask.bench import cases
from heomdask.generator.build import build_plan
from heomdask.plan import Plan

LAUNCH = 3.0e-6  # seconds, predicted as all that follows
PREDICTED = {2: (0.14, 214), 7: (2.4, 979), 16: (20.0, 4270), 32: (140.0, 16500)}  # ns, bytes
CHAIN = cases.System(
    "chain", 32, 32, lambda: 0.1 * (np.eye(32, k=1) + np.eye(32, k=-1)),
    lambda: [np.diag(row) for row in np.eye(32)], cases.RING.bath, cases.RING.expansion, 0.0,
)  # fmt: skip
SYSTEMS = {2: cases.SPIN_BOSON, 7: cases.FMO_7, 16: cases.RING, 32: CHAIN}
Facts = Iterator[tuple[str, Any]]


def throughput(lab: Any) -> Facts:
    """Nanoseconds per ADO; the first depth of each system is that of the prediction."""
    depths = lab.pick(
        {2: (40, 120), 7: (8, 11), 16: (4, 5), 32: (2, 3)}, {2: (2,), 7: (1,), 16: (1,), 32: (0,)}
    )
    bench = Bench(lab)
    yield "copy ceiling, GB/s", bench.ceiling / 1e9
    for d, (nanoseconds, nbytes) in PREDICTED.items():
        for depth in depths[d]:
            case = cases.Case(SYSTEMS[d], depth)
            kernel, called = bench.seconds(case.plan())
            own = 1e9 * kernel / case.n_ado
            predicted = max(nanoseconds, 1e9 * LAUNCH / case.n_ado)
            yield f"d = {d}, {case.n_ado} ADOs", {
                "ns": own, "predicted": predicted, "ratio": own / predicted,
                "ns as called": 1e9 * called / case.n_ado,
                "of the copy ceiling": nbytes / own * 1e9 / bench.ceiling,
            }  # fmt: skip


def batches(lab: Any) -> Facts:
    """One application of batches of 1 to 4096 members of the FMO complex."""
    bench, case = Bench(lab), cases.Case(cases.FMO_7, lab.pick(3, 1))
    few = [case.prepared(m) for m in range(lab.pick(16, 2))]
    for members in lab.pick((1, 4, 16, 64, 256, 1024, 4096), (1, 5)):
        expanded = [few[m % len(few)].expanded for m in range(members)]
        kernel, called = bench.seconds(build_plan(expanded, few[0].index_set))
        each = 1e9 / case.n_ado / members
        yield f"{members} members", {"ns": each * kernel, "ns as called": each * called}


class Bench:
    """Times on the card; `kernel` is without what the host does between two launches."""

    def __init__(self, lab: Any) -> None:
        self.repeats = lab.pick(20, 1)
        self.backend, self.api = lab.backend(), lab.api
        self.device = self.backend._device
        shape = (lab.pick(2**27, 64),)
        self.big = [self.device.zeros(shape, "f8") for _ in range(2)]
        self.ceiling = 2 * self.big[0].nbytes / self._median(self._copy, 9)

    def _copy(self) -> None:
        with self.device._here():
            self.big[0][...] = self.big[1]

    def _median(self, run: Callable[[], None], rounds: int) -> float:
        """Seconds of what is queued while the card is still busy with copies."""
        found = []
        for _ in range(rounds):
            for _ in range(8):
                self._copy()
            begin = self.device.record()
            run()
            end = self.device.record()
            self.device.synchronize()
            found.append(1e-3 * self.api.cuda.get_elapsed_time(begin, end))
        return float(np.median(found))

    def seconds(self, plan: Plan) -> tuple[float, float]:
        """Of one application: of its kernel, and as it is called."""
        backend, device = self.backend, self.device
        compiled = backend.compile(plan)
        host = np.random.default_rng(1).normal(size=(plan.n_cols, plan.d, plan.d, 1))
        x, out = backend.put(compiled, host), backend.empty(compiled)
        launches: list[Any] = []
        with mock.patch.object(device, "launch", lambda *given: launches.append(given)):
            backend.apply(compiled, x, out)
        backend.apply(compiled, x, out)
        kernel = self._median(
            lambda: [device.launch(*launches[0]) for _ in range(self.repeats)] and None, 5
        )
        device.synchronize()
        began = time.perf_counter()
        for _ in range(self.repeats):
            backend.apply(compiled, x, out)
        device.synchronize()
        return kernel / self.repeats, (time.perf_counter() - began) / self.repeats
