"""The compiled kernels (`_core`): imported by `backends/native.py` only."""
