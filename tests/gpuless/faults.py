"""Faults put into the kernels, and the tools that must find each of them.

Tools: "result", the bits are others than without the fault, in one of three orders of threads, or
the emulator stops; "memory", AddressSanitizer and UBSan; "races", ThreadSanitizer, to which every
thread of a block is a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from heomdask.testing.random_plans import Case

# Two blocks, the last one not full; idle threads; products from both sides; reductions.
CASES = (
    Case(seed=33, d=3, members=2, form="real", modes=2, depth=4),
    Case(seed=34, d=3, members=2, form="complex", modes=2, depth=4),
)


@dataclass(frozen=True)
class Fault:
    """Text of the kernels and what stands there in its place."""

    name: str
    text: str
    instead: str
    owed_by: tuple[str, ...]

    def put_into(self, source: str) -> str:
        """The source with the fault, if it is the file of this fault."""
        return source.replace(self.text, self.instead, 1)


_AFTER_LOAD = """            HD_BARRIER();
            turn = 1 - turn;
            if"""
_BETWEEN = """                HD_BARRIER();
                turn = 1 - turn;
                w = v;"""
_LOOP = "    for (hd_long k = 0; k < n_terms; ++k) {\n"

FAULTS = (
    Fault(
        "no barrier after the load", _AFTER_LOAD, _AFTER_LOAD.replace("HD_BARRIER();", ""),
        ("result", "races"),
    ),
    Fault(
        "no barrier between the products", _BETWEEN, _BETWEEN.replace("HD_BARRIER();", ""),
        ("result", "races"),
    ),
    Fault(
        "one tile for all terms", _AFTER_LOAD, _AFTER_LOAD.replace("turn = 1 - turn;", ""),
        ("result", "races"),
    ),
    Fault(  # what is read is thrown away: no result ever shows it
        "a late read", "            continue;\n        }\n#endif",
        "            (void)*(volatile HD_REAL *)(tiles_of_block + turn * HD_TILE + corner);\n"
        "            continue;\n        }\n#endif",
        ("races",),
    ),
    Fault(
        "no barrier in a reduction", "        HD_BARRIER();\n        if (leaf < half)",
        "        if (leaf < half)", ("result", "races"),
    ),
    Fault(
        "threads that leave before a barrier", _LOOP, f"    if (!here) return;\n{_LOOP}",
        ("result",),
    ),
    Fault("shared memory that is too small", "2 * HD_TILE);", "HD_TILE);", ("memory",)),
    Fault("no guard at the end", "&& n < stop &&", "&& n <= stop &&", ("result", "memory")),
    Fault(
        "an element that is not set", "w[e * lanes] = turned", "if (e) w[e * lanes] = turned",
        ("result",),
    ),
    Fault(
        "two blocks for one row", "HD_BLOCK / tiles * ados +", "HD_BLOCK / tiles * (ados - 1) +",
        ("result", "races"),
    ),
    Fault(
        "an update in place", "const Member s = {x, table", "const Member s = {out, table",
        ("result", "races"),
    ),
    Fault(
        "places of 32 bits", "at = (n * HD_ELEMENTS + e) * members + m;",
        "at = ((int)n * HD_ELEMENTS + (int)e) * (int)members + (int)m;", ("memory",),
    ),
)  # fmt: skip
BY_NAME = {fault.name: fault for fault in FAULTS}
