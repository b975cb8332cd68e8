"""Workers of dask-cuda on a machine without a GPU: dask-cuda's own hook for tests, made-up devices.

They run in an environment of their own, since dask-cuda asks for one version of Dask alone.
"""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gpuless.tools import need

import heomdask as hd

if TYPE_CHECKING:
    from distributed import Client

HOOK = "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC"
CARDS = "CUDA_VISIBLE_DEVICES"
SX, SZ = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
PACKAGE = sorted((Path(__file__).parents[2] / "heomdask").rglob("*.py"))


def test_the_package_never_imports_dask_cuda() -> None:
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = [getattr(node, "module", None), *(alias.name for alias in node.names)]
                assert not [n for n in named if n and n.startswith("dask_cuda")], path


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers of dask-cuda with a device each, and one that has none."""
    need("dask-cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOOK, "1")
        from dask_cuda import LocalCUDACluster
        from distributed import Client, Nanny

        with LocalCUDACluster(
            CUDA_VISIBLE_DEVICES=[0, 1], device_memory_limit=0, memory_limit=0,
            resources={"GPU": 1}, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        ) as cluster, Client(cluster) as client:  # fmt: skip
            plain = {"name": "cpu", "nthreads": 1, "resources": {"CPU": 1}, "memory_limit": 0}
            cluster.worker_spec["cpu"] = {"cls": Nanny, "options": {**plain, "host": "127.0.0.1"}}
            cluster.sync(cluster._correct_state)
            client.wait_for_workers(3, timeout=60)
            yield client


def by_kind(client: Client) -> dict[str, list[str]]:
    """Class -> addresses."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    found: dict[str, list[str]] = {"GPU": [], "CPU": []}
    for address, facts in workers.items():
        (kind,) = facts["resources"]
        assert facts["resources"] == {kind: 1}
        found[kind].append(address)
    return found


def test_each_worker_has_its_own_device_first(client: Client) -> None:
    on_cards = by_kind(client)["GPU"]
    seen = client.run(lambda: os.environ[CARDS], workers=on_cards)
    assert sorted(seen.values()) == ["0,1", "1,0"]


@pytest.mark.parametrize("kind", ["GPU", "CPU"])
def test_tasks_go_where_their_resource_is(client: Client, kind: str) -> None:
    from distributed import get_worker

    futures = client.map(lambda _: get_worker().address, range(12), resources={kind: 1}, pure=False)
    assert set(client.gather(futures)) == set(by_kind(client)[kind])


def build(e: float) -> Any:
    bath = hd.DrudeLorentz(lam=0.2, gamma=0.5, T=0.5)
    return hd.Problem(e * SX, [hd.Coupling(SZ, bath)]), np.diag([1.0, 0.0])


def test_a_sweep_on_them_has_the_numbers_of_one_process(client: Client, tmp_path: Path) -> None:
    sweep = hd.Sweep(
        build, over={"e": np.linspace(0.1, 0.8, 8)}, times=[0.0, 0.5, 1.0], depth=3,
        expansion=hd.Pade(1), backend="numpy",
    )  # fmt: skip
    there, here = (
        sweep.run(tmp_path / name, client=who, progress=False)["rho"].values
        for name, who in (("there.zarr", client), ("here.zarr", hd.SerialRunner()))
    )
    assert there.tobytes() == here.tobytes()


def test_the_command_of_a_job_starts_a_worker_of_dask_cuda(tmp_path: Path) -> None:
    need("dask-cuda")
    from distributed import Client, LocalCluster

    from heomdask.ensemble.jobqueue import job_script
    from heomdask.ensemble.profiles import Slurm

    script = job_script(Slurm(cores=1, pool="GPU", dask_cuda=True, log_directory=str(tmp_path)))
    (line,) = [line for line in script.splitlines() if "dask_cuda" in line]
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        command = shlex.split(line.replace("tcp://SCHEDULER:PORT", cluster.scheduler_address))
        assert command[0] == sys.executable
        process = subprocess.Popen(
            command, env={**os.environ, HOOK: "1", CARDS: "0"}, cwd=tmp_path,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            client.wait_for_workers(1, timeout=60)
            (facts,) = client.scheduler_info(n_workers=-1)["workers"].values()
            assert (facts["name"], facts["resources"]) == ("heomdask-0", {"GPU": 1})
            (loaded,) = client.run(lambda: "heomdask.ensemble.remote" in sys.modules).values()
            assert loaded
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
