"""Profiles of clusters: what is read, what is refused, and the job scripts that they become."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from heomdask.cli import main
from heomdask.ensemble import cluster, jobqueue, profiles
from heomdask.ensemble.cluster import Workers
from heomdask.ensemble.pools import ALIKE
from heomdask.ensemble.profiles import Address, Local, Slurm, Ssh, cores
from heomdask.ensemble.tls import warn_if_open
from heomdask.errors import HeomdaskWarning, InputError

DEPLOY = Path(__file__).parents[2] / "deploy" / "clusters"
COMMON = """\
export OMP_NUM_THREADS=1
export MKL_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export PYTHONSAFEPATH=1
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
"""
WORKER = "-m distributed.cli.dask_worker tcp://SCHEDULER:PORT --name heomdask-0 --nthreads 1"
END = "--nanny --death-timeout 60"
LOADED = "--no-dashboard --preload heomdask.ensemble.remote"


def script(name: str) -> str:
    """The script that an example makes, without the parts that are this machine's own."""
    profile = profiles.read(DEPLOY / f"{name}.toml")
    assert isinstance(profile, Slurm)
    text = jobqueue.job_script(profile)
    return text.replace(sys.executable, "PYTHON").replace(str(Path.cwd()), "HERE")


def header(*lines: str) -> str:
    return "".join(f"#SBATCH {line}\n" for line in ("-J heomdask", *lines))


SCRIPTS = {
    "slurm": header(
        "-p compute", "-A my-project", "-n 1", "--cpus-per-task=32", "--mem=60G", "-t 12:00:00",
        "--output=HERE/heomdask-jobs/heomdask-%j.log",
    ) + COMMON
    + f"PYTHON {WORKER} --memory-limit 1.86GiB --nworkers 32 {END} {LOADED} --interface ib0\n",
    "slurm-modules": header(
        "-p compute", "-n 1", "--cpus-per-task=32", "--mem=60G", "-t 12:00:00",
        "--output=HERE/heomdask-jobs/heomdask-%j.log",
    ) + "module purge\nmodule load python/3.12\n"
    + 'source "$HOME/heomdask/bin/activate"\n' + COMMON
    + f"python {WORKER} --memory-limit 1.86GiB --nworkers 32 {END} "
    + f'--local-directory "${{TMPDIR}}" {LOADED}\n',
    "slurm-container": header(
        "-p compute", "-n 1", "--cpus-per-task=32", "--mem=60G", "-t 12:00:00",
        "--output=HERE/heomdask-jobs/heomdask-%j.log",
    ) + COMMON + "apptainer exec --bind /scratch /scratch/heomdask.sif python3 "
    + f"{WORKER} --memory-limit 1.86GiB --nworkers 32 {END} {LOADED}\n",
    "slurm-exclusive": header(
        "-p standard", "-A my-project", "-n 1", "--cpus-per-task=128", "--mem=448G",
        "-t 1-00:00:00", "--output=HERE/heomdask-jobs/heomdask-%j.log", "--exclusive",
        "--hint=nomultithread",
    ) + COMMON + f"PYTHON {WORKER} --memory-limit 3.49GiB --nworkers 128 {END} {LOADED}\n",
    "slurm-gpu": header(
        "-p gpu", "-A my-project", "-n 1", "--cpus-per-task=8", "--mem=30G", "-t 04:00:00",
        "--output=HERE/heomdask-jobs/heomdask-%j.log", "--gres=gpu:1",
    ) + COMMON
    + f"PYTHON {WORKER.replace('distributed.cli.dask_worker', 'dask_cuda.cli')} --memory-limit "
    + f"29.80GiB --death-timeout 60 {LOADED} --resources GPU=1 --device-memory-limit 0\n",
    "slurm-mixed": header(
        "-p compute", "-A my-project", "-n 1", "--cpus-per-task=32", "--mem=60G", "-t 12:00:00",
        "--output=HERE/heomdask-jobs/heomdask-%j.log",
    ) + COMMON
    + f"PYTHON {WORKER} --memory-limit 1.86GiB --nworkers 32 {END} {LOADED} --resources CPU=1 "
    + "--interface ib0\n\n#!/usr/bin/env bash\n\n" + header(
        "-p gpu", "-A my-project", "-n 1", "--cpus-per-task=8", "--mem=30G", "-t 04:00:00",
        "--output=HERE/heomdask-jobs/heomdask-%j.log", "--gres=gpu:1",
    ) + COMMON + f"PYTHON {WORKER} --memory-limit 29.80GiB {END} {LOADED} --resources GPU=1 "
    + "--interface ib0\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_job_scripts_of_the_examples(name: str) -> None:
    assert script(name) == f"#!/usr/bin/env bash\n\n{SCRIPTS[name]}"


def test_every_example_is_read() -> None:
    read = {path.stem: profiles.read(path) for path in DEPLOY.glob("*.toml")}
    assert set(read) == {*SCRIPTS, "ssh"}
    assert read["ssh"] == Ssh(hosts=("node1", "node2"), processes=16, memory="4 GB")


def test_words_and_addresses() -> None:
    assert profiles.read("local") == Local()
    assert profiles.read("slurm") == Slurm()
    assert profiles.read("ssh:a,b") == Ssh(hosts=("a", "b"))
    assert profiles.read("tls://10.0.0.1:8786") == Address(address="tls://10.0.0.1:8786")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memroy = 1", "unknown field `memroy`; did you mean `memory`?"),
        ("cores = 0", "`$.cores`"),
        ("cores = 2\nprocesses = 3", "`processes` must be at most `cores` (2), got 3"),
        ("dask_cuda = true", "`dask_cuda` must be used with processes = 1 and pool"),
        ('memory = "64"', "`memory` must be a number with kB, MB, GB"),
        ('walltime = "12:00"', 'takes "12:00" as 12 minutes'),
        ('directives = ["#SBATCH -x"]', 'write for example "--exclusive", without #SBATCH'),
        ("tls = 3", "`$.tls`"),
        ("jobs = ", "is not valid TOML"),
        ('[[more]]\npool = "GPU"', "`pool` must be another word in each table"),
        ('pool = "GPU"\n[[more]]\npool = "GPU"', "got ['GPU', 'GPU']"),
        ('pool = "a b"', "`$.pool`"),
        ('pool = "a"\n[[more]]\npool = "b"\ntls = true', "unknown field `tls`"),
    ],
)
def test_a_wrong_key_or_size_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "site.toml"
    file.write_text('kind = "slurm"\n' + text)
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        profiles.read(file)
    assert str(caught.value).startswith(str(file))
    assert ".;" not in str(caught.value)


def test_a_wrong_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    for text, said in (("jobs = 2", "field `kind`"), ('kind = "slurn"', "did you mean `slurm`?")):
        file.write_text(text)
        with pytest.raises(InputError, match=re.escape(said)):
            profiles.read(file)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cluster": "nowhere.toml"}, "got 'nowhere.toml': No such file"),
        ({"cluster": "ssh"}, "ssh:node1,node2"),
        ({"cluster": 3}, "^`cluster` must be one of"),
        ({"cluster": "slurm", "workers": 2}, "^One of .* got cluster and workers"),
        ({"cluster": "slurm", "scheduler": "tcp://a:1"}, "got cluster and scheduler"),
        ({"scheduler": "tcp://a:1", "workers": 1}, "got scheduler and workers"),
        ({"workers": 0}, "^`workers` must be a whole number of at least 1"),
        ({"tls": True}, "^`tls` must go with Slurm, got it for local"),
        ({"cluster": "ssh:a", "tls": True}, "for ssh; start a scheduler with certificates"),
        ({"scheduler": "tcp://a:1", "tls": True}, "for tcp://a:1; name its certificates"),
    ],
)
def test_what_workers_cannot_be(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Workers(**arguments)


def test_how_many_workers_share_a_sweep_and_with_how_much_memory() -> None:
    assert Workers(cluster=Slurm(jobs=3, cores=4, memory="8 GiB")).share == ({ALIKE: 12}, 2 * 2**30)
    assert Workers(cluster=Slurm(jobs=3, cores=4, processes=2)).share == ({ALIKE: 6}, 2 * 2**30)
    assert Workers(cluster="local", workers=2).share[0] == {ALIKE: 2}
    assert Workers(cluster="local").share[0] == {ALIKE: cores()}
    assert Workers(cluster=Ssh(hosts=("a", "b"), processes=3)).share[0] == {ALIKE: 6}


def test_profiles_of_several_classes() -> None:
    mixed = profiles.read(DEPLOY / "slurm-mixed.toml")
    assert Workers(cluster=mixed).share == ({"CPU": 128, "GPU": 1}, 64 * 10**9 // 32)
    assert Workers(cluster=Local(workers=3, gpus=2)).share[0] == {"CPU": 3, "GPU": 2}
    assert Workers(cluster=Local(gpus=1)).share[0] == {"CPU": max(1, cores() - 1), "GPU": 1}


def test_as_many_cards_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cluster.CARDS, raising=False)
    assert cluster._cards(2) == ["0", "1"]
    monkeypatch.setenv(cluster.CARDS, "3,GPU-7")
    assert cluster._cards(1) == ["3"]
    assert cluster._cards(2) == ["3", "GPU-7"]
    with pytest.raises(InputError, match=r"^`gpus` must be at most those of .* \(3,GPU-7\), got 3"):
        cluster._cards(3)


def test_what_is_missing_is_said_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="a machine without `sbatch`"), Workers(cluster="slurm"):
        pass
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for place, extra in (("slurm", "jobqueue"), ("ssh:a", "ssh")):
        with (
            pytest.raises(InputError, match=rf"heomdask\[{extra}\]"),
            Workers(cluster=place),
        ):
            pass


def test_a_plan_shows_the_script_of_a_job_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main.plan("spinboson", cluster=str(DEPLOY / "slurm.toml"))
    output = capsys.readouterr().out
    assert "for 128 workers" in output
    assert "#SBATCH -p compute\n" in output
    main.plan("spinboson", cluster=str(DEPLOY / "slurm-mixed.toml"))
    output = capsys.readouterr().out
    assert "for 128 CPU and 1 GPU workers" in output
    assert "on 128 CPU workers" in output  # GPUs are measured when they are there
    assert output.count("#SBATCH -p") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "tcp://[::1]:1", "tls://10.0.0.1:1", "tcp://localhost:1"]
)
def test_a_private_scheduler_is_no_matter(address: str) -> None:
    warn_if_open(address)


def test_an_open_scheduler_is_warned_about() -> None:
    with pytest.warns(HeomdaskWarning, match=r"10\.0\.0\.1:8786 is not encrypted.*--tls"):
        warn_if_open("tcp://10.0.0.1:8786")


@pytest.fixture
def smoke() -> Any:
    spec = importlib.util.spec_from_file_location("smoke", DEPLOY.parent / "smoke.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_check_of_a_profile_tells_what_differs(smoke: Any) -> None:
    here = smoke.describe() | {"threads": "1"}
    other = here | {"host": "node7", "heomdask": "0.0.1", "threads": "64"}
    assert not list(smoke.wrong_versions(here, [here])) + list(smoke.wrong_threads([here]))
    (version,) = smoke.wrong_versions(here, [here, other, other])
    assert version.startswith("node7 has heomdask 0.0.1") and "`prologue`" in version
    (threads,) = smoke.wrong_threads([here, other])
    assert "node7" in threads


def test_the_check_of_a_profile_tells_of_a_folder_that_is_not_shared(
    smoke: Any, tmp_path: Path
) -> None:
    class Elsewhere:
        """Workers that see another disk: nothing at all, or a folder of the same name."""

        def __init__(self, error: str) -> None:
            self.error = error

        def run(self, function: Any, folder: str) -> dict[str, str]:
            return {"worker": self.error or smoke.answer(folder.replace("seen", "other"))}

    for name in ("seen", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "from-client").touch()
    for error, said in (("", "is not all here"), ("FileNotFoundError", "does not see")):
        (text,) = smoke.invisible(Elsewhere(error), tmp_path / "seen")
        assert said in text and "--folder" in text


def test_the_check_of_a_profile_wants_a_folder_that_is_there(
    smoke: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["smoke.py", "local", "--folder", "nowhere"])
    assert smoke.main() == 1
    assert "FAILED    --folder must be a folder that can be written, got nowhere" in (
        capsys.readouterr().out
    )
