"""The kernels on a host: sizes that the suite has not, any order of threads, 64-bit places."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from gpuless.emulator import Compiler
from gpuless.everything import HASHED, digest, golden
from gpuless.places import last_places
from gpuless.strict import StrictCupy

from heomdask.backends.cupy_ import MOST_LEVELS, CupyBackend, block_shape
from heomdask.backends.traits import APPLY_TOLERANCE, Selection
from heomdask.errors import InputError
from heomdask.plan import Form
from heomdask.testing.oracle import assert_close, image
from heomdask.testing.random_plans import Case

LARGE = [
    Case(seed=5 * d + m, d=d, members=m, form=form, modes=2, depth=1)
    for d, m in [(6, 40), (7, 1), (16, 2), (17, 1), (32, 1)]
    for form in ("complex", "real")
]


@pytest.mark.parametrize("case", LARGE, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_larger_systems_and_batches(compiler: Compiler, case: Case, dtype: str) -> None:
    plan = case.plan()
    backend = CupyBackend(api=StrictCupy(compiler))
    compiled = backend.compile(plan, dtype)
    x = case.state(plan).astype(compiled.dtype)
    out = backend.empty(compiled)
    backend.apply(compiled, backend.put(compiled, x), out)
    want, size = image(plan, x)
    assert_close(backend.fetch(compiled, out), want, size, APPLY_TOLERANCE[dtype])


@pytest.mark.parametrize("case", HASHED, ids=str)
def test_bits_do_not_depend_on_the_order_of_threads(compiler: Compiler, case: Case) -> None:
    """Forward, backward, shuffled."""
    backends = [CupyBackend(api=StrictCupy(compiler, order=order)) for order in range(4)]
    assert {digest(backend, case) for backend in backends} == {golden(case)}


@pytest.mark.gpu
@pytest.mark.parametrize("case", HASHED, ids=str)
def test_a_card_gives_the_bits_of_the_host(case: Case) -> None:
    assert [digest(CupyBackend(), case) for _ in range(3)] == [golden(case)] * 3


def test_places_have_64_bits(compiler: Compiler) -> None:
    assert last_places(compiler)


@pytest.mark.parametrize("form", ["real", "complex"])
def test_reductions_of_several_chunks(compiler: Compiler, form: Form) -> None:
    """3,430 elements; a chunk has 2,048."""
    case = Case(seed=8, d=7, members=11, form=form, modes=4, depth=4)
    backend, plan = CupyBackend(api=StrictCupy(compiler)), case.plan()
    compiled = backend.compile(plan)
    x, y = (case.state(plan, k) for k in range(2))
    states = [backend.put(compiled, host) for host in (x, y)]
    dots = backend.dots(compiled, states, states[1])
    want = np.stack([np.sum(np.conj(host) * y, axis=(0, 1, 2)) for host in (x, y)])
    assert_close(dots, want, plan.n_rows * plan.d**2, APPLY_TOLERANCE["float64"])
    norm = backend.error_norm(compiled, *states, states[1], 1.0, 0.0)
    assert_close(norm, np.max(np.abs(x), axis=(0, 1, 2)), 10.0, APPLY_TOLERANCE["float64"])


@pytest.mark.parametrize("members", [1, 2, 5, 40, 1000])
@pytest.mark.parametrize("d", [1, 2, 3, 7, 16, 17, 32])
def test_blocks_hold_whole_ados(d: int, members: int) -> None:
    ados, lanes = block_shape(d, members)
    assert ados >= 1
    assert 1 <= lanes <= members
    assert ados * lanes * d * d <= max(256, d * d)
    assert lanes == members or lanes < 4 or lanes % 4 == 0


def test_too_many_levels_are_refused(compiler: Compiler) -> None:
    plan = dataclasses.replace(LARGE[0].plan(), d=MOST_LEVELS + 1, terms=())
    with pytest.raises(InputError, match="at most 32 levels, not 33; use backend='native'"):
        CupyBackend(api=StrictCupy(compiler)).compile(plan)


def test_unpack_takes_host_arrays_too(compiler: Compiler) -> None:
    """Callers bring elements from the host: they are uploaded, at the state's own precision."""
    case = LARGE[0]
    backend, plan = CupyBackend(api=StrictCupy(compiler)), case.plan()
    compiled = backend.compile(plan, "float32")
    row = Selection.whole([2], plan.d)
    state = backend.empty(compiled)
    elements = case.state(plan)[2].reshape(len(row), -1)
    backend.unpack(compiled, elements, row, state)
    assert np.array_equal(
        backend.host(backend.pack(compiled, state, row)), elements.astype(compiled.dtype)
    )
