"""The MKL backend beyond the conformance suite: its matrices, their end, its manners."""

from __future__ import annotations

import ctypes
import dataclasses
import gc

import numpy as np
import pytest

import heomdask as hd
from heomdask import memory
from heomdask.backends import registry
from heomdask.backends.native import NativeBackend
from heomdask.backends.traits import APPLY_TOLERANCE
from heomdask.testing.oracle import assert_close, image
from heomdask.testing.random_plans import random_plan, random_state

mkl = pytest.importorskip(
    "heomdask.backends.mkl", reason="MKL is not installed", exc_type=ImportError
)


def applied(backend, plan, x, scalars=None):
    compiled = backend.compile(plan)
    out = backend.empty(compiled)
    backend.apply(compiled, backend.put(compiled, x), out, scalars=scalars)
    return backend.fetch(compiled, out)


def held_by_mkl():
    """Bytes that MKL has allocated."""
    stat = mkl._LIBRARY._dll.MKL_Mem_Stat
    stat.restype = ctypes.c_longlong
    return stat(ctypes.byref(ctypes.c_int()))


def disordered(members, d=7):
    """An FMO-like ensemble whose members differ in their Hamiltonian only."""
    rng = np.random.default_rng(4)
    bath = hd.DrudeLorentz(lam=0.3, gamma=1.0, T=1.0)
    prepared = []
    for _ in range(members):
        h = rng.normal(size=(d, d))
        couplings = [hd.Coupling(np.diag(np.eye(d)[j]), bath) for j in range(d)]
        prepared.append(hd.prepare(hd.Problem(h + h.T, couplings), depth=2, expansion=hd.Pade(0)))
    return prepared


def test_facts_tell_version_threads_and_branch():
    info = registry.get("mkl", threads=2).info
    assert (info.name, info.device, info.threads) == ("mkl", "cpu", 2)
    assert info.isa
    assert info.notes.startswith("MKL 20")
    assert "OpenMP" in info.notes


@pytest.mark.parametrize("form", ["real", "complex"])
@pytest.mark.parametrize("d", [2, 7])
def test_same_numbers_as_the_compiled_kernels(d, form):
    plan = random_plan(np.random.default_rng(d), d=d, members=3, form=form, modes=3, depth=4)
    x = random_state(np.random.default_rng(1), plan)
    found, known = (applied(b, plan, x) for b in (mkl.MklBackend(1), NativeBackend(1)))
    size = float(np.max(np.abs(known)))
    assert_close(found, known, size, APPLY_TOLERANCE["float64"])


def test_members_with_equal_numbers_share_a_matrix():
    plan = random_plan(np.random.default_rng(2), d=3, members=3)
    repeated = plan.take([1, 1, 0, 2, 0])
    x = random_state(np.random.default_rng(1), repeated)
    backend = mkl.MklBackend(threads=1)
    want, size = image(repeated, x)
    assert_close(applied(backend, repeated, x), want, size, APPLY_TOLERANCE["float64"])
    (part,) = backend.compile(repeated).parts
    (layer,) = part.layers
    assert len(set(map(id, layer))) == 3
    assert layer[0] is layer[1]


def test_disorder_shares_all_but_a_block():
    from heomdask.generator.build import build_plan

    prepared = disordered(4)
    plan = build_plan([p.expanded for p in prepared], prepared[0].index_set)
    backend = mkl.MklBackend(threads=1)
    (part,) = backend.compile(plan).parts
    blocks, links = part.layers
    assert len(set(map(id, blocks))) == 4 and len(set(map(id, links))) == 1
    assert all(isinstance(block, mkl.mkl_library.DenseFactor) for block in blocks)


def test_a_block_that_is_nearly_empty_is_sparse():
    plan = random_plan(np.random.default_rng(3), d=8)
    hamiltonian = next(t for t in plan.terms if t.left is not None and t.left.structure == "sparse")
    alone = dataclasses.replace(
        plan, terms=(dataclasses.replace(hamiltonian, shifts=(dataclasses.replace(
            hamiltonian.shifts[0], pattern=0),)),)
    )  # fmt: skip
    x = random_state(np.random.default_rng(1), alone)
    (part,) = mkl.MklBackend(threads=1).compile(alone).parts
    assert all(isinstance(f, mkl.mkl_library.SparseFactor) for layer in part.layers for f in layer)
    want, size = image(alone, x)
    assert_close(applied(mkl.MklBackend(1), alone, x), want, size, APPLY_TOLERANCE["float64"])


def test_matrices_go_with_their_plan():
    plan = random_plan(np.random.default_rng(5), d=3, members=2, modes=3, depth=5, names=("f",))
    backend = mkl.MklBackend(threads=1)
    backend.compile(plan)
    gc.collect()
    before = held_by_mkl()
    compiled = [backend.compile(plan) for _ in range(20)]
    assert held_by_mkl() > before
    del compiled
    gc.collect()
    assert held_by_mkl() <= before


def test_threads_of_others_stay_as_they_are():
    threads = mkl._LIBRARY._dll.MKL_Get_Max_Threads
    before = threads()
    plan = random_plan(np.random.default_rng(6), d=3, modes=3, depth=6)
    applied(mkl.MklBackend(threads=2), plan, random_state(np.random.default_rng(1), plan))
    assert threads() == before


def test_small_states_take_one_thread():
    backend = mkl.MklBackend(threads=2)
    small = random_plan(np.random.default_rng(7), d=2, modes=2, depth=3)
    large = random_plan(np.random.default_rng(7), d=4, modes=4, depth=8)
    assert [backend.compile(plan).threads for plan in (small, large)] == [1, 2]


def test_named_scalars_keep_their_own_matrices():
    plan = random_plan(np.random.default_rng(8), d=2, members=2, names=("f", "g"))
    backend = mkl.MklBackend(threads=1)
    parts = backend.compile(plan).parts
    assert [part.name for part in parts] == [None, "f", "g"]
    x, scalars = random_state(np.random.default_rng(1), plan), np.array([0.0, -2.5])
    want, size = image(plan, x, scalars)
    assert_close(applied(backend, plan, x, scalars), want, size, APPLY_TOLERANCE["float64"])


def test_too_many_elements_are_refused(monkeypatch):
    monkeypatch.setattr(mkl.mkl_library, "MOST", 100)
    with pytest.raises(hd.TooLarge, match=r"32-bit indices.*'native'"):
        mkl.MklBackend(threads=1).compile(random_plan(np.random.default_rng(9), d=2, depth=5))


def test_a_matrix_that_cannot_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(hd.TooLarge, match=r"sparse matrix of .* elements needs .*'native'"):
        mkl.MklBackend(threads=1).compile(random_plan(np.random.default_rng(9), d=2, depth=5))


def test_the_count_of_elements_is_no_less_than_there_are():
    plan = random_plan(np.random.default_rng(9), d=3, depth=4)
    assert mkl._addends(plan, 0) >= plan.to_sparse().nnz
