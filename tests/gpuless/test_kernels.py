"""The kernels on a host: sizes that the suite has not, any order of threads, 64-bit places."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import mmap
from pathlib import Path

import numpy as np
import pytest
from gpuless.emulator import Compiler
from gpuless.strict import StrictCupy
from gpuless.tools import need

from heomdask._cuda.device import number_macros, source
from heomdask.backends.cupy_ import MOST_LEVELS, CupyBackend, block_shape
from heomdask.backends.traits import APPLY_TOLERANCE, Selection
from heomdask.errors import InputError
from heomdask.plan import AnyArray
from heomdask.testing.oracle import assert_close, image, per_member
from heomdask.testing.random_plans import Case

GOLDEN = Path(__file__).with_name("golden.json")
LARGE = [
    Case(seed=5 * d + m, d=d, members=m, form=form, modes=2, depth=1)
    for d, m in [(6, 40), (7, 1), (16, 2), (17, 1), (32, 1)]
    for form in ("complex", "real")
]
HASHED = [
    Case(seed=90 + d, d=d, members=m, form=form, modes=2, depth=2, names=names)
    for d, m, names in [(2, 1, ()), (2, 5, ("f",)), (3, 2, ()), (7, 1, ()), (17, 1, ())]
    for form in ("complex", "real")
]


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    need("g++")
    return Compiler(tmp_path_factory.mktemp("kernels"))


def applied(backend: CupyBackend, case: Case, dtype: str = "float64") -> list[AnyArray]:
    """Everything that the kernels give for a case: states, sums, norms, elements."""
    plan = case.plan()
    compiled = backend.compile(plan, dtype)
    x, y, z = (backend.put(compiled, case.state(plan, k).astype(compiled.dtype)) for k in range(3))
    a, b, c, w = per_member(case, plan, 4)
    backend.apply(compiled, x, y, a=a, b=b, c=c, acc=z, w=w, scalars=case.scalars(plan))
    total = backend.empty(compiled)
    backend.combine(compiled, total, [a, b, c], [x, y, z])
    return [
        *(backend.fetch(compiled, state) for state in (y, z, total)),
        backend.dots(compiled, [x, y], z),
        backend.error_norm(compiled, x, y, z, 1e-3, 0.5),
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


def golden(case: Case) -> str:
    """The digest of a case as it was when the kernels were written."""
    return str(json.loads(GOLDEN.read_text())[str(case)])


def digest(backend: CupyBackend, case: Case) -> str:
    hashed = hashlib.sha256()
    for dtype in ("float64", "float32"):
        for result in applied(backend, case, dtype):
            hashed.update(np.ascontiguousarray(result).tobytes())
    return hashed.hexdigest()


def test_places_have_64_bits(compiler: Compiler) -> None:
    """The last blocks of 61 million ADOs of 36 elements, of which no page but theirs is touched."""
    d, members, n = 6, 1, 61_000_000
    macros = (
        *number_macros(np.dtype(np.complex128)), ("HD_LEVELS", d), ("HD_MIXES", 0), ("HD_NAMED", 0),
        ("HD_WIDE_SUM", 0),
    )  # fmt: skip
    library = compiler.build(source("apply"), tuple(f"-D{name}={value}" for name, value in macros))
    maps = [
        mmap.mmap(-1, n * d * d * 16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
        for _ in range(2)  # MAP_NORESERVE
    ]
    x, out = (np.frombuffer(m, np.complex128).reshape(n, d * d) for m in maps)
    x[-50:] = np.arange(50 * d * d).reshape(50, -1)
    weights = np.array([[0], [2], [0], [0]], dtype=np.complex128)
    ados, lanes = block_shape(d, members)
    blocks = -(-n // ados)
    pointers = [x, out, None, weights, *[None] * 4]
    arguments = [ctypes.c_void_p(a.ctypes.data if a is not None else 0) for a in pointers]
    arguments += [ctypes.c_longlong(1), *[ctypes.c_void_p(0)] * 3]
    arguments += [ctypes.c_longlong(v) for v in (0, members, 0, n, ados, lanes)]
    library.launch("apply", arguments, 8, 256, first_block=blocks - 8)
    assert np.array_equal(out[-50:], 2 * x[-50:])


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
