"""The kernels' own source compiled by g++ and run on the host, each thread of a block a fiber.

It shows wrong results, races, overruns and barriers that diverge. It does not show what the weak
order of memory between blocks allows, nor anything about speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-g", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
CHECKS = {
    "": ((), ()),
    "memory": (
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
        ("-DCHECK_MEMORY",),
    ),
    "races": (("-fsanitize=thread",), ("-DCHECK_RACES",)),
}
_PARAMETER = re.compile(r"(?P<const>const )?(?P<type>\w+) (?P<star>\*)?(?P<name>\w+)")


@dataclass(frozen=True)
class Parameter:
    """One argument of a kernel, as its source declares it."""

    name: str
    type: str
    pointer: bool
    const: bool


def signatures(source: str) -> dict[str, tuple[Parameter, ...]]:
    """Kernel name -> parameters, from the text."""
    found = {}
    for name, listed in re.findall(r"^HD_KERNEL void (\w+)\(([^)]*)\)", source, re.MULTILINE):
        parameters = []
        for text in listed.split(","):
            match = _PARAMETER.fullmatch(" ".join(text.split()))
            assert match is not None, f"{name}: cannot read {text!r}"
            parameters.append(
                Parameter(match["name"], match["type"], bool(match["star"]), bool(match["const"]))
            )
        found[name] = tuple(parameters)
    return found


class Library:
    """The kernels of one source with one set of macros."""

    def __init__(self, path: Path, kernels: dict[str, tuple[Parameter, ...]]) -> None:
        self.signatures = kernels
        self._library = ctypes.CDLL(str(path))
        self._library.fiber_launch.restype = ctypes.c_char_p

    def launch(
        self, name: str, arguments: list[Any], blocks: int, threads: int, order: int = 0,
        first_block: int = 0,
    ) -> None:  # fmt: skip
        """Run blocks of a kernel; the arguments are ctypes values."""
        places = [ctypes.cast(ctypes.pointer(a), ctypes.c_void_p) for a in arguments]
        problem = self._library.fiber_launch(
            ctypes.cast(getattr(self._library, f"run_{name}"), ctypes.c_void_p),
            (ctypes.c_void_p * len(places))(*places), ctypes.c_longlong(first_block),
            ctypes.c_longlong(blocks), ctypes.c_longlong(threads), ctypes.c_uint(order),
        )  # fmt: skip
        if problem:
            raise RuntimeError(f"{name}: {problem.decode()}")


class Compiler:
    """g++ with or without a sanitizer; what it has made is kept in a folder.

    `edit` changes the source before it is compiled: a fault that must be found.
    """

    def __init__(
        self, folder: Path, check: str = "", edit: Callable[[str], str] = lambda text: text
    ) -> None:
        self.folder = folder
        self.check = check
        self.edit = edit
        self._kept: dict[str, Library] = {}

    def build(self, source: str, macros: tuple[str, ...]) -> Library:
        """A library; `macros` are options ``-DNAME=value``."""
        source = self.edit(source)
        key = hashlib.sha256("\n".join((source, *macros, self.check)).encode()).hexdigest()[:20]
        if key not in self._kept:
            kernels = signatures(source)
            made = self.folder / f"{key}.so"
            if not made.exists():
                calls = "".join(_trampoline(name, given) for name, given in kernels.items())
                text = self.folder / f"{key}-{os.getpid()}.cpp"  # another may make the same
                text.write_text(source + calls, encoding="utf-8")
                self._compile(text, macros, made)
            self._kept[key] = Library(made, kernels)
        return self._kept[key]

    def _compile(self, text: Path, macros: tuple[str, ...], made: Path) -> None:
        instrumented, _ = CHECKS[self.check]
        part, own = text.with_suffix(".part"), text.with_suffix(".o")
        self._run(*instrumented, *macros, f"-I{HERE}", "-c", str(text), "-o", str(own))
        self._run(*instrumented, "-shared", str(own), str(self._fibers()), "-o", str(part))
        part.replace(made)

    def _fibers(self) -> Path:
        """The scheduler, never instrumented."""
        made = self.folder / f"fibers-{self.check}.o"
        if not made.exists():
            _, told = CHECKS[self.check]
            part = self.folder / f"fibers-{os.getpid()}.part"
            self._run(*told, "-c", str(HERE / "fibers.cpp"), "-o", str(part))
            part.replace(made)
        return made

    def _run(self, *options: str) -> None:
        """g++, without the sanitizer that this process may have been started with."""
        variables = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        result = subprocess.run(
            ["g++", *FLAGS, *options], capture_output=True, text=True, check=False, env=variables
        )
        if result.returncode != 0:
            raise RuntimeError(f"g++ {' '.join(options)}\n{result.stderr}")


def _trampoline(name: str, parameters: tuple[Parameter, ...]) -> str:
    """A function that takes its arguments as a launch does, by their addresses."""
    types = [f"{'const ' * p.const}{p.type} {'*' * p.pointer}".strip() for p in parameters]
    given = ", ".join(f"*({t} *)a[{k}]" for k, t in enumerate(types))
    return f'\nextern "C" void run_{name}(void **a) {{ {name}({given}); }}\n'
