"""The compiled extension, function by function, as objdump shows it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from heomdask._native import _core

BINARY = str(_core.__file__)
_SYMBOL = re.compile(r"([0-9a-f]+) (.{7}) \S+\s+[0-9a-f]+\s+(?:\.hidden )?(.*)")
_START = re.compile(r"([0-9a-f]+) <.*>:$")
_INSTRUCTION = re.compile(r"\s+([0-9a-f]+):\s+(\S+)\s*(.*)")
_JUMP = re.compile(r"([0-9a-f]+)")


@dataclass(frozen=True)
class Instruction:
    address: int
    operation: str
    operands: str

    @property
    def is_wide(self) -> bool:
        """Whether a processor without AVX cannot run it."""
        wide_register = re.search(r"%[yz]mm|%k[0-7]", self.operands)
        return bool(wide_register or re.match(r"v(?!er[rw])[a-z]", self.operation))


@dataclass(frozen=True)
class Function:
    """A function, and the source file of which it is a local symbol ("" of a shared one)."""

    name: str
    source: str
    body: tuple[Instruction, ...]

    def inner_loops(self) -> list[tuple[Instruction, ...]]:
        """What lies between a jump back and its target, and holds no other such jump."""
        back = []
        for at in self.body:
            target = _JUMP.match(at.operands) if at.operation.startswith("j") else None
            if target and self.body[0].address <= int(target[1], 16) <= at.address:
                back.append((int(target[1], 16), at.address))
        inner = [
            (low, high)
            for low, high in back
            if not any((a, b) != (low, high) and low <= a and b <= high for a, b in back)
        ]
        return [tuple(i for i in self.body if low <= i.address <= high) for low, high in inner]


def functions() -> list[Function]:
    """All functions of the extension; skips where they cannot be told."""
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump")
    found = _functions()
    if not any(f.source.startswith("kernels_avx") for f in found):
        pytest.skip("the extension has no symbols, or is not for x86-64")
    return found


def _output(*options: str) -> list[str]:
    command = ["objdump", *options, BINARY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@functools.cache
def _functions() -> list[Function]:
    source, names = "", {}
    for line in _output("-t", "-C"):
        match = _SYMBOL.match(line)
        if match and "df" in match[2]:
            source = match[3]
        elif match and match[2].endswith("F"):
            local = match[2].startswith("l")
            names[int(match[1], 16)] = (match[3], source if local else "")
    bodies: dict[int, list[Instruction]] = {}
    own: list[Instruction] = []
    for line in _output("-d", "-w", "--no-show-raw-insn"):
        if match := _START.match(line):
            own = bodies.setdefault(int(match[1], 16), [])
        elif match := _INSTRUCTION.match(line):
            own.append(Instruction(int(match[1], 16), match[2], match[3]))
    return [Function(*names.get(at, ("", "")), tuple(body)) for at, body in bodies.items() if body]
