"""The command `bench`: measure, show how far it is, print tables.

Takes: what to measure, and where the report and the picture go.
Gives: tables on the terminal, a JSON file, a picture.
Next file: `../bench/suite.py`, what is measured.
"""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from heomdask.bench import suite, tables
from heomdask.bench.suite import Report, Step

WIDE = 140  # characters of a line in a file


def bench(
    console: Console, quick: bool, patterns: list[str], json: Path | None, plot: Path | None
) -> None:
    """Run the steps and print what they gave."""
    if not console.is_terminal:
        console = Console(width=WIDE)
    steps = suite.steps(quick, patterns)
    console.print(_announcement(steps))
    report = _measured(console, steps, quick)
    console.print(escape(tables.caption(report)))
    for table in tables.tables(report):
        console.print(_table(table))
    for reason in report.left_out:
        console.print(f"Left out: {escape(reason)}")
    if json is not None:
        report.write(json)
        console.print(f"Report: {escape(str(json))}")
    if plot is not None:
        from heomdask.bench.roofline import draw

        console.print(f"Plot:   {escape(str(draw(report, plot)))}")


def _announcement(steps: list[Step]) -> str:
    seconds = sum(step.seconds for step in steps)
    time = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
    return (
        f"{len(steps)} measurements: about {time} on a machine that does nothing else, longer on "
        "one that does."
    )


def _measured(console: Console, steps: list[Step], quick: bool) -> Report:
    """The report, with a bar that moves by the time that each step is expected to take."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("limits of the machine", total=sum(s.seconds for s in steps))
        report = suite.begin(quick)
        for step in steps:
            progress.update(task, description=escape(step.name))
            if not console.is_terminal:
                console.print(escape(step.name))
            step.run(report)
            progress.advance(task, step.seconds)
    return report


def _table(table: tables.Table) -> Table:
    printed = Table(title=table.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(table.headings):
        printed.add_column(
            heading,
            justify="right" if number else "left",
            no_wrap=not number,
            overflow="fold",
        )
    for row in table.rows:
        printed.add_row(*(escape(cell) for cell in row))
    return printed
