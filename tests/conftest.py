"""For all tests: one BLAS thread, fixed seeds, and the options that choose what runs."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before numpy is imported
os.environ.setdefault("MPLBACKEND", "agg")

import functools
import importlib.util
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

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


@functools.cache
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


S3_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""  # ends with the process that started it


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """The URL of a bucket on a server of this session; fsspec is told where that is."""
    pytest.importorskip("s3fs", reason="needs s3fs, of the extra s3")
    pytest.importorskip("moto.server", reason="needs moto and flask, of the extra test")
    import fsspec

    process = subprocess.Popen(
        [sys.executable, "-c", S3_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = next(line.split()[1] for line in process.stdout if line.startswith("port"))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, "testing")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            settings = {"endpoint_url": f"http://127.0.0.1:{port}"}
            patch.setitem(fsspec.config.conf, "s3", settings)
            fsspec.filesystem("s3").mkdir("stores")
            yield "s3://stores"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest) -> str:
    """The path or URL of a store that is not there yet, of every kind in turn."""
    if request.param == "local":
        folder: Path = request.getfixturevalue("tmp_path")
        return str(folder / "s.zarr")
    name = f"{uuid.uuid4().hex}.zarr"
    if request.param == "memory":
        return f"memory://stores/{name}"
    return f"{request.getfixturevalue('s3_bucket')}/{name}"
