"""NVRTC as CuPy calls it, with CuPy's own options, for a card that need not be there.

It takes CuPy's private `_NVRTCProgram`, since what CuPy offers asks the card for its architecture.
Run as a program it writes `ptxas_baseline.json` anew.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from heomdask._cuda.device import OPTIONS, Macros, source

ARCHITECTURES = (80, 90, 100, 120)
BASELINE = Path(__file__).with_name("ptxas_baseline.json")
_PROPERTIES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def numbers(real: str, is_complex: int) -> Macros:
    return ("HD_REAL", real), ("HD_COMPLEX", is_complex)


def variant(
    levels: int,
    is_complex: int,
    real: str = "double",
    *,
    mixes: int = 1,
    named: int = 0,
    wide: int = 0,
) -> Macros:
    return (
        *numbers(real, is_complex), ("HD_LEVELS", levels), ("HD_MIXES", mixes),
        ("HD_NAMED", named), ("HD_WIDE_SUM", wide),
    )  # fmt: skip


VARIANTS: dict[str, tuple[str, Macros]] = {
    **{
        f"apply {f} d={d}": ("apply", variant(d, c))
        for d in (2, 7, 16, 32)
        for c, f in enumerate(("real", "complex"))
    },
    "apply real d=7 single": ("apply", variant(7, 0, "float")),
    "apply complex d=7 single": ("apply", variant(7, 1, "float")),
    "apply real d=7 single, wide sum": ("apply", variant(7, 0, "float", wide=1)),
    "apply real d=7 diagonal": ("apply", variant(7, 0, mixes=0)),
    "apply complex d=2 named": ("apply", variant(2, 1, named=1)),
    **{
        f"vectors {'complex' * c or 'real'} {real}": ("vectors", numbers(real, c))
        for c, real in itertools.product((0, 1), ("float", "double"))
    },
}


@dataclass(frozen=True)
class Used:
    """What ptxas gave a kernel."""

    registers: int
    spilled: int  # bytes of spills and of the stack
    shared: int  # bytes


def compiled(file: str, macros: Macros, architecture: int, method: str) -> tuple[bytes, str]:
    """The product ("cubin" or "ptx") and the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from cupy._core import core
        from cupy.cuda import compiler

    kind = "sm" if method == "cubin" else "compute"
    options = (
        *core.assemble_cupy_compiler_options(OPTIONS),
        *(f"-D{name}={value}" for name, value in macros),
        f"-arch={kind}_{architecture}", "--device-as-default-execution-space",
        *(("--ptxas-options=-v",) if method == "cubin" else ()),
    )  # fmt: skip
    log = io.StringIO()
    program = compiler._NVRTCProgram(
        source(file), f"{file}.cu", (), (), name_expressions=None, method=method
    )
    product, _ = program.compile(options, log)
    return product, log.getvalue()


def used(log: str) -> dict[str, Used]:
    """Kernel name -> what it uses, from the log of ptxas."""
    found = {}
    for match in _PROPERTIES.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        spilled = sum(int(match[key]) for key in ("stack", "stores", "loads"))
        found[match["name"]] = Used(
            int(match["registers"]), spilled, int(shared[1]) if shared else 0
        )
    return found


def parameter_sizes(ptx: str) -> dict[str, list[int]]:
    """Kernel name -> bytes of each parameter."""
    sizes = {"8": 1, "16": 2, "32": 4, "64": 8}
    found = {}
    for name, listed in re.findall(r"\.entry (\w+)\(([^)]*)\)", ptx):
        found[name] = [sizes[bits] for bits in re.findall(r"\.param \.[usbf](\d+)", listed)]
    return found


def measure(name: str, architecture: int) -> tuple[dict[str, Used], str]:
    """What ptxas gives the kernels of a variant, and the log."""
    file, macros = VARIANTS[name]
    _, log = compiled(file, macros, architecture, "cubin")
    return used(log), log


def key(name: str, architecture: int, kernel: str) -> str:
    return f"sm_{architecture} {name}: {kernel}"


if __name__ == "__main__":
    table = {
        key(name, architecture, kernel): dataclasses.astuple(found)
        for name, architecture in itertools.product(VARIANTS, ARCHITECTURES)
        for kernel, found in measure(name, architecture)[0].items()
    }
    lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(table.items())]
    BASELINE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
