"""Teams of threads: where they run, whose memory is near, how they wait; and workers by node."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from running_support import moments

from heomdask import topology
from heomdask._native import openmp
from heomdask.backends.native import NEW_BYTES, NativeBackend, NativeCompiled
from heomdask.backends.traits import Selection
from heomdask.plan import AnyArray, Pattern, Plan, Shift, Term
from heomdask.testing.random_plans import random_state
from heomdask.topology import Topology

pytestmark = pytest.mark.skipif(len(topology.allowed()) < 2, reason="needs two CPUs")
HERE = (topology.allowed() * 2)[:2]
WHOSE = (resource.RUSAGE_THREAD, resource.RUSAGE_SELF)
TWO_NODES = Topology((((HERE[0],),), ((HERE[1],),)))  # as if each were a node


def rates(n_ado: int, n_members: int) -> Plan:
    """Nothing but rates, of each member its own."""
    rows = np.arange(n_ado, dtype=np.int32)
    pattern = Pattern(n_ado, n_ado, rows, rows, np.ones(n_ado))
    term = Term((Shift(0, -1.0 - np.arange(n_members)),))
    return Plan(3, n_ado, n_ado, n_members, "real", (pattern,), (term,))


ONE, MANY = rates(20_000, 1), rates(2_000, 24)  # threads share rows; blocks


def compiled(plan: Plan) -> tuple[NativeBackend, NativeCompiled]:
    backend = NativeBackend(threads=2)
    result = backend.compile(plan)
    assert result.threads == 2
    return backend, result


def masks() -> dict[str, str]:
    """CPUs that each thread of this process may run on."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            allowed = re.search(r"Cpus_allowed_list:\s*(\S+)", (task / "status").read_text())
            assert allowed is not None
            found[task.name] = allowed[1]
    return found


def everything(plan: Plan) -> list[AnyArray]:
    """A result of every call that has a team; affinities are checked after each."""
    before = os.sched_getaffinity(0)
    backend, c = compiled(plan)
    x, out, one, two = (
        backend.put(c, random_state(np.random.default_rng(seed), plan)) for seed in range(4)
    )
    results: list[AnyArray] = []
    coeffs = np.tile([0.01, 0.3, -0.2, 0.7], (5, 1))
    calls: list[Callable[[], object]] = [
        lambda: backend.apply(c, x, out, a=0.5, b=0.2),
        lambda: results.extend(backend.recur(c, x, coeffs, out, Selection.of([]), (one, two))),
        lambda: backend.combine(c, one, [1.0, 2.0], [x, out]),
        lambda: results.append(backend.dots(c, [x, out], one)),
        lambda: results.append(backend.error_norm(c, x, out, one, 1.0, 1.0)),
    ]
    for call in calls:
        call()
        assert os.sched_getaffinity(0) == before
    return [*results, backend.fetch(c, out), backend.fetch(c, one)]


@pytest.mark.parametrize("plan", [ONE, MANY], ids=["one", "many"])
def test_places_change_no_bit_and_affinities_are_restored(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller's with every call, those of the others when they are needed without places."""
    free = everything(plan)
    before = masks()
    assert len(set(before.values())) == 1
    with monkeypatch.context() as simulated:
        simulated.setattr(Topology, "read", lambda: TWO_NODES)
        placed = everything(plan)
    assert set(masks().values()) - set(before.values()) <= {str(cpu) for cpu in HERE}
    assert masks() != before
    for got, want in zip(placed, free, strict=True):
        assert np.array_equal(got, want)
    everything(plan)
    assert masks() == before


def test_each_thread_works_on_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Topology, "read", lambda: TWO_NODES)
    backend, c = compiled(MANY)
    x, out, one, two = (backend.empty(c) for _ in range(4))
    coeffs = np.tile([0.1, 0.0, 0.0, 0.1], (2000, 1))
    arguments = (c, x, coeffs, out, Selection.of([]), (one, two))
    seen: set[str] = set()
    for _ in moments(backend.recur, arguments, every=0.001):
        seen |= set(masks().values())
    assert {str(cpu) for cpu in HERE} <= seen


def test_a_place_that_cannot_be_had_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system may take CPUs away while a plan lives."""
    gone = (10_000,)
    monkeypatch.setattr(Topology, "team", lambda *_: (gone, gone))
    everything(ONE)


@pytest.mark.parametrize("members", [1, 24])
def test_a_large_state_is_touched_first_by_the_threads_that_work_on_it(members: int) -> None:
    """Some of the page faults are the caller's, and some another's, huge pages though they be."""
    plan = rates(2 * NEW_BYTES // (72 * members) + 1, members)
    backend, c = compiled(plan)
    backend.apply(c, backend.empty(c), backend.empty(c))  # the team is there
    used = [np.ones(NEW_BYTES // 2, dtype=np.uint8) for _ in range(12)]
    del used[:-1]  # the C library could give the room of these again
    mine, every = (resource.getrusage(w).ru_minflt for w in WHOSE)
    x = backend.empty(c)
    mine, every = (
        resource.getrusage(w).ru_minflt - n for w, n in zip(WHOSE, (mine, every), strict=True)
    )
    assert x.nbytes >= 2 * NEW_BYTES and not x.any()
    assert mine > 8 and every - mine > 8


def test_one_team_serves_all_calls() -> None:
    everything(ONE)
    before = len(masks())
    for _ in range(3):
        everything(ONE)
        everything(MANY)
    assert len(masks()) == before


def test_elements_are_copied_without_the_lock() -> None:
    plan = rates(200, 64)
    backend = NativeBackend(threads=1)
    c = backend.compile(plan)
    chosen = Selection.of([(0, 0, 0)] * 200_000)
    x, buffer = backend.empty(c), np.zeros((len(chosen), 64))
    elements = (chosen.ado, chosen.row, chosen.col)
    for copy, arguments in (
        (c.engine.unpack, (buffer, *elements, x)),
        (c.engine.pack, (x, *elements, buffer)),
    ):
        assert sum(1 for _ in moments(copy, arguments, every=0.0005)) > 5


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_the_library_is_loaded_with_few_spins_unless_the_user_chose(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with openmp.loading():
        assert dict(os.environ) == (before if given else {**before, openmp.SPINS: openmp.FEW})
    assert dict(os.environ) == before


def run(code: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],  # in a clone lies another heomdask
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), **environment},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.split("\n")[:-1]


def test_a_user_who_binds_threads_loses_no_cpu() -> None:
    """The library binds who loads it, before anybody counts."""
    code = """
import os
before = os.sched_getaffinity(0)
from heomdask.backends.native import NativeBackend
print(NativeBackend().info.threads == len(before), os.sched_getaffinity(0) == before)
"""
    assert run(code, OMP_PROC_BIND="true") == ["True True"]


def test_a_user_who_binds_threads_has_them_there() -> None:
    code = f"""
import test_threads
test_threads.Topology.team = lambda *_: (({HERE[0]},), ({HERE[0]},))
test_threads.everything(test_threads.ONE)
print({{str({HERE[0]}), str({HERE[1]})}} & set(test_threads.masks().values()))
"""
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    assert run(code, OMP_PROC_BIND="true", PYTHONPATH=paths) == [str({str(HERE[1])})]


def test_a_worker_is_kept_to_a_node_with_all_its_threads() -> None:
    code = f"""
import os, threading, types
from heomdask.ensemble import worker
from heomdask.topology import Topology
nodes = Topology(((({HERE[0]},),), (({HERE[1]},),)))
stop = threading.Event()
threading.Thread(target=stop.wait).start()
for read, name in ((lambda: nodes, 1), (Topology.read, 0)):
    worker.Topology.read = read
    worker.dask_setup(types.SimpleNamespace(name=name))
    print(sorted({{tuple(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")}}))
stop.set()
"""
    assert run(code) == [str([(HERE[1],)])] * 2  # the second time there is one node
