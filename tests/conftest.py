"""For all tests: one BLAS thread, fixed seeds, and the options that choose what runs."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before numpy is imported
os.environ.setdefault("MPLBACKEND", "agg")

import importlib.util
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "heomdask",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # a shared machine is no fault of a test
)
settings.load_profile("heomdask")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runslow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_slow = pytest.mark.skip(reason="slow; run with --runslow")
    skip_gpu = pytest.mark.skip(reason="needs a GPU")
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--runslow"):
            item.add_marker(skip_slow)
        if item.get_closest_marker("gpu") and not gpu_is_visible():
            item.add_marker(skip_gpu)


def gpu_is_visible() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    return bool(cupy.is_available())


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Libraries that draw from the global generators get the same numbers every time."""
    random.seed(20)
    np.random.seed(20)  # noqa: NPY002 - the legacy generator is what such libraries use
