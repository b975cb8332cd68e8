"""What plays CuPy's part refuses what a card would not do, or not always do right."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpuless.emulator import Compiler
from gpuless.strict import Array, Misuse, StrictCupy

from heomdask._cuda.device import OPTIONS
from heomdask.backends.cupy_ import CupyBackend
from heomdask.testing.random_plans import Case

SOURCE = """
#include "fibers.hpp"
typedef long long hd_long;
typedef double num;
HD_KERNEL void twice(const num *x, num *out, double s, hd_long n) {
    if (HD_THREAD < n) out[HD_THREAD] = s * x[HD_THREAD];
}
"""
TWO, FOUR = np.float64(2), np.int64(4)
MACROS = ("-DHD_REAL=double", "-DHD_COMPLEX=0")


class Setup:
    """Two streams, an array, and a kernel with all its arguments right."""

    def __init__(self, compiler: Compiler) -> None:
        self.api = StrictCupy(compiler)
        self.first, self.second = (self.api.cuda.Stream(non_blocking=True) for _ in range(2))
        self.enter(self.first)
        self.x, self.out = self.api.zeros((4,), "f8"), self.api.zeros((4,), "f8")
        module = self.api.RawModule(code=SOURCE, options=(*OPTIONS, *MACROS))
        self.twice = module.get_function("twice")

    def enter(self, stream: Any) -> None:
        self.api._local.streams = [stream]

    def launch(self, x: Any = None, s: Any = TWO, n: Any = FOUR) -> None:
        self.twice((1,), (32,), (self.x if x is None else x, self.out, s, n))


@pytest.fixture
def setup(compiler: Compiler) -> Setup:
    return Setup(compiler)


def test_a_right_launch(setup: Setup) -> None:
    setup.x.set(np.arange(4.0))
    setup.launch()
    assert np.array_equal(setup.out.get(), [0, 2, 4, 6])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.launch(n=4), "`n` is int64, not int"),
        (lambda s: s.launch(n=np.int32(4)), "`n` is int64, not int32"),
        (lambda s: s.launch(s=2.0), "`s` is float64, not float"),
        (lambda s: s.launch(x=np.zeros(4)), "`x` is a pointer, not ndarray"),
        (lambda s: s.launch(x=s.api.zeros((4,), "f4")), "points to float64, not float32"),
        (lambda s: s.twice((1,), (32,), (s.x, s.out)), "takes 4 arguments, not 2"),
        (lambda s: s.twice((0,), (32,), (s.x, s.out, TWO, FOUR)), "0 blocks"),
        (lambda s: s.twice((1,), (2048,), (s.x, s.out, TWO, FOUR)), "2048 thr"),
        (lambda s: np.asarray(s.x), "Implicit conversion"),
        (lambda s: s.x.set(np.zeros(8)[::2]), "contiguous numpy array"),
        (lambda s: s.x.set(np.zeros(4, "f4")), "`set` of"),
        (lambda s: s.x.set(s.out), "contiguous numpy array"),
        (lambda s: s.api.RawModule(code=SOURCE, options=MACROS), "options"),
        (lambda s: s.api.cuda.Stream(non_blocking=False), "waits for the default one"),
    ],
)
def test_wrong_use(setup: Setup, wrong: Callable[[Setup], object], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        wrong(setup)


def test_work_on_the_default_stream(setup: Setup) -> None:
    setup.api._local.streams = []
    with pytest.raises(Misuse, match="default stream"):
        setup.launch()


def test_memory_of_another_device(setup: Setup) -> None:
    with setup.api.cuda.Device(1), setup.api.cuda.Stream(non_blocking=True):
        other = setup.api.zeros((4,), "f8")
    with pytest.raises(Misuse, match="an array of device 1 on 0"):
        setup.launch(x=other)


def test_new_memory_holds_no_number(setup: Setup) -> None:
    assert np.isnan(setup.api.empty((4,), "f8").get()).all()


@pytest.mark.parametrize("what", ["read", "write"])
def test_two_streams_without_an_event(setup: Setup, what: str) -> None:
    setup.launch()
    event = setup.first.record()
    setup.enter(setup.second)

    def use(array: Array) -> None:
        if what == "read":
            setup.launch(x=array)
        else:
            array.set(np.zeros(4))

    for array in (setup.out,) if what == "read" else (setup.out, setup.x):
        with pytest.raises(Misuse, match="not ordered behind earlier work of stream 1"):
            use(array)
    setup.second.wait_event(event)
    use(setup.x)


def test_the_host_may_wait_instead(setup: Setup) -> None:
    setup.launch()
    setup.first.synchronize()
    setup.enter(setup.second)
    setup.launch()


def test_memory_given_back_too_early(setup: Setup) -> None:
    y = setup.api.zeros((4,), "f8")
    event = setup.first.record()
    setup.enter(setup.second)
    setup.second.wait_event(event)
    setup.launch(x=y)
    del y
    gc.collect()
    assert setup.api.hazards == ["memory given back: not ordered behind earlier work of stream 2"]


def test_marks_order_two_backends(compiler: Compiler) -> None:
    """What one backend has made another one may use, but only behind its mark."""
    api, case = StrictCupy(compiler), Case(7, 2, 1, "real")
    plan, (one, two) = case.plan(), (CupyBackend(api=api), CupyBackend(api=api))
    compiled = one.compile(plan)
    x, out = one.put(compiled, case.state(plan)), one.empty(compiled)
    one.apply(compiled, x, out)
    with pytest.raises(Misuse, match="not ordered"):
        two.combine(compiled, x, [1.0], [out])
    two.wait(one.mark())
    two.combine(compiled, x, [1.0], [out])
    two.sync()
    assert np.array_equal(one.fetch(compiled, x), one.fetch(compiled, out))
