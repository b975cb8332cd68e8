"""CPUs by node and core, read from simulated trees of /sys; where threads and workers go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heomdask import topology
from heomdask.topology import Topology


def tree(root: Path, nodes: dict[int, str], siblings: dict[int, str] | None = None) -> Path:
    """As Linux shows it: CPUs of each node, and of the core of a CPU."""
    for node, cpus in nodes.items():
        folder = root / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    for name in ("has_cpu", "online", "possible"):
        (root / "node" / name).write_text("0\n")
    for cpu, cpus in (siblings or {}).items():
        folder = root / f"cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpus}\n")
    return root


def alone(*cpus: int) -> tuple[tuple[int, ...], ...]:
    return tuple((cpu,) for cpu in cpus)


SMT = Topology((((0, 4), (1, 5)), ((2, 6), (3, 7))))


def test_one_node(tmp_path: Path) -> None:
    assert Topology.read(tree(tmp_path, {0: "0-3"}), range(4)).nodes == (alone(0, 1, 2, 3),)


def test_two_nodes_in_order_of_their_numbers(tmp_path: Path) -> None:
    found = Topology.read(tree(tmp_path, {10: "0-1", 2: "2,3"}), range(4))
    assert found.nodes == (alone(2, 3), alone(0, 1))


def test_a_node_of_memory_alone_has_no_cpus(tmp_path: Path) -> None:
    assert Topology.read(tree(tmp_path, {0: "0-1", 1: ""}), range(2)).nodes == (alone(0, 1),)


def test_siblings_are_one_core(tmp_path: Path) -> None:
    """A list of ranges, or of numbers, as the kernel writes either."""
    siblings = {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2,6", 6: "2,6", 3: "3,7", 7: "3,7"}
    found = Topology.read(tree(tmp_path, {0: "0-1,4-5", 1: "2-3,6-7"}, siblings), range(8))
    assert found == SMT


def test_an_offline_cpu_is_no_sibling(tmp_path: Path) -> None:
    """It is in no affinity and has no topology, whoever still lists it."""
    found = Topology.read(tree(tmp_path, {0: "0-3"}, {0: "0-1", 2: "2-3", 3: "2-3"}), [0, 2, 3])
    assert found.nodes == (((0,), (2, 3)),)


def test_affinity_of_half_a_node(tmp_path: Path) -> None:
    """What Slurm did not grant is not there."""
    root = tree(tmp_path, {0: "0-3", 1: "4-7"})
    assert Topology.read(root, [4, 5]).nodes == (alone(4, 5),)
    assert Topology.read(root, [2, 3, 4]).nodes == (alone(2, 3), alone(4))


@pytest.mark.parametrize("nodes", [{}, {0: "0-1"}])
def test_without_the_node_of_every_cpu_there_is_one(tmp_path: Path, nodes: dict[int, str]) -> None:
    (tmp_path / "node").mkdir()
    assert Topology.read(tree(tmp_path, nodes), range(3)).nodes == (alone(0, 1, 2),)
    assert Topology.read(tmp_path / "none", range(3)).nodes == (alone(0, 1, 2),)


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """All CPUs of the affinity, each once; all CPUs where a system has no affinities."""
    found = Topology.read()
    assert sorted(c for n in found.nodes for core in n for c in core) == list(topology.allowed())
    monkeypatch.delattr(os, "sched_getaffinity")
    assert topology.allowed() == tuple(range(os.cpu_count() or 1))


FIRST, SECOND = (0, 1, 4, 5), (2, 3, 6, 7)


@pytest.mark.parametrize(
    ("threads", "near", "places"),
    [
        (2, 0, [FIRST] * 2),  # the cores of one node
        (2, 7, [SECOND] * 2),  # of the node where the caller is
        (2, -1, [FIRST] * 2),
        (3, 0, [FIRST] * 2 + [SECOND]),  # a core of the other before a sibling of the same
        (4, 6, [SECOND] * 2 + [FIRST] * 2),
        (6, 0, [FIRST] * 4 + [SECOND] * 2),  # then siblings
        (8, 0, [FIRST] * 4 + [SECOND] * 4),
    ],
)
def test_threads_fill_cores_node_by_node(
    threads: int, near: int, places: list[tuple[int, ...]]
) -> None:
    assert SMT.team(threads, near) == tuple(places)


def test_threads_that_are_left_to_the_system() -> None:
    assert SMT.team(1, 0) == ()
    assert SMT.team(9, 0) == ()  # more than CPUs
    assert Topology((alone(0, 1, 2, 3),)).team(2, 0) == ()


def test_workers_take_turns_over_nodes() -> None:
    assert [SMT.worker(n) for n in range(5)] == [FIRST, SECOND, FIRST, SECOND, FIRST]
    uneven = Topology((alone(0), alone(1, 2, 3)))
    assert [uneven.worker(n)[0] for n in range(8)] == [0, 1, 1, 1] * 2  # as many as it has CPUs
    assert Topology((alone(0, 1),)).worker(0) == ()


def test_in_words() -> None:
    assert str(SMT) == (
        "8 CPUs may be used, on 4 cores; NUMA nodes: 2 (CPUs 0-1,4-5; 2-3,6-7), by which threads "
        "and local workers are placed (tested on simulated nodes only)"
    )
    assert str(Topology((alone(0, 2, 3),))) == (
        "3 CPUs may be used, on 3 cores; NUMA nodes: 1 (CPUs 0,2-3), so threads are placed by the "
        "system"
    )
