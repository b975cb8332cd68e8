"""The compiled kernels (`_core`): imported by `backends/native.py` only."""

import importlib

from heomdask._native.openmp import loading

with loading():
    importlib.import_module("heomdask._native._core")
