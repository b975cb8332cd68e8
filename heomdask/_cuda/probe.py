"""Whether CuPy can run here and, if not, why: one sentence for each cause.

Takes: CuPy as it is installed.
Gives: `load`, which returns CuPy, or raises `BackendUnavailable` with the cause and a remedy.
Next file: `device.py`.

That CuPy imports proves nothing: it does so without a driver. Nothing here makes a context.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from heomdask.brief import install
from heomdask.errors import BackendUnavailable

_OLD_DRIVER, _STUB, _NO_DEVICE = 35, 34, 100  # of the CUDA runtime
_EXTRAS = f"{install('cuda13')}, or cuda12, as your driver has it"


def load() -> Any:
    """CuPy, with a driver, a card and a compiler that it can use."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is optional to CuPy and not used here
            cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise BackendUnavailable.because("cupy", *_not_imported(error)) from error
    found = cause(cupy)
    if found is not None:
        raise BackendUnavailable.because("cupy", *found)
    return cupy


def cause(cupy: Any) -> tuple[str, str] | None:
    """Why this CuPy cannot run here, and what to do; None if it can."""
    runtime = cupy.cuda.runtime
    built = _version(runtime.runtimeGetVersion())
    if runtime.is_hip:
        return "this CuPy is built for AMD's ROCm", _EXTRAS
    if runtime.driverGetVersion() == 0:
        return (
            "this machine has no NVIDIA driver (no libcuda.so.1)",
            f"install one for CUDA {built}, or use backend='native' where there is no GPU",
        )
    try:
        devices = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        needs = f"CuPy {cupy.__version__} is built for CUDA {built}"
        return _no_devices(error, _version(runtime.driverGetVersion()), needs)
    if devices == 0:
        return _NOTHING_VISIBLE
    try:
        cupy.cuda.nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as error:
        return (
            f"NVRTC, CUDA's compiler at run time, cannot be loaded ({_first_line(error)})",
            _EXTRAS,
        )
    return None


_NOTHING_VISIBLE = (
    "the NVIDIA driver is loaded but no GPU is visible",
    "look at CUDA_VISIBLE_DEVICES, at nvidia-smi, and at what the container was given",
)


def _not_imported(error: ImportError) -> tuple[str, str]:
    if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
        return "CuPy is not installed", _EXTRAS
    return f"CuPy is installed but cannot be imported ({_first_line(error)})", _EXTRAS


def _no_devices(error: Any, driver: str, needs: str) -> tuple[str, str]:
    if error.status == _OLD_DRIVER:
        return (
            f"the NVIDIA driver supports CUDA {driver} but {needs}",
            "update the driver, or install CuPy for its CUDA",
        )
    if error.status == _STUB:
        return (
            "libcuda.so.1 is the toolkit's stub to link with, not the driver",
            "take the folder 'stubs' out of LD_LIBRARY_PATH",
        )
    if error.status == _NO_DEVICE:
        return _NOTHING_VISIBLE
    return f"the CUDA runtime fails ({_first_line(error)})", "look at what nvidia-smi says"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].strip().rstrip(".") if str(error) else type(error).__name__
