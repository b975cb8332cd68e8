"""Sweeps in jobs of a real Slurm on this machine: whole, with jobs lost, interrupted, refused."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import slurm_site
from ensemble_support import assert_same_bits
from slurm_site import ask, jobs, wait_for

import heomdask as hd
from heomdask.cli.config import read, to_sweep
from heomdask.ensemble import jobqueue, profiles
from heomdask.ensemble.cluster import Workers, connect
from heomdask.ensemble.profiles import Jobs, Slurm
from heomdask.ensemble.runner import DaskRunner
from heomdask.errors import InputError
from heomdask.outcome import Outcome
from heomdask.results.folder import folder_of
from heomdask.results.store import Store

pytestmark = [pytest.mark.slurm, pytest.mark.cluster]

PROFILE = """
kind = "slurm"
jobs = 2
cores = 1
memory = "1 GB"
walltime = "00:05:00"
interface = "lo"
log_directory = "logs"
prologue = ["export OMP_NUM_THREADS=7"]
"""
SWEEP = """
build = "gated:build"
[sweep.axes]
k = { start = 0, stop = 15, step = 1 }
e = { values = [0.1, 0.2] }
[solve]
times = { values = [0, 1] }
depth = 2
expansion = "pade 1"
check_convergence = false
[output]
store = "s.zarr"
"""
MODULE = """
import os, time
from pathlib import Path
import numpy as np
import heomdask as hd

HERE, SZ = Path(__file__).parent, np.diag([1.0, -1.0])

def build(k, e):
    while "SLURM_JOB_ID" in os.environ and k > 5 and not (HERE / "go").exists():
        time.sleep(0.02)  # a task has 4 values of k, and the first goes on at once
    bath = hd.DrudeLorentz(lam=0.02 + 0.01 * k, gamma=0.5, T=1.0)
    return hd.Problem(e * SZ, [hd.Coupling(SZ, bath)]), np.full((2, 2), 0.5)

build.observables = {"c": np.array([[0.0, 0.0], [1.0, 0.0]])}
"""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
RUN = [sys.executable, "-m", "heomdask.cli", "run", "sweep.toml", "--cluster", "site.toml"]
Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    lacking = slurm_site.missing()
    if lacking:
        pytest.skip(f"Slurm is not installed here: no {', '.join(lacking)}")
    with slurm_site.running(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def folder(
    slurm: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Where jobs are submitted from; at the end none is left."""
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for name, text in (("site", PROFILE), ("sweep", SWEEP)):
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "gated.py").write_text(MODULE)
    yield tmp_path
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not jobs(slurm), 10)
    left = jobs(slurm)
    ask(slurm, "scancel", "--signal=KILL", "--full", *left)
    wait_for(lambda: not jobs(slurm))
    assert not left


@pytest.fixture
def started(folder: Path) -> Iterator[Start]:
    """Starts the sweep; a part of it is committed, and the rest waits for the file `go`."""
    with contextlib.ExitStack() as stack:

        def start() -> subprocess.Popen[str]:
            process = subprocess.Popen(
                RUN,
                cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
            stack.callback(process.kill)
            committed = "s.zarr/status/c.*"
            wait_for(lambda: list(folder.glob(committed)) or process.poll() is not None, 120)
            assert list(folder.glob(committed)), process.communicate()[0]
            return process

        yield start


def finished(process: subprocess.Popen[str], status: int = 0) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == status, output
    assert "Traceback" not in output
    return output


def assert_as_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is that of an undisturbed run in this process, to the last bit."""
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("gated", None)
    here = to_sweep(read("sweep.toml")).run("here.zarr", client=hd.SerialRunner(), progress=False)
    there = hd.open("s.zarr")
    assert (there["status"] == Outcome.DONE).all()
    assert_same_bits(there, here)


def test_lost_jobs_are_replaced_and_nothing_is_lost(
    folder: Path, slurm: dict[str, str], started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is cancelled (SIGTERM first, as at a time limit), later all are killed at once.

    Each has two workers, which Dask itself would not see as a lost job.
    """
    (folder / "site.toml").write_text(PROFILE.replace("cores = 1", "cores = 2"))
    process = started()
    wait_for(lambda: len(jobs(slurm)) == 2)
    first = set(jobs(slurm))
    ask(slurm, "scancel", min(first))
    wait_for(lambda: len(set(jobs(slurm)) - {min(first)}) == 2)
    second = set(jobs(slurm))
    ask(slurm, "scancel", "--signal=KILL", "--full", *second)
    wait_for(lambda: len(set(jobs(slurm)) - first - second) == 2)
    (folder / "go").touch()
    assert "on 4 workers" in finished(process)
    assert_as_here(folder, monkeypatch)


def test_ctrl_c_leaves_no_job_and_the_next_run_goes_on(
    folder: Path, slurm: dict[str, str], started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started()
    os.killpg(process.pid, signal.SIGINT)
    assert re.search(r"^Interrupted: \d+ of 32 points are in s\.zarr", finished(process, 130), re.M)
    wait_for(lambda: not jobs(slurm), 5)
    kept = Store.open(folder_of(folder / "s.zarr")).status() == Outcome.DONE
    assert 0 < np.count_nonzero(kept) < 32
    (folder / "go").touch()
    finished(started())
    assert_as_here(folder, monkeypatch)


def test_jobs_do_not_outlive_a_client_that_is_killed(
    folder: Path, slurm: dict[str, str], started: Start
) -> None:
    (folder / "site.toml").write_text(PROFILE.replace("jobs = 2", "jobs = 1"))
    process = started()
    process.kill()
    process.communicate()
    (folder / "go").touch()  # what they compute is ended, too
    wait_for(lambda: not jobs(slurm))


def test_it_waits_for_the_queue_and_says_so(
    folder: Path,
    slurm: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And starts with the first worker: the second job never gets a place."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # which the jobs inherit
    ask(slurm, "sbatch", "--cpus-per-task=8", "-o", str(folder / "b.log"), "--wrap", "sleep 300")
    (blocker,) = jobs(slurm)
    wait_for(lambda: jobs(slurm, "%T") == ["RUNNING"])
    lines: list[str] = []

    def said(pattern: str) -> bool:
        lines.extend(capsys.readouterr().err.splitlines())
        return any(re.match(pattern, line) for line in lines)

    with Workers(cluster=Slurm(jobs=2, cores=5, processes=1, memory="1 GB", interface="lo")) as two:
        two.start()
        wait_for(lambda: said(r"waiting for Slurm: 2 jobs pending \(.*Resources.*\), 0 running"))
        ask(slurm, "scancel", blocker)
        values = two.client().submit(lambda: [os.environ[name] for name in THREADS]).result(60)
        assert values == ["1", "1", "1"]
        assert sorted(jobs(slurm, "%T")) == ["PENDING", "RUNNING"]


def test_a_replacement_is_left_alone(folder: Path, slurm: dict[str, str]) -> None:
    """Dask would cancel it: it has the name of the job that was lost a while ago."""
    profile = Slurm(cores=1, memory="1 GB", interface="lo", log_directory="logs")
    soon = dask.config.set({"distributed.deploy.lost-worker-timeout": "0.5s"})
    with soon, connect(cluster=profile) as client:
        (lost,) = jobs(slurm)
        ask(slurm, "scancel", "--signal=KILL", "--full", lost)
        wait_for(lambda: not client.nthreads())
        client.wait_for_workers(1, timeout=60)
        assert jobs(slurm) == [str(int(lost) + 1)]


def test_jobs_of_several_classes(folder: Path, slurm: dict[str, str]) -> None:
    """Each worker says its class, also in a job that takes the place of a lost one."""
    more = Jobs(pool="B", cores=2, memory="1 GB")
    mixed = Slurm(
        pool="A", cores=1, memory="1 GB", interface="lo", log_directory="logs", more=(more,)
    )
    with Workers(cluster=mixed) as workers:
        running = DaskRunner(workers.client())
        wait_for(lambda: running.pools == {"A": 1, "B": 2}, 60)
        (lost,) = (job.job_id for job in workers._cluster.workers.values() if "-1" in job.name)
        ask(slurm, "scancel", "--signal=KILL", "--full", lost)
        wait_for(lambda: running.pools == {"A": 1}, 60)
        wait_for(lambda: running.pools == {"A": 1, "B": 2}, 60)


def test_a_class_whose_jobs_all_fail_is_left_alone_and_the_other_is_not(
    folder: Path, slurm: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Jobs(pool="B", cores=1, memory="1 GB", python="/no/such/python")
    mixed = Slurm(
        pool="A", cores=1, memory="1 GB", interface="lo", log_directory="logs", more=(bad,)
    )
    with Workers(cluster=mixed) as workers:
        running = DaskRunner(workers.client())
        said: list[str] = []
        wait_for(lambda: said.append(capsys.readouterr().err) or "/no/such" in "".join(said), 60)
        found = re.search(r"3 B jobs of Slurm ended .*heomdask-(\d+)\.log", "".join(said))
        assert found is not None
        (lost,) = jobs(slurm)
        ask(slurm, "scancel", "--signal=KILL", "--full", lost)
        wait_for(lambda: not running.pools, 60)
        wait_for(lambda: running.pools == {"A": 1}, 60)
        workers._cluster.require_jobs()
        time.sleep(3 * jobqueue.LOOK)  # in which none of B is submitted
        assert jobs(slurm) == [str(int(found[1]) + 1)]


@pytest.mark.parametrize("given", [False, True], ids=["for this run", "given"])
def test_tls_with_certificates(folder: Path, given: bool) -> None:
    tls: Any = True
    if given:
        from distributed import Security

        made = Security.temporary()
        contents = {
            "ca": made.tls_ca_file, "cert": made.tls_worker_cert, "key": made.tls_worker_key,
        }  # fmt: skip
        for name, text in contents.items():
            (folder / name).write_text(str(text))
        tls = profiles.Certificates(**{name: str(folder / name) for name in contents})
    profile = Slurm(cores=1, memory="1 GB", interface="lo", log_directory="logs", tls=tls)
    with connect(cluster=profile) as client:
        assert client.scheduler.address.startswith("tls://")
        assert client.submit(sum, [1, 2]).result(60) == 3
        if given:
            address = profiles.Address(address=client.scheduler.address, tls=tls)
            with connect(cluster=address) as other:
                assert other.submit(sum, [3, 4]).result(60) == 7
    assert not [p for p in (folder / "logs").iterdir() if "key" in p.name]


def test_jobs_that_end_at_once_are_an_error_that_shows_their_log(folder: Path) -> None:
    (folder / "site.toml").write_text(PROFILE + 'python = "/no/such/python"\n')
    process = subprocess.run(
        RUN, cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert process.returncode == 2, process.stderr
    said = process.stderr.partition("Error: ")[2]
    assert "jobs of Slurm ended one after the other" in said
    assert "/no/such/python" in said and "Traceback" not in process.stderr


def test_a_profile_that_slurm_refuses_is_told_in_its_words(folder: Path) -> None:
    (folder / "site.toml").write_text(PROFILE + 'partition = "nope"\n')
    with (
        pytest.raises(InputError, match=r"^`cluster` must .*invalid partition specified: nope"),
        connect(cluster="site.toml"),
    ):
        pass
    assert jobqueue.job_script(profiles.read("site.toml")).count("#SBATCH -p nope") == 1


def test_batch_jobs_can_have_a_dashboard(folder: Path) -> None:
    pytest.importorskip("bokeh", reason="needs bokeh, of the extra dashboard")
    with (
        Workers(cluster="site.toml", dashboard=True) as workers,
        urllib.request.urlopen(workers.page.replace("heomdask", "status"), timeout=30) as answer,
    ):
        assert b"Dask" in answer.read()


def test_the_check_of_a_new_profile(folder: Path) -> None:
    script = Path(__file__).parents[2] / "deploy" / "smoke.py"
    done = subprocess.run(
        [sys.executable, str(script), "site.toml"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 points, equal to the last bit" in done.stdout
    assert re.search(r"all checks passed in (\d+) s\n$", done.stdout)
    assert not list(folder.glob("smoke-*"))
