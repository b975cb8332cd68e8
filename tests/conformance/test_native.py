"""The compiled backend passes the suite, in every layout and instruction set that runs here."""

from __future__ import annotations

from typing import Literal

import pytest

from heomdask._native import _core
from heomdask.backends.native import NativeBackend
from heomdask.testing.conformance import BackendConformance

RUNS = dict(_core.instruction_sets())


class NativeConformance(BackendConformance):
    layout: Literal["auto", "batch"] = "auto"
    isa: str | None = None
    threads = 1

    @pytest.fixture(autouse=True)
    def _only_where_it_runs(self) -> None:
        if self.isa is not None and not RUNS.get(self.isa, False):
            pytest.skip(f"this processor does not run {self.isa}")

    def backend(self) -> NativeBackend:
        return NativeBackend(threads=self.threads, isa=self.isa, layout=self.layout)

    def ensemble_backend(self) -> NativeBackend:
        return NativeBackend(threads=self.threads, isa=self.isa, layout="batch")


class TestNative(NativeConformance):
    pass


class TestNativeBatch(NativeConformance):
    layout = "batch"


class TestNativeThreads(NativeConformance):
    threads = 3


class TestNativeGeneric(NativeConformance):
    isa = "generic"


class TestNativeAvx2(NativeConformance):
    isa = "avx2"


class TestNativeAvx512(NativeConformance):
    isa = "avx512"
