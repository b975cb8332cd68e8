"""What is free, as control groups say it: made-up trees of their files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from heomdask import memory

FREE = 10**12


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with much memory and no groups yet."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=FREE))
    monkeypatch.setattr(memory, "_CGROUP", tmp_path / "groups")
    monkeypatch.setattr(memory, "_OWN", tmp_path / "own")
    return tmp_path


def group(folder: Path, limit: str, used: int, inactive: int, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("max", "current") if version == 2 else ("limit_in_bytes", "usage_in_bytes")
    (folder / f"memory.{names[0]}").write_text(f"{limit}\n")
    (folder / f"memory.{names[1]}").write_text(f"{used}\n")
    total = "" if version == 2 else "inactive_file 1\ntotal_"
    (folder / "memory.stat").write_text(f"anon 5\n{total}inactive_file {inactive}\nslab 3\n")


def test_without_groups_it_is_the_machines(tree: Path) -> None:
    assert memory.available() == FREE
    (tree / "own").write_text("0::/\n")
    assert memory.available() == FREE


@pytest.mark.parametrize(
    ("job", "step", "left"),
    [
        (("max", 0, 0), ("1000", 600, 100), 500),
        (("800", 700, 150), ("1000", 600, 100), 250),  # the group around it has less left
        (("800", 700, 150), ("max", 600, 100), 250),
        (("800", 900, 0), ("max", 600, 100), 0),
    ],
)
def test_the_own_group_and_all_around_it_count(
    tree: Path, job: tuple[str, int, int], step: tuple[str, int, int], left: int
) -> None:
    (tree / "own").write_text("0::/slurm/job_7/step_0\n")
    group(tree / "groups/slurm/job_7", *job)
    group(tree / "groups/slurm/job_7/step_0", *step)
    group(tree / "groups/slurm/job_8", "10", 9, 0)  # of somebody else
    assert memory.available() == left


@pytest.mark.parametrize("path", ["/docker/0123", "/../../other", "/"])
def test_in_a_container_the_own_group_is_at_the_root(tree: Path, path: str) -> None:
    (tree / "own").write_text(f"0::{path}\n")
    group(tree / "groups", "1000", 600, 100)
    assert memory.available() == 500


def test_version_1_has_a_tree_for_memory(tree: Path) -> None:
    (tree / "own").write_text("5:cpu,cpuacct:/other\n4:memory:/job\n1:name=systemd:/x\n0::/x\n")
    group(tree / "groups/memory", str(2**63 - 4096), 10**6, 0, version=1)
    group(tree / "groups/memory/job", "1000", 600, 100, version=1)
    assert memory.available() == 500
