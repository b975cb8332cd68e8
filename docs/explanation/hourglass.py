"""Draws hourglass.svg, the picture of architecture.md: python docs/explanation/hourglass.py."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, ROW, BOX = 860, 72, 52
COLOURS = {
    "physics": ("#e8f0fb", "#3b6ea8"),
    "waist": ("#fff1d6", "#b9770e"),
    "numerics": ("#e6f4ea", "#2f7d4f"),
    "cluster": ("#f3e8f7", "#7d3c98"),
}


@dataclass(frozen=True)
class Box:
    """One package: what it is called, what it knows, how wide it stands in the hourglass."""

    name: str
    text: str
    kind: str
    width: int
    centre: int = WIDTH // 2


ROWS = (
    (Box("model/", "systems, baths, temperature: physics, no numerics", "physics", 780),),
    (
        Box("expansion/", "bath → exponents: numbers", "physics", 330, 260),
        Box("hierarchy/", "which ADOs exist: combinatorics", "physics", 330, 600),
    ),
    (Box("generator/", "HEOM, written once: algebra", "physics", 420),),
    (Box("plan.py", "sum of A ⊗ (L, R)", "waist", 220),),
    (Box("backends/", "one set of primitives, no HEOM", "numerics", 340),),
    (Box("solvers/", "polynomials, Runge-Kutta, on any backend", "numerics", 460),),
    (Box("solve.py", "one run in five visible steps", "numerics", 560),),
    (Box("results/", "Solution, zarr store, xarray Dataset", "numerics", 640),),
    (Box("ensemble/", "sweep → tasks → batches → zarr → Dataset", "cluster", 720),),
    (Box("cli/", "heomdask run, plan, status, plot, backends", "cluster", 780),),
)


def draw() -> str:
    """The picture as SVG text."""
    height = ROW * len(ROWS) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="Helvetica, Arial, sans-serif">',
        "<title>The hourglass: data flows downwards, and all backends meet all physics in the "
        "plan</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, row in enumerate(ROWS):
        top = 10 + ROW * number
        parts += [shape(box, top) for box in row]
        if number + 1 < len(ROWS):
            parts += [arrow(a.centre, b.centre, top + BOX) for a in row for b in ROWS[number + 1]]
    return "\n".join([*parts, "</svg>", ""])


def shape(box: Box, top: int) -> str:
    """A rounded box with its two lines of text."""
    fill, line = COLOURS[box.kind]
    return (
        f'<rect x="{box.centre - box.width // 2}" y="{top}" width="{box.width}" height="{BOX}" '
        f'rx="8" fill="{fill}" stroke="{line}" stroke-width="1.5"/>'
        f'<text x="{box.centre}" y="{top + 22}" text-anchor="middle" font-size="16" '
        f'font-weight="bold" fill="{line}">{escape(box.name)}</text>'
        f'<text x="{box.centre}" y="{top + 41}" text-anchor="middle" font-size="13" '
        f'fill="#333">{escape(box.text)}</text>'
    )


def arrow(start: int, end: int, top: int) -> str:
    """From the bottom of a row to the top of the next."""
    return (
        f'<line x1="{start}" y1="{top + 1}" x2="{end}" y2="{top + ROW - BOX - 2}" '
        'stroke="#555" stroke-width="1.3" marker-end="url(#tip)"/>'
    )


if __name__ == "__main__":
    Path(__file__).with_name("hourglass.svg").write_text(draw(), encoding="utf-8")
