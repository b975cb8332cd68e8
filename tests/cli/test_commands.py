"""The commands as a user types them, in a folder of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import heomdask as hd
from heomdask import topology
from heomdask.cli import main
from heomdask.cli.config import parse, to_sweep
from heomdask.cli.plot import SUFFIXES, plot_store
from heomdask.ensemble import cluster
from heomdask.errors import HeomdaskWarning, InputError, TooLarge

PNG = b"\x89PNG\r\n\x1a\n"


def heomdask(folder: Path, *words: str, status: int = 0) -> str:
    """Run a command in `folder`; its whole output."""
    result = subprocess.run(
        [sys.executable, "-m", "heomdask.cli", *words],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    output = heomdask(path, "run", "spinboson", "--workers", "2")
    assert "Summary" in output and "4 of 4" not in output and "1 of 1" in output
    return path


@pytest.mark.cluster
def test_run_leaves_a_store_and_a_picture(folder: Path) -> None:
    ds = hd.open(str(folder / "spinboson.zarr"))
    assert ds.sizes == {"lam": 4, "time": 201, "i": 2, "j": 2}
    assert (ds["status"] == 1).all()
    np.testing.assert_allclose(ds["rho"].sel(time=0), np.broadcast_to([[1, 0], [0, 0]], (4, 2, 2)))
    assert (folder / "spinboson.png").read_bytes().startswith(PNG)


@pytest.mark.cluster
def test_a_path_integral_value_from_the_packaged_example(folder: Path) -> None:
    """lam = 0.1: rho00(t = 2) = 0.412206760 by full-memory path integrals, Pade 3 to 3e-5."""
    point = hd.open(str(folder / "spinboson.zarr")).sel(lam=0.1).sel(time=2.0, method="nearest")
    assert abs(complex(point["rho"][0, 0]) - 0.412206760) < 3e-5


@pytest.mark.cluster
def test_running_again_computes_nothing(folder: Path) -> None:
    files = sorted((folder / "spinboson.zarr" / "sz").glob("c.*"))
    assert files
    before = [f.stat().st_mtime_ns for f in files]
    heomdask(folder, "run", "spinboson", "--workers", "1")
    assert [f.stat().st_mtime_ns for f in files] == before


@pytest.mark.cluster
def test_status_and_plot(folder: Path) -> None:
    assert "4 points" in heomdask(folder, "status", "spinboson.zarr")
    heomdask(folder, "plot", "spinboson.zarr", "--output", "again.png")
    assert (folder / "again.png").read_bytes().startswith(PNG)


TOY = """
[system]
hamiltonian = [[0.25, 0.5], [0.5, -0.25]]
[[bath]]
kind = "drude-lorentz"
coupling = "sz"
lam = "lam"
gamma = 0.5
T = 0.5
[sweep.axes]
lam = { values = [0.01, 0.05] }
[solve]
times = { values = [0, 1] }
depth = 2
expansion = "pade 1"
check_convergence = false
[output]
store = "toy.zarr"
"""


def living(group: int) -> list[str]:
    """The processes of a group, without zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, its_group, *_ = stat.read_text().rsplit(")", 1)[1].split()
            if int(its_group) == group and state != "Z":
                found.append(stat.with_name("cmdline").read_text())
    return found


def started(folder: Path) -> subprocess.Popen[str]:
    """A run of 400 points in a process group of its own, with at least one shard committed."""
    many = "{ start = 0.001, stop = 0.4, step = 0.001 }"
    slow = TOY.replace("{ values = [0.01, 0.05] }", many).replace("[0, 1]", "[0, 1, 20]")
    (folder / "slow.toml").write_text(slow.replace("depth = 2", 'depth = 4\nbackend = "numpy"'))
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "heomdask.cli", "run", "slow.toml", "--workers", "2"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"TMPDIR": str(folder / "tmp")},
    )  # fmt: skip
    while not list(folder.glob("toy.zarr/status/c.*")) and process.poll() is None:
        time.sleep(0.02)
    return process


def wait_until_all_ended(group: int) -> None:
    end = time.monotonic() + 10
    while left := living(group):
        assert time.monotonic() < end, left
        time.sleep(0.02)


def scratch(folder: Path) -> list[Path]:
    """Folders of Dask's workers and schedulers."""
    return [p for p in folder.glob("tmp/dask-scratch-space/*") if p.is_dir()]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("signals", "status"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
    ],
    ids=["ctrl-c", "ctrl-c thrice", "sigterm"],
)
def test_a_stopped_run_says_one_sentence_and_leaves_nothing(
    tmp_path: Path, signals: list[signal.Signals], status: int
) -> None:
    """As from a terminal or a batch system: the signal is sent to the workers too."""
    process = started(tmp_path)
    for number in signals:
        os.killpg(process.pid, number)
        time.sleep(0.1)  # else the system makes one of them
    output, _ = process.communicate(timeout=60)
    assert process.returncode == status, output
    said = re.search(r"^Interrupted: (\d+) of 400 points are in toy\.zarr; run", output, re.M)
    assert said and 0 < int(said[1]) < 400, output
    assert "Traceback" not in output
    wait_until_all_ended(process.pid)
    assert not scratch(tmp_path)
    assert (hd.open(str(tmp_path / "toy.zarr"))["status"] == 1).sum() == int(said[1])


@pytest.mark.cluster
def test_after_a_kill_the_workers_end_and_the_next_run_cleans_up_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    wait_until_all_ended(process.pid)
    assert scratch(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    text = (tmp_path / "slow.toml").read_text()
    (tmp_path / "slow.toml").write_text(text.replace("stop = 0.4,", "stop = 0.05,"))
    heomdask(tmp_path, "run", "slow.toml", "--workers", "1")
    assert (hd.open(str(tmp_path / "toy.zarr"))["status"][:50] == 1).all()
    assert not scratch(tmp_path)


@pytest.mark.cluster
def test_the_batch_script_for_slurm_runs_a_file_and_goes_on_with_it(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "deploy" / "slurm.sh"
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (tmp_path / "toy.toml").write_text(TOY)
    for values in ("[0.01, 0.05]", "[0.01, 0.05, 0.1]"):  # then resubmitted, with one more
        (tmp_path / "toy.toml").write_text(TOY.replace("[0.01, 0.05]", values))
        done = subprocess.run(
            ["bash", str(script), "toy.toml", "--store", "other.zarr"],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            env=os.environ | {"PATH": programs, "SLURM_CPUS_PER_TASK": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "on 1 workers" in done.stdout
    assert hd.open(str(tmp_path / "other.zarr"))["status"].values.tolist() == [1, 1, 1]
    assert subprocess.run(["bash", str(script)], capture_output=True, check=False).returncode == 2


def fill(folder: Path, text: str = TOY) -> None:
    """Run the sweep of a file in this process."""
    to_sweep(parse(text, "toy.toml")).run(folder / "toy.zarr", client=hd.SerialRunner())


def test_nothing_left_to_compute_starts_no_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("workers were started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "_local", refuse)
    (tmp_path / "toy.toml").write_text(TOY)
    with pytest.raises(AssertionError, match="workers were started"):
        main.run("toy.toml")
    fill(tmp_path)
    main.run("toy.toml")
    assert "Summary" in capsys.readouterr().out


def test_workers_start_after_the_plan_which_may_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would take the cores on which the plan times its short runs."""

    def refuse(*_: object, **__: object) -> None:
        raise TooLarge("does not fit")

    def start(*_: object) -> None:
        raise AssertionError("workers were started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hd.Sweep, "plan", refuse)
    monkeypatch.setattr(cluster, "_local", start)
    (tmp_path / "toy.toml").write_text(TOY)
    with pytest.raises(TooLarge, match="does not fit"):
        main.run("toy.toml")


def test_a_picture_says_what_it_shows(tmp_path: Path) -> None:
    import matplotlib as mpl

    axes = "[sweep.axes]\ndepth = { values = [1, 2] }"
    titled = 'title = "A toy"' + TOY.replace("depth = 2\n", "").replace("[sweep.axes]", axes)
    fill(tmp_path, titled)
    with mpl.rc_context({"svg.fonttype": "none"}):
        plot_store(str(tmp_path / "toy.zarr"), tmp_path / "toy.svg")
    shown = (tmp_path / "toy.svg").read_text()
    for text in ("A toy", "expansion Pade(1)", "depth = 2, lam = 0.05", ">P1<", ">time<"):
        assert text in shown, text
    assert "depth None" not in shown


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_sweep(tmp_path: Path) -> None:
    for plot, reason in (("toy.gifx", ".png"), ("toy.toml/toy.png", "folder")):
        (tmp_path / "toy.toml").write_text(TOY + f'plot = "{plot}"\n')
        output = heomdask(tmp_path, "run", "toy.toml", status=2)
        assert output.startswith("Error: `output.plot`") and reason in output
    assert [f.name for f in tmp_path.iterdir()] == ["toy.toml"]


def test_the_suffixes_are_those_of_matplotlib() -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    assert {s[1:] for s in SUFFIXES} <= set(FigureCanvasBase.get_supported_filetypes())


def test_a_wrong_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_REACH", 0.2)
    for address in ("nonsense", "foo://x:1", "tcp://127.0.0.1:1"):
        with (
            pytest.raises(InputError, match=f"^`scheduler` must .* got '{address}'"),
            cluster.connect(scheduler=address),
        ):
            pass


def test_a_file_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for words in (("plan", "fmo", "--store"), ("run", "fmo", "--store"), ("status",)):
        output = heomdask(tmp_path, *words, "thesis.tex", status=2)
        assert "Error: `store` must be a folder" in output
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_plan_writes_nothing(tmp_path: Path) -> None:
    output = heomdask(tmp_path, "plan", "fmo")
    assert "180" in output and "ADO" in output
    assert list(tmp_path.iterdir()) == []


def test_backends_and_schema(tmp_path: Path) -> None:
    output = heomdask(tmp_path, "backends")
    assert "numpy" in output and "native" in output
    assert f"{len(topology.allowed())} CPUs may be used" in output
    assert json.loads(heomdask(tmp_path, "schema"))["$defs"]["SolveTable"]["required"]


def test_version_and_the_package_as_a_program(tmp_path: Path) -> None:
    assert heomdask(tmp_path, "--version") == f"heomdask {hd.__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "heomdask", "--version"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"heomdask {hd.__version__}\n"


def test_an_error_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    output = heomdask(tmp_path, "run", "fnord", status=2)
    assert output.startswith("Error: `CONFIG`") and "Traceback" not in output


def test_a_warning_of_ours_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app(standalone_mode: bool) -> None:
        assert standalone_mode
        warnings.simplefilter("always")
        warnings.warn("mind [this].", HeomdaskWarning, stacklevel=1)
        warnings.warn("and that", UserWarning, stacklevel=1)

    monkeypatch.setattr(main, "app", app)
    before = warnings.showwarning
    main.main()
    ours, others = capsys.readouterr().err.split("\n", 1)
    assert ours == "Warning: mind [this]."
    assert "UserWarning: and that" in others and "test_commands.py" in others
    assert warnings.showwarning is before


def test_failed_points_are_tried_again_if_so_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(self: hd.Sweep, store: str, *, client: object, retry_failed: bool) -> None:
        asked.append(retry_failed)
        raise InputError("enough")

    monkeypatch.setattr(hd.Sweep, "run", run)
    for options in ([], ["--retry-failed"]):
        words = [
            "run",
            "spinboson",
            "--store",
            str(tmp_path / "s.zarr"),
            "--workers",
            "1",
            *options,
        ]
        assert isinstance(CliRunner().invoke(main.app, words).exception, InputError)
    assert asked == [False, True]
