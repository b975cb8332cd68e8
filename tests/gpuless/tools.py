"""Tools that some checks need: without one they are skipped with a reason, or, where the variable
HEOMDASK_REQUIRE names it (a list with commas), they fail."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil

import pytest


def need(*tools: str) -> None:
    """Skip or fail the test unless all of ``g++``, ``cupy``, ``nvrtc``, ``dask-cuda`` are here."""
    required = os.environ.get("HEOMDASK_REQUIRE", "").split(",")
    for tool in tools:
        if not _FOUND[tool]():
            reason = f"needs {tool}: {_BRINGS[tool]}"
            if tool in required:
                pytest.fail(f"{reason}; HEOMDASK_REQUIRE asks for it")
            pytest.skip(reason)


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


_FOUND = {
    "g++": lambda: shutil.which("g++") is not None and platform.machine() == "x86_64",
    "cupy": lambda: _installed("cupy-cuda13x"),
    "nvrtc": lambda: all(
        map(_installed, ("cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"))
    ),
    "dask-cuda": lambda: all(map(_installed, ("dask-cuda", "dask-jobqueue"))),
}
_BRINGS = {
    "g++": "the package of that name, on x86-64",
    "cupy": "pip install cupy-cuda13x",
    "nvrtc": "pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime",
    "dask-cuda": "pip install 'dask-cuda[cu13]' dask-jobqueue, in an environment of its own",
}
