"""Why CuPy cannot run, one sentence for each cause: real CuPy with drivers that are made up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpuless.tools import need

from heomdask._cuda import probe

HERE = Path(__file__).parent
ASK = """
import sys
from heomdask.backends import registry
from heomdask.errors import BackendUnavailable
assert "cupy" not in sys.modules
{before}
try:
    registry.get("cupy")
except BackendUnavailable as error:
    assert dict(registry.available())["cupy"] == str(error)
    print(error)
"""


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library in place of the driver."""
    need("g++", "cupy")
    folder = tmp_path_factory.mktemp("stub")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", HERE / "stub_libcuda.c",
         "-o", folder / "libcuda.so.1"],
        check=True,
    )  # fmt: skip
    return folder


def sentence(before: str = "", **variables: str) -> str:
    """What a fresh process says when it is asked for the backend."""
    result = subprocess.run(
        [sys.executable, "-c", ASK.format(before=before)], capture_output=True, text=True,
        env={**os.environ, **variables}, cwd=HERE.parents[1], timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("The backend 'cupy' cannot run here: ")
    assert lines[0].endswith(".")
    return lines[0]


def test_without_cupy() -> None:
    text = sentence("sys.modules['cupy'] = None")
    assert "CuPy is not installed; pip install 'heomdask[cuda13]'" in text


def test_cupy_that_is_broken(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('libfoo.so: no such file')\n")
    text = sentence(f"sys.path.insert(0, {str(tmp_path)!r})")
    assert "CuPy is installed but cannot be imported (libfoo.so: no such file); pip" in text


def test_without_a_driver() -> None:
    need("cupy")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a driver here")
    text = sentence()
    assert "this machine has no NVIDIA driver (no libcuda.so.1); install one for CUDA 13." in text
    assert text.endswith("or use backend='native' where there is no GPU.")


@pytest.mark.parametrize(
    ("code", "version", "cause", "remedy"),
    [
        (35, 12040, "the NVIDIA driver supports CUDA 12.4 but CuPy ", "update the driver"),
        (100, 13000, "the NVIDIA driver is loaded but no GPU is visible", "CUDA_VISIBLE_DEVICES"),
        (34, 13000, "libcuda.so.1 is the toolkit's stub", "out of LD_LIBRARY_PATH"),
        (999, 13000, "the CUDA runtime fails (cudaErrorUnknown", "nvidia-smi"),
    ],
)
def test_driver_that_is_no_use(
    stub: Path, code: int, version: int, cause: str, remedy: str
) -> None:
    text = sentence(LD_LIBRARY_PATH=str(stub), STUB_CODE=str(code), STUB_VERSION=str(version))
    assert cause in text
    assert remedy in text


class RuntimeFails(RuntimeError):
    status = 0


def a_cupy(**changes: Any) -> Any:
    """A CuPy with one card and all it needs, but for the changes."""
    names = {
        "is_hip": False, "CUDARuntimeError": RuntimeFails, "getDeviceCount": lambda: 1,
        "driverGetVersion": lambda: 13000, "runtimeGetVersion": lambda: 13020,
        "getVersion": lambda: (13, 0), **changes,
    }  # fmt: skip
    parts = SimpleNamespace(**names)
    return SimpleNamespace(__version__="14", cuda=SimpleNamespace(runtime=parts, nvrtc=parts))


def no_nvrtc() -> None:
    raise RuntimeError('Failure finding "libnvrtc.so.13"\nand more')


def test_a_cupy_with_all_it_needs() -> None:
    assert probe.cause(a_cupy()) is None


@pytest.mark.parametrize(
    ("changes", "cause", "remedy"),
    [
        ({"is_hip": True}, "ROCm", "heomdask[cuda13]"),
        ({"getDeviceCount": lambda: 0}, "no GPU is visible", "CUDA_VISIBLE_DEVICES"),
        ({"getVersion": no_nvrtc}, '(Failure finding "libnvrtc.so.13")', "heomdask[cuda13]"),
    ],
)
def test_a_cupy_that_lacks_something(changes: Any, cause: str, remedy: str) -> None:
    found = probe.cause(a_cupy(**changes))
    assert found is not None
    assert cause in found[0]
    assert remedy in found[1]
