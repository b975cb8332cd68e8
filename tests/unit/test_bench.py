"""The benchmark command: what it counts is right, what it leaves out it names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from typer.testing import CliRunner

from heomdask import memory
from heomdask.backends.native import NativeBackend
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.bench import kernels, peers, suite
from heomdask.bench.cases import CASES, RING, SPIN_BOSON, Case
from heomdask.bench.timing import QUICK, Action, Effort, Spread
from heomdask.bench.work import work_of
from heomdask.cli.main import app
from heomdask.errors import InputError, TooLarge
from heomdask.generator.build import build_plan
from heomdask.plan import Plan

SMALL = [Case(SPIN_BOSON, 5), Case(RING, 1), *(c for c in CASES if c.name == "fmo-7-4")]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_elements_are_those_of_the_matrix(case: Case) -> None:
    plan = case.plan()
    matrix = plan.to_sparse()
    matrix.data[np.abs(matrix.data) < 1e-14] = 0  # what cancels but for rounding
    matrix.eliminate_zeros()
    work = work_of(plan)
    more = round(work.elements * plan.n_rows) - matrix.nnz
    assert 0 < more <= plan.d**2  # ADO 0 has no rates
    assert work.flops == 2 * work.elements
    assert work.nbytes > 2 * 8 * plan.d**2
    halved = work.nbytes - work_of(plan, "float32").nbytes
    assert halved == pytest.approx(plan.d**2 * 8)


def test_a_complex_number_is_two_and_its_product_four() -> None:
    case = Case(SPIN_BOSON, 3)
    own = case.prepared()
    plan = build_plan([own.expanded], own.index_set, form="complex")
    work = work_of(plan)
    assert work.flops == 8 * work.elements
    assert work.nbytes > 2 * 16 * plan.d**2


def test_members_of_a_batch_differ() -> None:
    batch = Case(SPIN_BOSON, 2, members=3)
    energies = {batch.prepared(m).expanded.hamiltonian[0, 0] for m in range(3)}
    assert len(energies) == 3
    assert batch.plan().n_members == 3


def test_actions_take_turns() -> None:
    calls: list[str] = []
    actions = {name: Action(lambda name=name: calls.append(name)) for name in "ab"}
    seconds = Effort(rounds=3, sample=0.0).interleave(actions)
    assert "".join(calls[-6:]) == "ababab"
    assert all(s.shape == (3,) for s in seconds.values())


def test_spread_is_a_median_with_quartiles() -> None:
    assert Spread.of(np.arange(5.0)) == Spread(2.0, 1.0, 3.0)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_limits_do_what_they_say(precision: str) -> None:
    backend = NativeBackend(threads=2)
    once = backend.multiply_adds(precision, 1)
    assert once > 0
    assert backend.multiply_adds(precision, 1000) == 1000 * once
    a, b, c = backend.triad_arrays(1001)
    b[:], c[:] = np.arange(len(b)), 2.0
    backend.triads((a, b, c), 3)
    assert len(a) == 1008
    assert np.array_equal(a, b + 0.5 * c)


def test_what_does_not_fit_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 1)
    found = kernels.measure(CASES[0], QUICK, [1])
    assert not found.kernels
    assert found.left_out[0].startswith(CASES[0].name)


def test_a_backend_whose_matrix_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Plan, dtype: str = "float64") -> None:
        raise TooLarge("A sparse matrix needs more than there is.")

    backend = NumpyBackend()
    monkeypatch.setattr(backend, "compile", refuse)
    monkeypatch.setattr(peers.registry, "available", lambda: [("other", backend.info)])
    monkeypatch.setattr(peers.registry, "get", lambda name, threads: backend)
    case = Case(SPIN_BOSON, 2)
    found = peers.actions(case.prepared().expanded, 2, case.plan(), 10.0)
    assert found["other"] == "A sparse matrix needs more than there is."


def test_without_the_extension_the_command_says_so() -> None:
    program = (
        "import sys; sys.modules['heomdask._native._core'] = None; "
        "from heomdask.cli.main import main; "
        "sys.argv[1:] = ['bench', '--quick', '--case', 'spinboson-3-10']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert "The backend 'native' cannot run here" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("form", ["real", "complex"])
def test_the_triad_is_as_large_as_two_states(form: str) -> None:
    own = Case(SPIN_BOSON, 3).prepared()
    plan = build_plan([own.expanded], own.index_set, form=form)
    asked = []
    with mock.patch.object(kernels, "triad", lambda _, nbytes: (None, asked.append(nbytes))):
        kernels._Bench(Case(SPIN_BOSON, 3), plan, [1])
    backend = NativeBackend(threads=1)
    assert asked == [2 * backend.empty(backend.compile(plan)).nbytes]


def test_an_unknown_case_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"`case`.*fmo-7-4.*solve-fmo-7-6.*got 'fnord'"):
        suite.steps(quick=False, patterns=["fnord"])
    assert [s.name for s in suite.steps(quick=True, patterns=["build-*"])] == [
        "build-fmo-14-6",
        "build-fmo-21-7",
    ]
    assert 0 < len(suite.steps(True, [])) < len(suite.steps(False, []))


def test_command_prints_tables_and_writes_both_files(tmp_path: Path) -> None:
    report, picture = tmp_path / "b.json", tmp_path / "b.png"
    case = ["--case", "spinboson-3-10", "--case", "build-fmo-14-6"]
    command = ["bench", "--quick", *case, "--json", str(report), "--plot", str(picture)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert re.search(r"2 measurements: about \d+ seconds", done.output)
    for title in ("Limits of the machine", "Kernels", "Construction"):
        assert title in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    kept = json.loads(report.read_text())
    assert kept["kernels"][0]["case"] == "spinboson-3-10"
    assert 0 < kept["kernels"][0]["peak_share"]["median"] < 1
