"""The figures of performance.md: ``python docs/performance.py`` measures them anew, all of them.

It runs ``heomdask bench``, keeps the report and the picture beside the page, and puts the tables
into it. With ``--kept`` it does so with the report that is there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from heomdask.bench import tables
from heomdask.bench.roofline import draw
from heomdask.bench.suite import Report

FOLDER = Path(__file__).parent
PAGE, REPORT, PICTURE = (FOLDER / f"performance.{suffix}" for suffix in ("md", "json", "png"))
BEGIN, END = "<!-- begin: written by performance.py -->\n", "<!-- end -->\n"


def rendered(page: str, report: Report) -> str:
    """The page with the report's tables between the marks."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    parts = [tables.caption(report) + ".\n"]
    for table in tables.tables(report):
        parts.append(f"### {table.title}\n")
        rule = ["---"] + ["---:"] * (len(table.headings) - 1)
        lines = [table.headings, rule, *table.rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    parts += [f"Left out: {reason}\n" for reason in report.left_out]
    return before + BEGIN + "\n" + "\n".join(parts) + "\n" + END + after


def main() -> None:
    if "--kept" not in sys.argv:
        command = [sys.executable, "-m", "heomdask", "bench", "--json", REPORT]
        subprocess.run(command, check=True)
    report = msgspec.json.decode(REPORT.read_bytes(), type=Report)
    draw(report, PICTURE)
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
