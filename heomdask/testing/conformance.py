"""The conformance suite: what every backend must do, asserted against `Plan.to_sparse`.

Takes: a backend, through the hooks of `BackendConformance`.
Gives: the tests; a backend's test file subclasses `BackendConformance` and fills the hooks.
Next file: `backends/registry.py`, which offers the backends that pass.

The oracle is the assembled matrix of one member in double precision, so that a backend, numpy's
too, is compared with another algorithm. Errors are relative to max |G||X| and bounded by the
constants of `backends/traits.py`, the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from heomdask.backends.traits import (
    APPLY_TOLERANCE,
    Selection,
)
from heomdask.partition.part import part_of
from heomdask.plan import AnyArray, Plan
from heomdask.testing.hooks import Hooks
from heomdask.testing.local_solves import LocalSolveConformance, PartSolveConformance
from heomdask.testing.oracle import (
    assert_close,
    image,
    per_member,
    probe_of,
    segment_table,
    touched,
    weighted_sum,
)
from heomdask.testing.random_plans import CASES, Case
from heomdask.testing.segments import RecurConformance

every_case = pytest.mark.parametrize("case", CASES, ids=str)
some_cases = pytest.mark.parametrize("case", CASES[::3], ids=str)
in_batches = pytest.mark.parametrize("case", [c for c in CASES if c.members > 1], ids=str)


class ApplyConformance(Hooks):
    """``apply`` against the definition."""

    @every_case
    def test_apply_is_the_generator(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x, scalars = case.state(plan), case.scalars(plan)
        out = be.empty(compiled)
        be.apply(compiled, be.put(compiled, x), out, scalars=scalars)
        want, size = image(plan, x, scalars)
        assert_close(be.fetch(compiled, out), want, size, APPLY_TOLERANCE["float64"])

    @some_cases
    def test_apply_in_single_precision(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan, "float32")
        x, scalars = case.state(plan), case.scalars(plan)
        x = x.astype(compiled.dtype)
        out = be.empty(compiled)
        be.apply(compiled, be.put(compiled, x), out, scalars=scalars)
        got = be.fetch(compiled, out)
        assert got.dtype == compiled.dtype
        want, size = image(plan, x, scalars)
        assert_close(got, want, size, APPLY_TOLERANCE["float32"])

    @every_case
    def test_weights_per_member_and_accumulator(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x, y, z = (case.state(plan, stream) for stream in range(3))
        scalars = case.scalars(plan)
        a, b, c, w = per_member(case, plan, 4)
        out, acc = be.put(compiled, y), be.put(compiled, z)
        be.apply(compiled, be.put(compiled, x), out, a=a, b=b, c=c, acc=acc, w=w, scalars=scalars)
        gx, size = image(plan, x, scalars)
        want = a * gx + b * x + c * y
        scale = 4 * (size + 1) * float(max(np.max(np.abs(v)) for v in (a, b, c, w, y, z))) ** 2
        assert_close(be.fetch(compiled, out), want, scale, APPLY_TOLERANCE["float64"])
        assert_close(be.fetch(compiled, acc), z + w * want, scale, APPLY_TOLERANCE["float64"])

    @some_cases
    def test_input_is_left_alone(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x = be.put(compiled, case.state(plan))
        be.apply(compiled, x, be.empty(compiled), scalars=case.scalars(plan))
        assert np.array_equal(be.fetch(compiled, x), case.state(plan))

    @some_cases
    def test_row_range_writes_those_rows_only(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x, scalars = case.state(plan), case.scalars(plan)
        want, size = image(plan, x, scalars)
        for start, stop in [(0, plan.n_rows), (plan.n_rows // 3, plan.n_rows), (0, 0)]:
            out = be.put(compiled, case.state(plan, 1))
            acc = be.put(compiled, case.state(plan, 2))
            be.apply(
                compiled, be.put(compiled, x), out,
                acc=acc, w=2.0, scalars=scalars, rows=(start, stop),
            )  # fmt: skip
            written = case.state(plan, 1)
            written[start:stop] = want[start:stop]
            summed = case.state(plan, 2)
            summed[start:stop] += 2 * want[start:stop]
            tolerance = APPLY_TOLERANCE["float64"]
            assert_close(be.fetch(compiled, out), written, size, tolerance)
            assert_close(be.fetch(compiled, acc), summed, 2 * size + 10, tolerance)

    @pytest.mark.parametrize("case", [c for c in CASES if c.names], ids=str)
    def test_named_scalars_shared_or_per_member(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x = case.state(plan)
        shared = np.linspace(-0.7, 1.3, len(plan.names))
        results = []
        for scalars in (shared, np.repeat(shared[:, None], plan.n_members, axis=1)):
            out = be.empty(compiled)
            be.apply(compiled, be.put(compiled, x), out, scalars=scalars)
            results.append(be.fetch(compiled, out))
        want, size = image(plan, x, shared)
        assert_close(results[0], want, size, APPLY_TOLERANCE["float64"])
        assert np.array_equal(results[0], results[1])

    @some_cases
    def test_wider_accumulator_keeps_small_increments(self, case: Case) -> None:
        plan = case.plan()
        be, single = self.ready(plan, "float32")
        wide = be.compile(plan)
        x = case.state(plan).astype(single.dtype)
        acc = be.put(wide, np.ones((plan.n_cols, plan.d, plan.d, plan.n_members)))
        be.apply(
            single, be.put(single, x), be.empty(single),
            a=0.0, b=1.0, acc=acc, w=1e-9, scalars=case.scalars(plan),
        )  # fmt: skip
        got = be.fetch(wide, acc)
        assert got.dtype == wide.dtype
        assert_close(got - 1.0, 1e-9 * x, 1e-9 * float(np.max(np.abs(x))), 1e-6)

    @some_cases
    def test_adjoint_identity(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        back = be.compile(plan.adjoint())
        scalars = case.scalars(plan)
        x, y = (be.put(compiled, case.state(plan, stream)) for stream in (0, 1))
        gx, gy = be.empty(compiled), be.empty(back)
        be.apply(compiled, x, gx, scalars=scalars)
        be.apply(back, y, gy, scalars=scalars)
        left, right = be.dots(compiled, [y], gx)[0], be.dots(back, [gy], x)[0]
        _, size = image(plan, case.state(plan), scalars)
        count = plan.n_rows * plan.d**2
        assert_close(left, right, 10 * size * count, APPLY_TOLERANCE["float64"])


class ZeroWeightConformance(Hooks):
    """A weight of 0 hides a member's array, whatever it holds: the others never notice."""

    @in_batches
    def test_exploded_member_is_invisible(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        gone, alive = plan.n_members // 2, np.arange(plan.n_members) != plan.n_members // 2
        ruined, scalars = case.state(plan), case.scalars(plan)
        ruined[..., gone] = np.nan
        ruined[0, ..., gone] = np.inf
        a, b, c, w = per_member(case, plan, 4)
        for weights in (a, b, c, w):
            weights[gone] = 0.0
        results = []
        for x, y in [(case.state(plan), case.state(plan, 1)), (ruined, ruined)]:
            start = case.state(plan, 1)
            start[..., gone] = y[..., gone]
            out, acc = be.put(compiled, start), be.put(compiled, case.state(plan, 2))
            be.apply(
                compiled, be.put(compiled, x), out, a=a, b=b, c=c, acc=acc, w=w, scalars=scalars
            )
            total = be.empty(compiled)
            be.combine(compiled, total, [a, b], [be.put(compiled, x), out])
            results.append([be.fetch(compiled, s) for s in (out, acc, total)])
        for clean, other in zip(*results, strict=True):
            assert np.array_equal(clean[..., alive], other[..., alive])
        out, acc, total = (r[..., gone] for r in results[1])
        assert not out.any()
        assert np.array_equal(acc, case.state(plan, 2)[..., gone])
        assert not total.any()

    @some_cases
    def test_unused_arrays_may_hold_anything(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x, scalars = case.state(plan), case.scalars(plan)
        rubbish = np.full_like(x, np.nan)
        out = be.put(compiled, rubbish)
        be.apply(compiled, be.put(compiled, x), out, scalars=scalars)
        want, size = image(plan, x, scalars)
        assert_close(be.fetch(compiled, out), want, size, APPLY_TOLERANCE["float64"])
        be.apply(compiled, be.put(compiled, rubbish), out, a=0.0, b=0.0, c=0.0, scalars=scalars)
        assert not be.fetch(compiled, out).any()


class VectorConformance(Hooks):
    """Memory, linear combinations, reductions, chosen elements."""

    @some_cases
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_put_fetch_round_trip(self, case: Case, dtype: str) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan, dtype)
        host = case.state(plan).astype(compiled.dtype)
        state = be.put(compiled, host)
        got = be.fetch(compiled, state)
        assert got.dtype == compiled.dtype
        assert np.array_equal(got, host)
        got[...] = 0  # a copy: the state does not notice
        assert np.array_equal(be.fetch(compiled, state), host)
        one = be.fetch(compiled, be.put(compiled, host[..., 0]))
        assert np.array_equal(one, np.repeat(host[..., :1], plan.n_members, axis=-1))
        assert not be.fetch(compiled, be.empty(compiled)).any()
        assert compiled.nbytes >= 0

    @some_cases
    def test_combine_also_onto_itself(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        hosts = [case.state(plan, stream) for stream in range(3)]
        weights = per_member(case, plan, 3)
        want = weighted_sum(list(zip(hosts, weights, strict=True)))
        for target in (None, 0, 1, 2):
            states = [be.put(compiled, h) for h in hosts]
            out = be.empty(compiled) if target is None else states[target]
            be.combine(compiled, out, weights, states)
            assert_close(be.fetch(compiled, out), want, 30.0, APPLY_TOLERANCE["float64"])
            for k, (state, host) in enumerate(zip(states, hosts, strict=True)):
                assert k == target or np.array_equal(be.fetch(compiled, state), host)

    @pytest.mark.parametrize("target", [None, 0, 39])
    def test_combine_of_many(self, target: int | None) -> None:
        case = CASES[2]
        plan = case.plan()
        be, compiled = self.ready(plan)
        hosts = [case.state(plan, stream) for stream in range(40)]
        weights = per_member(case, plan, 40)
        states = [be.put(compiled, h) for h in hosts]
        out = be.empty(compiled) if target is None else states[target]
        be.combine(compiled, out, weights, states)
        want = weighted_sum(list(zip(hosts, weights, strict=True)))
        assert_close(be.fetch(compiled, out), want, 400.0, APPLY_TOLERANCE["float64"])

    @some_cases
    def test_reductions_and_their_determinism(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x, y, z = (case.state(plan, stream) for stream in range(3))
        first, second, third = states = [be.put(compiled, h) for h in (x, y, z)]
        dots = be.dots(compiled, states[:2], states[2])
        want = np.stack([np.sum(np.conj(h) * z, axis=(0, 1, 2)) for h in (x, y)])
        assert_close(dots, want, 4.0 * plan.n_rows * plan.d**2, APPLY_TOLERANCE["float64"])
        error = be.error_norm(compiled, first, second, third, 1e-3, 0.5)
        scaled = np.abs(x) / (1e-3 + 0.5 * np.maximum(np.abs(y), np.abs(z)))
        wanted = np.max(scaled, axis=(0, 1, 2))
        assert_close(error, wanted, float(np.max(wanted)), APPLY_TOLERANCE["float64"])
        assert error.dtype == np.float64
        for _ in range(3):
            assert np.array_equal(be.dots(compiled, states[:2], states[2]), dots)
            assert np.array_equal(be.error_norm(compiled, first, second, third, 1e-3, 0.5), error)

    @in_batches
    def test_error_norm_shows_what_is_not_finite(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        x = case.state(plan)
        x[plan.n_rows - 1, 0, plan.d - 1, 0] = np.nan
        state, zero = be.put(compiled, x), be.empty(compiled)
        norm = be.error_norm(compiled, state, zero, zero, 1.0, 0.0)
        assert not np.isfinite(norm[0])
        assert np.all(np.isfinite(norm[1:]))

    @some_cases
    def test_chosen_elements(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        host = case.state(plan)
        state, chosen = be.put(compiled, host), probe_of(plan)
        buffer = be.pack(compiled, state, chosen)
        assert np.array_equal(be.host(buffer), host[chosen.ado, chosen.row, chosen.col])
        target, expected = be.empty(compiled), np.zeros_like(host)
        be.unpack(compiled, buffer, chosen, target)
        expected[chosen.ado, chosen.row, chosen.col] = host[chosen.ado, chosen.row, chosen.col]
        assert np.array_equal(be.fetch(compiled, target), expected)
        nothing = Selection.of([])
        assert be.host(be.pack(compiled, state, nothing)).shape == (0, plan.n_members)


class CompanyConformance(Hooks):
    """Members in company, several threads."""

    @in_batches
    def test_member_alone_and_in_company_to_the_last_bit(self, case: Case) -> None:
        plan = case.plan()
        shuffled = np.random.default_rng(case.seed).permutation(plan.n_members)
        groups: list[Sequence[int]] = [range(plan.n_members), shuffled.tolist(), [0], [1], [1, 0]]
        seen: dict[int, list[NDArray[Any]]] = {}
        for group in groups:
            for m, results in self.everything(case, plan, list(group)).items():
                known = seen.setdefault(m, results)
                for got, want in zip(results, known, strict=True):
                    assert np.array_equal(got, want), f"member {m} differs in the batch {group}"

    def everything(
        self, case: Case, whole: Plan, group: list[int]
    ) -> dict[int, list[NDArray[Any]]]:
        """All results of the members of a group, by member."""
        plan, be = whole.take(group), self.ensemble_backend()
        compiled = be.compile(plan)
        scalars = case.scalars(whole)
        scalars = None if scalars is None else np.ascontiguousarray(scalars[:, group])
        x, y, acc = (
            be.put(compiled, np.ascontiguousarray(case.state(whole, k)[..., group]))
            for k in range(3)
        )
        a, b, c, w = (weights[group] for weights in per_member(case, whole, 4))
        out = be.put(compiled, be.fetch(compiled, y))
        be.apply(compiled, x, out, a=a, b=b, c=c, acc=acc, w=w, scalars=scalars)
        total = be.empty(compiled)
        be.combine(compiled, total, [a, b, c], [x, y, out])
        results = [be.fetch(compiled, s) for s in (out, acc, total)]
        results.append(be.dots(compiled, [x, y], out))
        results.append(be.error_norm(compiled, x, y, out, 1e-6, 1e-3))
        if not plan.names:
            work = (be.empty(compiled), be.empty(compiled))
            table = segment_table(case, whole, degree=5)[..., group]
            results.extend(be.recur(compiled, x, table, acc, probe_of(plan), work))
            results.append(be.fetch(compiled, acc))
        return {m: [r[..., k] for r in results] for k, m in enumerate(group)}

    @some_cases
    def test_compiled_plan_serves_several_threads(self, case: Case) -> None:
        plan = case.plan()
        be, compiled = self.ready(plan)
        scalars = case.scalars(plan)

        def work(stream: int) -> AnyArray:
            x, y = be.put(compiled, case.state(plan, stream)), be.empty(compiled)
            for _ in range(5):
                be.apply(compiled, x, y, a=0.05, scalars=scalars)
                x, y = y, x
            return be.fetch(compiled, x)

        alone = [work(stream) for stream in range(4)]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(work, range(4)))
        for got, want in zip(together, alone, strict=True):
            assert np.array_equal(got, want)


class PartConformance(PartSolveConformance):
    """Plans with a halo: parts of a partition."""

    @pytest.mark.parametrize("case", [c for c in CASES if c.depth > 0][::2], ids=str)
    def test_part_of_a_partition(self, case: Case) -> None:
        """Interior rows ignore the halo; boundary rows, all that their terms do not touch."""
        whole = case.plan()
        x, scalars = case.state(whole), case.scalars(whole)
        want, size = image(whole, x, scalars)
        part = part_of(whole, np.arange(whole.n_rows) % 2, 0)
        columns, interior = part.columns, part.n_interior
        be, compiled = self.ready(part)
        poisoned = x[columns].copy()
        poisoned[part.n_rows :] = 1e30
        out = be.empty(compiled)
        be.apply(compiled, be.put(compiled, poisoned), out, scalars=scalars, rows=(0, interior))
        received = np.where(touched(part)[..., None], x[columns], 1e30)
        be.apply(
            compiled, be.put(compiled, received), out, scalars=scalars,
            rows=(interior, part.n_rows),
        )  # fmt: skip
        got = be.fetch(compiled, out)[: part.n_rows]
        assert_close(got, want[columns[: part.n_rows]], size, APPLY_TOLERANCE["float64"])


class WholeConformance(
    ApplyConformance,
    ZeroWeightConformance,
    RecurConformance,
    VectorConformance,
    LocalSolveConformance,
    CompanyConformance,
):
    """All that is about whole plans."""

    def test_facts(self) -> None:
        info = self.backend().info
        assert info.name
        assert "float64" in info.dtypes
        assert info.threads >= 1
        _, small = self.ready(CASES[0].plan())
        assert 1 <= small.threads <= info.threads


class BackendConformance(WholeConformance, PartConformance):
    """All of it. A backend's test file subclasses this and fills `backend`."""
