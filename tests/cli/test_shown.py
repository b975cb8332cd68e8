"""Pictures and tables as a reader sees them."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from rich.console import Console
from toml_files import PLAIN
from typer.testing import CliRunner

import heomdask as hd
from heomdask.backends import registry
from heomdask.cli import main, plot
from heomdask.cli.summary import pace_text, status_table, summary_table
from heomdask.ensemble.cluster import Workers
from heomdask.outcome import Outcome
from heomdask.results.folder import folder_of

BATH = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=1.0)
PADE = "Pade(N=1, coefficients='consistent')"


def dataset(observables: int) -> xr.Dataset:
    """What `hd.open` gives, of T x lam x sample, filled with numbers."""
    names = [f"P{j + 1}" for j in range(observables)]
    shape, times = (2, 3, 20), np.linspace(0, 730, 11)
    dims = ("T", "lam", "sample")
    values = np.random.default_rng(1).uniform(0, 1, (observables, *shape, len(times)))
    found = xr.Dataset(
        {name: ((*dims, "time"), v) for name, v in zip(names, values, strict=True)},
        coords={"T": [77.0, 300.0], "lam": [5.0, 15.0, 35.0], "time": times},
        attrs={
            "observables": names,
            "specification": {"depth": "Depth(depth=3)", "expansion": PADE},
            "title": "A test",
        },
    )
    found["status"] = (dims, np.full(shape, int(Outcome.DONE)))
    found["convergence_error"] = (dims[:2], np.full(shape[:2], 0.00067))
    for name, unit in (("T", "K"), ("lam", "cm^-1"), ("time", "fs")):
        found[name].attrs["units"] = unit
    return found


def drawn(found: xr.Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Figure:
    """The figure of a dataset, before it is closed."""
    kept: list[Figure] = []
    monkeypatch.setattr(plt, "close", kept.append)
    plot.draw(found, folder / "picture.png")
    monkeypatch.undo()
    plt.close(kept[0])
    return kept[0]


def test_a_picture_writes_units_and_methods_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = drawn(dataset(2), tmp_path, monkeypatch)
    assert figure.axes[0].get_title() == "T = 77 K, lam = 5 cm⁻¹"
    assert figure.axes[-1].get_xlim() == (0.0, 730.0)
    assert figure.axes[-1].get_xticklabels()[-1].get_text() == "730"
    assert figure.get_supxlabel().startswith("depth 3; expansion Pade(1); mean of 20 samples")


@pytest.mark.parametrize(
    ("unit", "raised"),
    [("cm^-1", "cm⁻¹"), ("cm-1", "cm⁻¹"), ("ps**-2", "ps⁻²"), ("1/fs", "1/fs"), ("K", "K")],
)
def test_powers_of_units_are_raised(unit: str, raised: str) -> None:
    assert plot._raised(unit) == raised


@pytest.mark.parametrize(
    ("end", "ticks"),
    [
        (1000.0, ["0", "200", "400", "600", "800", "1000"]),
        (730.0, ["0", "150", "300", "450", "600", "730"]),
        (620.0, ["0", "150", "300", "450", "620"]),  # 600 would run into the last
        (0.0, ["0"]),
    ],
)
def test_the_last_tick_is_the_last_time(end: float, ticks: list[str]) -> None:
    assert [f"{t:g}" for t in plot._ticks(np.array([0.0, end]))] == ticks


def test_the_legend_stands_beside_the_panels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = drawn(dataset(2), tmp_path, monkeypatch)
    panel = figure.axes[1]  # the last of the first row
    legend = panel.get_legend()
    assert legend is not None and not figure.legends
    box, beside = legend.get_window_extent(), panel.get_window_extent()
    assert 0 < box.x0 - beside.x1 < 0.1 * beside.width
    assert abs(box.y1 - beside.y1) < 0.1 * beside.height
    assert box.x1 < figure.bbox.x1


def test_seven_curves_differ_in_colour_and_the_lower_ones_in_style_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = drawn(dataset(7), tmp_path, monkeypatch).axes[0]
    colours = [line.get_color() for line in panel.lines]
    dashes = [str(line._dash_pattern) for line in panel.lines]
    assert len(set(colours)) == 7 and len(set(dashes[2:])) == 5


def lines(found: xr.Dataset, width: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width).print(summary_table(found, width))
    return output.getvalue().splitlines()


@pytest.mark.parametrize(("width", "observables"), [(120, 2), (80, 1), (50, 0)])
def test_a_summary_drops_observables_to_keep_each_row_on_a_line(
    width: int, observables: int
) -> None:
    text = lines(dataset(7), width)
    rows = [line for line in text if line.startswith("│")]
    assert len(rows) == 6 and max(map(len, text)) <= width
    for row in rows:
        assert row.count("±") == observables and "20 of 20" in row and row.count("0.00067") == 1
    assert any(f"{7 - observables} more" in line for line in text)


def test_a_summary_names_its_time_and_its_methods() -> None:
    one = dataset(2).rename(lam="expansion").assign_coords(expansion=[PADE, "x", "y"])
    text = "\n".join(lines(one, 80))
    assert "last time, 730 fs" in text
    assert "Pade(1)" in text and "N=1" not in text


@pytest.mark.parametrize(("silent", "said"), [(0.05, True), (60.0, False)])
def test_a_plan_that_takes_long_says_what_it_does(
    silent: float,
    said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make = hd.Sweep.plan

    def slowly(self: hd.Sweep, *, store: str, workers: Workers) -> object:
        time.sleep(0.5)
        return make(self, store=store, workers=workers)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hd.Sweep, "plan", slowly)
    monkeypatch.setattr(main, "SILENT", silent)
    (tmp_path / "toy.toml").write_text(PLAIN)
    main.plan("toy.toml")
    output = capsys.readouterr()
    assert ("timing short runs" in output.err) == said
    assert "ADOs" in output.out


def test_the_help_of_plan_says_that_it_takes_time() -> None:
    text = CliRunner().invoke(main.app, ["plan", "--help"]).output
    assert "few seconds" in text and "omputes nothing" not in text


def test_a_convergence_error_above_the_standard_error_is_marked() -> None:
    found = dataset(2)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(summary_table(found, 120))
    assert "!" not in console.export_text()
    found["convergence_error"][0, 1] = 0.2
    console.print(summary_table(found, 120))
    text = console.export_text()
    assert text.count("0.2 !") == 1
    assert "larger depth or expansion" in " ".join(text.split())


def test_the_list_of_backends_shows_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are no markup."""
    said = "The backend 'cupy' cannot run here: install heomdask[cuda12]."
    monkeypatch.setattr(registry, "available", lambda: [("cupy", said)])
    text = CliRunner().invoke(main.app, ["backends"], env={"COLUMNS": "200"}).output
    assert said in text


def test_results_are_printed_without_their_hierarchies() -> None:
    sz = np.diag([1.0, -1.0])
    problem = hd.Problem(np.array([[0, 1], [1, 0]]), [hd.Coupling(sz, BATH)])
    found = hd.steady_state(problem, depth=3, expansion=hd.Pade(1), observables={"Z": sz})
    assert "outcome" in repr(found) and len(repr(found).splitlines()) < 10


def test_a_status_tells_how_fast_a_store_is_filled() -> None:
    """From when its shards were written; what the first of them took is not known."""
    status = np.array([1] * 50 + [2] * 10 + [5] * 40 + [0] * 20, dtype=np.uint8)
    commits = [(500.0, 30), (900.0, 10), (910.0, 10), (950.0, 10)]
    there = "60 of 80 points that are needed are there"
    assert pace_text(status, commits, True, 1000.0) == (
        f"{there}, the last came 50.0 s ago: 0.2 points/s in the last minutes, about 100.0 s left."
    )
    assert pace_text(status, commits, True, 8150.0) == f"{there}, the last came 2.0 h ago."
    assert pace_text(status, [], True, 1000.0) == f"{there}."
    go_on = "No run is active: the same `heomdask run`, or `Sweep.run`, goes on."
    assert pace_text(status, commits, False, 1000.0) == (
        f"{there}, the last came 50.0 s ago. {go_on}"
    )
    assert pace_text(status, [], False, 1000.0) == f"{there}. {go_on}"
    for driven in (True, False):
        said = pace_text(status[:100], commits, driven, 1000.0)
        assert said == "60 of 60 points that are needed are there."


class Ending(hd.SerialRunner):
    """Is interrupted after some tasks."""

    tasks = 2

    def wait(self) -> Any:
        if not self.tasks:
            raise KeyboardInterrupt
        self.tasks -= 1
        return super().wait()


def test_the_status_of_a_store_that_is_partly_filled(place: str) -> None:
    """Wherever it lies."""

    def build(e: float, rng: np.random.Generator) -> Any:
        return hd.Problem(e * np.diag([1.0, -1.0])), np.eye(2) / 2

    sweep = hd.Sweep(
        build, over={"e": [1.0, 2.0, 3.0]}, samples=64, times=[0, 1], depth=0, expansion=hd.Pade(0)
    )
    with pytest.raises(KeyboardInterrupt) as caught:
        sweep.run(place, client=Ending(), progress=False)
    (note,) = caught.value.__notes__
    assert re.fullmatch(r"\d+ of 192 points are in .*; run the sweep on it again to go on\.", note)

    def said() -> str:
        console = Console(width=200, file=io.StringIO())
        console.print(status_table(place))
        return " ".join(console.file.getvalue().split())

    there = r"\d+ of 192 points that are needed are there, the last came \d+\.\d s ago"
    assert re.search(rf"{there}\. No run is active: .* goes on\.", said())
    with folder_of(place).driving():
        assert re.search(rf"{there}: \S+ points/s in the last minutes, about .* left\.", said())
    assert "No run is active" in said()


def test_the_status_of_a_store_with_failed_points_says_how_to_try_them_again(
    tmp_path: Path,
) -> None:
    def build(e: float) -> Any:
        return hd.Problem(e * np.diag([1.0, -1.0])), np.eye(2) / (2 if e < 2 else 0)

    sweep = hd.Sweep(build, over={"e": [1.0, 2.0]}, times=[0, 1], depth=0, expansion=hd.Pade(0))
    with np.errstate(divide="ignore", invalid="ignore"), pytest.warns(hd.HeomdaskWarning):
        sweep.run(tmp_path / "s.zarr", client=hd.SerialRunner(), progress=False)
    assert "--retry-failed" in str(status_table(str(tmp_path / "s.zarr")).caption)
