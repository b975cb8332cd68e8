"""A report in words: tables of text, whatever they are printed with.

Takes: a `Report`.
Gives: `Table`s.
Next file: `roofline.py`, the report as a picture.
"""

from __future__ import annotations

from dataclasses import dataclass

from heomdask import memory
from heomdask.bench.construction import STAGES
from heomdask.bench.suite import Report
from heomdask.bench.timing import Spread


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; the first column is of words, all others are of numbers."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def tables(report: Report) -> list[Table]:
    """All tables that have rows."""
    every = [_machine(report), _kernels(report), _peers(report), _solves(report), _builds(report)]
    return [table for table in every if table.rows]


def caption(report: Report) -> str:
    """Where the figures were taken."""
    m = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in m.versions.items())
    return (
        f"{m.processor}, {m.cores} cores, instruction set {m.instruction_set}, {m.system}; "
        f"{versions}; load at the start {m.load:.1f}"
        + (": other work was running, figures of several threads mean nothing" * (m.load > 0.5))
    )


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def with_spread(spread: Spread, scale: float = 1.0) -> str:
    """The median, and how far the quartiles are from it, in percent."""
    off = max(spread.high - spread.median, spread.median - spread.low) / abs(spread.median)
    return f"{number(scale * spread.median)} ±{100 * off:.0f}%"


def _ratio(ratios: dict[int, Spread], threads: int) -> str:
    """How many times longer than ours; nothing where ours does not use so many threads."""
    return with_spread(ratios[threads]) if threads in ratios else ""


def _machine(report: Report) -> Table:
    rows = [
        [
            str(found.threads),
            with_spread(found.flops, 1e-9),
            with_spread(found.bandwidth, 1e-9),
            number(found.flops.median / found.bandwidth.median),
        ]
        for found in report.machine.limits
    ]
    headings = ["threads", "multiply-adds, GFLOP/s", "triad, GB/s", "they meet at, FLOP/B"]
    return Table("Limits of the machine", headings, rows)


def _kernels(report: Report) -> Table:
    rows = [
        [
            k.case, k.precision.replace("float", "f"), str(k.threads), f"{k.n_ado:,}",
            number(k.work.flops), number(k.work.nbytes), with_spread(k.nanoseconds),
            number(k.gflops.median), number(100 * k.peak_share.median),
            number(100 * k.bandwidth_share.median), with_spread(k.segment_nanoseconds),
            number(100 * k.segment_peak_share.median),
        ]
        for k in report.kernels
    ]  # fmt: skip
    headings = [
        "apply", "type", "threads", "ADOs", "FLOP", "bytes", "ns", "GFLOP/s", "% of peak",
        "% of triad", "segment, ns", "% of peak",
    ]  # fmt: skip
    return Table("Kernels, per ADO and member", headings, rows)


def _peers(report: Report) -> Table:
    threads = [found.threads for found in report.machine.limits]
    rows = [
        [p.case, p.name, with_spread(p.nanoseconds)] + [_ratio(p.ratios, n) for n in threads]
        for p in report.peers
    ]
    ours = [f"× ours on {n}" for n in threads]
    return Table("Peers, per ADO and member", ["apply", "peer", "ns", *ours], rows)


def _solves(report: Report) -> Table:
    threads = [found.threads for found in report.machine.limits]
    rows = [
        [s.name, setting.name, f"{setting.error:.1e}", with_spread(setting.seconds, 1e3)]
        + [_ratio(setting.ratios, n) for n in threads]
        for s in report.solves
        for setting in s.settings
    ]
    ours = [f"× ours on {n}" for n in threads]
    return Table("Whole solves", ["case", "by", "error", "ms", *ours], rows)


def _builds(report: Report) -> Table:
    rows = []
    for b in report.builds:
        stages = [with_spread(b.seconds[stage], 1e3) for stage in STAGES]
        rows.append([b.name, f"{b.n_ado:,}", *stages, memory.readable(b.nbytes)])
    headings = ["construction", "ADOs", *(f"{stage}, ms" for stage in STAGES), "compiled"]
    return Table("Construction, one thread", headings, rows)
