"""What the loops of the wide kernels consist of: figures that no other load on a machine touches.

An inner loop counts if it does packed arithmetic, or any in a kernel; run with -s to see how many.
"""

from __future__ import annotations

import re

import pytest
from disassembly import Function, Instruction, functions

ARITHMETIC = re.compile(
    r"v?(?P<what>add|sub|mul|div|max|min|sqrt|fn?m(?:add|sub)\d+)(?P<kind>[ps])[sd]$"
)
WIDE = ("avx2", "avx512")
# Loops over single numbers, by what they are for: preparations, once for all ADOs, and elements of
# superoperators that are neither in their own place nor in the transposed one.
SCALAR = re.compile(r"scatter|single_many|single_rows|four<|prepare<|act<")
# Called in a loop over the terms of an ADO, each call some hundred operations: mangled names.
WHOLE = re.compile(r"<_ZN12_GLOBAL__N_1(3act|8products|15add_transposed)I")


def kernels(isa: str) -> list[Function]:
    return [f for f in functions() if f.source == f"kernels_{isa}.cpp"]


def arithmetic(loop: tuple[Instruction, ...], kind: str) -> list[str]:
    matches = (ARITHMETIC.match(i.operation) for i in loop)
    return [m["what"] for m in matches if m and m["kind"] == kind]


@pytest.mark.parametrize("isa", WIDE)
def test_inner_loops_are_packed_fused_and_call_nothing(isa: str) -> None:
    packed = scalar = fused = loops = 0
    for function in kernels(isa):
        for loop in function.inner_loops():
            wide, narrow = arithmetic(loop, "p"), arithmetic(loop, "s")
            if not wide:
                assert not narrow or SCALAR.search(function.name), function.name
                continue
            loops += 1
            packed += len(wide)
            scalar += 0 if SCALAR.search(function.name) else len(narrow)
            fused += sum(what.startswith("f") for what in wide)
            called = [i.operands for i in loop if i.operation.startswith("call")]
            # through a pointer: the epilogue of a whole chunk
            assert all(c.startswith("*") or WHOLE.search(c) for c in called), called
    print(
        f"{isa}: {loops} loops, {packed} packed operations ({fused / packed:.1%} fused), {scalar}"
    )
    assert loops > 500
    assert scalar == 0
    assert fused > 0.9 * packed


@pytest.mark.parametrize(("isa", "register"), [("avx2", "%ymm"), ("avx512", "%zmm")])
def test_batches_use_the_whole_register(isa: str, register: str) -> None:
    lanes = {"avx2": ("F64x4", "F32x8"), "avx512": ("F64x8", "F32x16")}[isa]
    images = [f for f in kernels(isa) if "image" in f.name and any(n in f.name for n in lanes)]
    assert len(images) > 10
    for function in images:
        for loop in function.inner_loops():
            for i in loop:
                if (m := ARITHMETIC.match(i.operation)) and m["kind"] == "p":
                    assert register in i.operands, f"{function.name}: {i}"


def test_wide_instructions_are_in_the_files_for_them_only() -> None:
    """A weak symbol of such a file might replace one that runs on every processor."""
    files = {f"kernels_{isa}.cpp" for isa in WIDE}
    found = functions()
    leaked = {f.name for f in found if f.source not in files and any(i.is_wide for i in f.body)}
    print(f"{len(found)} functions, {sum(not f.source for f in found)} of them shared")
    assert not leaked


def test_the_generic_kernels_are_for_every_processor() -> None:
    generic = kernels("generic")
    assert len(generic) > 100
    assert not any(i.is_wide for f in generic for i in f.body)
