"""The GPU backend passes the suite: emulated, with CuPy played strictly; and on a card."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpuless.emulator import Compiler
from gpuless.strict import StrictCupy
from gpuless.tools import need

from heomdask.backends.cupy_ import CupyBackend
from heomdask.testing.conformance import BackendConformance


class TestCupyEmulated(BackendConformance):
    compiler: Compiler

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _compiler(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        need("g++")
        cls.compiler = Compiler(tmp_path_factory.mktemp("kernels"))

    @pytest.fixture(autouse=True)
    def _nothing_was_left_to_chance(self) -> Iterator[None]:
        self.made: list[StrictCupy] = []
        yield
        assert not [hazard for api in self.made for hazard in api.hazards]

    def backend(self) -> CupyBackend:
        self.made.append(StrictCupy(self.compiler))
        return CupyBackend(api=self.made[-1])


@pytest.mark.gpu
class TestCupy(BackendConformance):
    def backend(self) -> CupyBackend:
        return CupyBackend()
