"""The conformance suite's part about polynomial segments: `recur`.

Takes: a backend, through its hooks.
Gives: `RecurConformance`.
Next file: `conformance.py`, the whole suite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from heomdask.backends.traits import TRAJECTORY_TOLERANCE, BackendBase, BackendTraits, Compiled
from heomdask.plan import AnyArray, Plan
from heomdask.testing.hooks import Hooks
from heomdask.testing.oracle import (
    assert_close,
    polynomial,
    probe_of,
    segment_table,
    weighted_sum,
    without_names,
)
from heomdask.testing.random_plans import CASES, Case


class RecurConformance(Hooks):
    """A polynomial segment against the loop over ``apply``, and against the definition."""

    def segment(
        self, case: Case, plan: Plan, run: Callable[..., Any], be: BackendTraits, compiled: Compiled
    ) -> tuple[AnyArray, AnyArray, NDArray[np.float64], AnyArray]:
        """One segment of degree 6: accumulator, probed elements, norms, and x afterwards."""
        coeffs = segment_table(case, plan, degree=6)
        x, acc = be.put(compiled, case.state(plan)), be.put(compiled, case.state(plan, 1))
        work = (be.put(compiled, case.state(plan, 2)), be.empty(compiled))
        probed, norms = run(compiled, x, coeffs, acc, probe_of(plan), work)
        return be.fetch(compiled, acc), probed, norms, be.fetch(compiled, x)

    @pytest.mark.parametrize("case", [c for c in CASES if not c.names], ids=str)
    def test_segment_is_the_polynomial(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        acc, probed, norms, x = self.segment(case, plan, be.recur, be, compiled)
        assert np.array_equal(x, case.state(plan))
        terms = polynomial(plan, case.state(plan), segment_table(case, plan, degree=6))
        want = weighted_sum(terms)
        size = max(float(np.max(np.abs(p))) for p, _ in terms)
        tolerance = TRAJECTORY_TOLERANCE["float64"]
        assert_close(acc, want, 10 * size, tolerance)
        s = probe_of(plan)
        assert_close(probed, np.stack([p[s.ado, s.row, s.col] for p, _ in terms]), size, tolerance)
        wanted = np.stack([np.max(np.abs(p), axis=(0, 1, 2)) for p, _ in terms])
        assert_close(norms, wanted, size, tolerance)

    @pytest.mark.parametrize("case", [c for c in CASES if not c.names][::3], ids=str)
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_segment_equals_the_loop(self, case: Case, dtype: str) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan, dtype)
        fused = self.segment(case, plan, be.recur, be, compiled)

        def loop(*arguments: Any) -> Any:
            return BackendBase.recur(be, *arguments)

        plain = self.segment(case, plan, loop, be, compiled)
        for got, want in zip(fused, plain, strict=True):
            size = 10 * float(np.max(np.abs(want), initial=1.0))
            assert_close(got, want, size, TRAJECTORY_TOLERANCE[dtype])

    @pytest.mark.parametrize("case", [c for c in CASES if not c.names][::3], ids=str)
    def test_segment_without_a_sum(self, case: Case) -> None:
        be, compiled = self.ready(case.plan())
        _, probed, norms, _ = self.segment(case, compiled.plan, be.recur, be, compiled)
        x, work = (
            be.put(compiled, case.state(compiled.plan)),
            (be.empty(compiled), be.empty(compiled)),
        )
        table, probe = segment_table(case, compiled.plan, degree=6), probe_of(compiled.plan)
        bare = be.recur(compiled, x, table, None, probe, work)
        assert np.array_equal(bare[0], probed) and np.array_equal(bare[1], norms)

    @pytest.mark.parametrize("case", [c for c in CASES if not c.names][::3], ids=str)
    @pytest.mark.parametrize("cut", [2, 3, 6])
    def test_segment_in_two_calls(self, case: Case, cut: int) -> None:
        """Every term as in one call; the sum may be added up in another order."""
        plan = case.plan()
        be, compiled = self.ready(plan)
        acc, probed, norms, _ = self.segment(case, plan, be.recur, be, compiled)

        def twice(c: Compiled, x: Any, table: AnyArray, acc: Any, probe: Any, work: Any) -> Any:
            first = be.recur(c, x, table[:cut], acc, probe, work)
            second = be.recur(c, x, table[cut:], acc, probe, work, start=cut)
            return tuple(np.concatenate(pair) for pair in zip(first, second, strict=True))

        again = self.segment(case, plan, twice, be, compiled)
        size = 10 * float(np.max(np.abs(acc), initial=1.0))
        assert_close(again[0], acc, size, TRAJECTORY_TOLERANCE["float64"])
        assert np.array_equal(again[1], probed) and np.array_equal(again[2], norms)

    @pytest.mark.parametrize("case", [c for c in CASES if c.members > 1][::3], ids=str)
    def test_finished_member_stays_out(self, case: Case) -> None:
        """Zero coefficients from order 2 on, as for a member of lower degree that then explodes."""
        plan = without_names(case.plan())
        be, compiled = self.ready(plan)
        gone = plan.n_members - 1
        coeffs = np.array(segment_table(case, plan, degree=5))
        coeffs[2:, :, gone] = 0.0
        x = be.put(compiled, case.state(plan))
        work = (be.empty(compiled), be.empty(compiled))
        acc = be.empty(compiled)
        be.recur(compiled, x, coeffs, acc, probe_of(plan), work)
        got = be.fetch(compiled, acc)
        for last, chosen in [(6, slice(0, gone)), (2, slice(gone, None))]:
            terms = polynomial(plan, case.state(plan), coeffs)[:last]
            want = weighted_sum(terms)
            size = max(float(np.max(np.abs(p))) for p, _ in terms)
            assert_close(
                got[..., chosen], want[..., chosen], 10 * size, TRAJECTORY_TOLERANCE["float64"]
            )
