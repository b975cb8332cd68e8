"""NVRTC compiles every variant for four generations of cards; registers, spills, signatures."""

from __future__ import annotations

import dataclasses
import json

import pytest
from gpuless import nvrtc
from gpuless.emulator import signatures
from gpuless.tools import need

from heomdask._cuda.device import source

MORE_REGISTERS = 8  # than the baseline has: what another release of the compiler may do
BYTES = {"hd_long": 8, "double": 8}


@pytest.mark.parametrize("name", nvrtc.VARIANTS)
def test_registers_and_spills_are_those_of_the_baseline(name: str) -> None:
    need("nvrtc")
    baseline = json.loads(nvrtc.BASELINE.read_text(encoding="utf-8"))
    kernels = set(signatures(source(nvrtc.VARIANTS[name][0])))
    for architecture in nvrtc.ARCHITECTURES:
        found, log = nvrtc.measure(name, architecture)
        assert set(found) == kernels
        assert "warning" not in log
        for kernel, used in found.items():
            known = nvrtc.Used(*baseline[nvrtc.key(name, architecture, kernel)])
            assert used.registers <= known.registers + MORE_REGISTERS, kernel
            assert dataclasses.replace(used, registers=0) == dataclasses.replace(known, registers=0)
            assert used.spilled == 0


@pytest.mark.parametrize(
    "name", ["apply real d=7", "apply complex d=7 single", "vectors real float"]
)
def test_parameters_are_as_wide_as_the_launches_make_them(name: str) -> None:
    """All of 8 bytes: the emulator's stand-in holds launches to the declared types."""
    need("nvrtc")
    file, macros = nvrtc.VARIANTS[name]
    ptx, _ = nvrtc.compiled(file, macros, 90, "ptx")
    declared = {
        kernel: [8 if p.pointer else BYTES[p.type] for p in parameters]
        for kernel, parameters in signatures(source(file)).items()
    }
    text = ptx if isinstance(ptx, str) else ptx.decode()
    assert nvrtc.parameter_sizes(text) == declared


def test_nothing_is_contracted_that_is_not_written_so() -> None:
    """A product and a sum stay two instructions, or a host would give other bits."""
    need("nvrtc")
    file, macros = nvrtc.VARIANTS["vectors complex double"]
    ptx, _ = nvrtc.compiled(file, macros, 90, "ptx")
    text = ptx if isinstance(ptx, str) else ptx.decode()
    assert "fma.rn.f64" in text
    assert "mul.rn.f64" in text  # explicit rounding: ptxas may not fuse it
    assert not any(f"{op}.f64" in text for op in ("mul", "add", "mad"))
