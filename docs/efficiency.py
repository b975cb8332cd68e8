"""The figures of efficiency.md: ``python docs/efficiency.py`` measures them anew, all of them.

It runs the benchmark of each table, keeps the rows beside the page, puts them into it, and draws
the picture. With ``--kept`` it does so with the rows that are there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
PAGE, ROWS, PICTURE = (FOLDER / f"efficiency.{suffix}" for suffix in ("md", "json", "png"))
BENCHMARK = FOLDER.parent / "tests" / "benchmarks" / "efficiency.py"
TABLES = ("many", "million", "cost", "batch", "workers", "scaling", "scheduler")
WORKERS = (10, 100, 300, 1000)
LENGTHS = (0.15, 1.0, 5.0, 20.0)  # seconds of a task

Tables = dict[str, Any]


def rendered(page: str, tables: Tables) -> str:
    """The page with all tables between their marks."""
    for name in TABLES:
        found = tables[name]
        table = _table(found["rows"])
        text = f"{table}\n\nLoad when it began: {found['load']} on {found['cores']} cores.\n"
        page = _filled(page, name, text)
    page = _filled(page, "takeaway", takeaway(tables) + "\n")
    return _filled(page, "model", _table(model(tables)) + "\n")


def takeaway(tables: Tables) -> str:
    """What a user should expect, in three sentences."""
    outside = next(r["value"] for r in tables["many"]["rows"] if r["part"] == "outside")
    each, length = float(outside.split()[0]), LENGTHS[-1]
    small, large = (100 * each / (each + solver) for solver in (3, 30))
    busy = max(n for n in range(1, 3000) if efficiency(tables, n, length) == 1)
    text = (
        f"A point of a large sweep costs {each:.2f} ms of a core beside its solver: to build it, "
        "find its hierarchy, store it, and schedule all of that. "
        f"That is {small:.0f} % of the time where the solver needs 3 ms for a point, and "
        f"{large:.1f} % where it needs 30 ms, so that only sweeps of very small systems notice it. "
        f"One scheduler can keep about {busy // 100 * 100} workers busy, by the model below, whose "
        f"tasks take {length:g} s, as they do in a run of minutes."
    )
    return textwrap.fill(text, 100)


def _filled(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def _table(rows: list[dict[str, Any]]) -> str:
    headings = list(rows[0])
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *(r.values() for r in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def column(tables: Tables, table: str, heading: str) -> Any:
    """The numbers of a column, without what follows them."""
    cells = (str(row[heading]) for row in tables[table]["rows"])
    return np.array([float(cell.split()[0].replace(",", "")) for cell in cells])


def task_cost(tables: Tables, slots: float) -> float:
    """Seconds that the client and the scheduler need for a task, on a line through the table."""
    known = column(tables, "scheduler", "slots")
    each = column(tables, "scheduler", "client and scheduler, ms a task") / 1e3
    slope, start = np.polyfit(known, each, 1)
    return float(start + max(slope, 0.0) * slots)


def efficiency(tables: Tables, workers: float, length: float) -> float:
    """The share of the time in which workers compute, tasks of this length.

    The client and the scheduler share one process, which is the limit as soon as it is busy.
    """
    return min(1.0, length / (workers * task_cost(tables, workers)))


def model(tables: Tables) -> list[dict[str, Any]]:
    """The efficiency, in per cent, of more workers than there are here."""
    return [
        {"workers": n, "ms a task": f"{1e3 * task_cost(tables, n):.2f}"}
        | {f"tasks of {s:g} s": f"{100 * efficiency(tables, n, s):.0f}" for s in LENGTHS}
        for n in WORKERS
    ]


def draw(tables: Tables) -> None:
    """Four panels: point cost, batch size, workers here, and the scheduler's limit."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, ((points, batch), (here, beyond)) = plt.subplots(
        2, 2, figsize=(9.5, 7.5), layout="constrained"
    )
    _points(points, tables)
    members = column(tables, "batch", "members")
    spent = column(tables, "batch", "ms a batch")
    each, fixed = np.polyfit(members, spent, 1)
    batch.loglog(members, spent / members, "o-")
    batch.set(
        xlabel="members of a batch", ylabel="ms a point",
        title=f"Solver: {fixed:.0f} ms a batch, {each:.1f} ms a member",
    )  # fmt: skip
    workers = column(tables, "workers", "workers")
    here.plot(workers, column(tables, "workers", "points a second"), "o-")
    here.set(xlabel="worker processes", ylabel="points a second", title="Two cores")
    here.set_ylim(bottom=0)
    many = np.geomspace(1, 3000, 200)
    for length in LENGTHS:
        shares = [100 * efficiency(tables, n, length) for n in many]
        beyond.semilogx(many, shares, label=f"tasks of {length:g} s")
    beyond.set(xlabel="workers", ylabel="efficiency, %", title="Limit of one scheduler (model)")
    beyond.legend(fontsize=8)
    for panel in (points, batch, here, beyond):
        panel.grid(alpha=0.3)
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)


def _points(panel: Any, tables: Tables) -> None:
    solver = column(tables, "cost", "in the solver, ms")
    outside = column(tables, "cost", "outside, ms")
    for i, row in enumerate(tables["cost"]["rows"]):
        share = 100 * outside[i] / (outside[i] + solver[i])
        panel.plot(solver[i], share, "C0o" if "two" in row["points"] else "C1s")
        panel.annotate(row["points"], (solver[i], share), (5, 4), textcoords="offset points",
                       fontsize=7)  # fmt: skip
    panel.set_xscale("log")
    panel.set_xlim(solver.min() / 2, solver.max() * 8)
    panel.set_ylim(bottom=0)
    panel.set(xlabel="ms a point in the solver", ylabel="%", title="Outside the solver")


def main() -> None:
    if "--kept" not in sys.argv:
        for name in TABLES:
            subprocess.run([sys.executable, BENCHMARK, name, "--json", ROWS], check=True)
    tables = json.loads(ROWS.read_text(encoding="utf-8"))
    draw(tables)
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
