"""AVX2 and AVX-512 do the same operations on a member, in the same order: no bit may differ."""

from __future__ import annotations

from typing import Literal

import pytest

from heomdask._native import _core
from heomdask.backends.native import NativeBackend
from heomdask.backends.traits import Compiled, State
from heomdask.plan import AnyArray, Plan, Scalars
from heomdask.testing.local_solves import evenly
from heomdask.testing.oracle import per_member, probe_of, segment_table, without_names
from heomdask.testing.random_plans import CASES, Case

RUNS = {name for name, runs in _core.instruction_sets() if runs}
if not {"avx2", "avx512"} <= RUNS:
    pytest.skip("this processor does not run both avx2 and avx512", allow_module_level=True)
Layout = Literal["auto", "batch"]
LAYOUTS: tuple[Layout, Layout] = ("auto", "batch")
WIDER = [  # several blocks of every width, the last one not full
    *CASES,
    *(Case(seed=9, d=d, members=21, form=f) for d in (2, 7) for f in ("real", "complex")),
]


class Run:
    """A plan compiled for one instruction set, and its states."""

    def __init__(self, isa: str, case: Case, plan: Plan, layout: Layout, dtype: str) -> None:
        self.backend = NativeBackend(threads=1, isa=isa, layout=layout)
        self.case, self.plan = case, plan
        self.compiled: Compiled = self.backend.compile(plan, dtype)

    def state(self, stream: int) -> State:
        x = self.case.state(self.plan, stream).astype(self.compiled.dtype)
        return self.backend.put(self.compiled, x)

    def fetched(self, *states: State) -> list[AnyArray]:
        return [self.backend.fetch(self.compiled, x) for x in states]

    def applied(self, scalars: Scalars | None) -> list[AnyArray]:
        a, b, c, w = per_member(self.case, self.plan, 4)
        b[::2], w[1::2] = 0.0, 0.0  # of some of the members: masks
        w = w.real  # so of complex weights a part is 0
        x, out, acc = (self.state(k) for k in range(3))
        self.backend.apply(self.compiled, x, out, a=a, b=b, c=c, acc=acc, w=w, scalars=scalars)
        return self.fetched(out, acc)

    def segment(self) -> list[AnyArray]:
        x, acc, one, two = (self.state(k) for k in range(4))
        coeffs = segment_table(self.case, self.plan, degree=6)
        probe = probe_of(self.plan)
        probed, norms = self.backend.recur(self.compiled, x, coeffs, acc, probe, (one, two))
        return [probed, norms, *self.fetched(acc)]

    def reduced(self) -> list[AnyArray]:
        x, y, out = (self.state(k) for k in range(3))
        weights = per_member(self.case, self.plan, 3)
        weights[1][::2] = 0.0
        dots = self.backend.dots(self.compiled, [x, y], y)
        self.backend.combine(self.compiled, out, weights, [x, y, out])
        errors = self.backend.error_norm(self.compiled, out, x, y, 1e-3, 1e-2)
        return [dots, errors, *self.fetched(out)]

    def solved(self) -> list[AnyArray]:
        x, out = self.state(0), self.state(1)
        self.backend.solve_local(self.compiled, 9.0, x, out)
        return self.fetched(out)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", WIDER, ids=str)
def test_avx512_gives_the_bits_of_avx2(case: Case, layout: Layout, dtype: str) -> None:
    plan = case.plan()
    constant, even = without_names(plan), evenly(plan)
    results = []
    for isa in ("avx2", "avx512"):
        found = Run(isa, case, plan, layout, dtype).applied(case.scalars(plan))
        found += Run(isa, case, constant, layout, dtype).segment()
        found += Run(isa, case, constant, layout, dtype).reduced()
        found += Run(isa, case, even, layout, dtype).solved()
        results.append(found)
    for number, (narrow, wide) in enumerate(zip(*results, strict=True)):
        assert narrow.tobytes() == wide.tobytes(), number
