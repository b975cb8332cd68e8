"""One compiler for all tests of this folder: what it has made is kept while they run."""

from __future__ import annotations

import pytest
from gpuless.emulator import Compiler
from gpuless.tools import need


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    need("g++")
    return Compiler(tmp_path_factory.mktemp("kernels"))
