"""Kernels hold no instruction that the dispatch has not asked the processor for.

Which feature an instruction belongs to, the assembler knows: it is given the disassembled kernels
again, with more and more features. An instruction is encoded for the first that will do.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest
from disassembly import functions

DISPATCH = Path(__file__).parents[2] / "heomdask/_native/src/dispatch.cpp"
LADDER = ("avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl")
NO_VECTORS = re.compile(r"j|call|ret|nop|data16|cs |xchg|lea")  # some do not assemble again
pytestmark = pytest.mark.skipif(shutil.which("as") is None, reason="needs the GNU assembler")


def asked(isa: str) -> set[str]:
    """What the dispatch asks for before it takes the kernels of an instruction set."""
    source = DISPATCH.read_text(encoding="utf-8")
    tests = dict(re.findall(r'isa == "(\w+)"\)\s*return ([^;]*);', source))
    text = tests.get(isa, "")
    others = re.findall(r'runs\("(\w+)"\)', text)
    return set(re.findall(r'supports\("(\w+)"\)', text)).union(*map(asked, others))


def refused(instructions: Collection[str], features: Collection[str]) -> list[str]:
    """Those that the assembler does not know for x86-64 with these features alone."""
    lines = sorted(instructions)
    done = subprocess.run(
        ["as", "--64", f"-march={'+'.join(['generic64', *features])}", "-o", "/dev/null", "-"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    numbers = re.findall(r"^[^:]*:(\d+): Error: ", done.stderr, re.MULTILINE)
    assert numbers or done.returncode == 0, done.stderr
    return [lines[int(number) - 1] for number in numbers]


def needed(instructions: Collection[str]) -> set[str]:
    """Features that the assembler needs for some of them; all are taken in the end."""
    rest, needs = refused(instructions, ()), set()
    for rung, feature in enumerate(LADDER, 1):
        left = refused(rest, LADDER[:rung])
        if len(left) < len(rest):
            needs.add(feature)
        rest = left
    assert not rest
    return needs


@functools.cache
def instructions(isa: str) -> frozenset[str]:
    """Every instruction of the kernels, but those that move the program counter."""
    every = [i for f in functions() if f.source == f"kernels_{isa}.cpp" for i in f.body]
    written = (f"{i.operation} {re.sub('[#<].*', '', i.operands)}".strip() for i in every)
    return frozenset(text for text in written if not NO_VECTORS.match(text))


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_kernels_keep_to_what_the_dispatch_asks_for(isa: str) -> None:
    found = instructions(isa)
    assert len(found) > 1000
    assert needed(found) <= asked(isa)


def test_the_assembler_tells_features_apart() -> None:
    assert needed(["addpd %xmm1, %xmm2"]) == set()
    assert needed(["vfmadd231pd %ymm1, %ymm2, %ymm3"]) == {"fma"}
    assert needed(["vfmadd231pd %ymm17, %ymm2, %ymm3"]) == {"avx512vl"}
    assert needed(["vandpd %zmm1, %zmm2, %zmm3", "vpaddd %zmm1, %zmm2, %zmm3"]) == {
        "avx512f", "avx512dq",
    }  # fmt: skip
    assert refused(["vpopcntd %zmm1, %zmm2"], LADDER)


def test_the_operating_system_is_asked_too() -> None:
    """A processor may have registers that the system does not save: `xgetbv` tells."""
    assert any(i.operation == "xgetbv" for f in functions() for i in f.body)
