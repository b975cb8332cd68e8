"""A pytest plugin: tests run with an extension whose AVX-512 kernels are emulated, and say so.

It takes the place of the installed extension, however that was installed. See `run` beside it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

CORE = "heomdask._native._core"


class Stand:
    """Finds the extension at one path only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path) if name == CORE else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--emulated", type=Path, required=True, help="the extension to be loaded")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--emulated").resolve()
    sys.meta_path.insert(0, Stand(path))
    core = importlib.import_module(CORE)
    if core.__file__ != str(path) or not dict(core.instruction_sets())["avx512"]:
        raise pytest.UsageError(f"{core.__file__} has no emulated AVX-512 kernels that run here")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_sep("=", "AVX-512 was emulated: no such instruction was executed")
    for outcome in ("passed", "failed", "error", "skipped"):
        reports = terminalreporter.getreports(outcome)
        named = sum("avx512" in report.nodeid.lower() for report in reports)
        terminalreporter.write_line(f"{outcome}, of tests that name avx512: {named}")
