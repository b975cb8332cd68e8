"""numpy, the definition, passes the suite that it defines."""

from __future__ import annotations

from heomdask.backends.numpy_ import NumpyBackend
from heomdask.testing.conformance import BackendConformance


class TestNumpy(BackendConformance):
    def backend(self) -> NumpyBackend:
        return NumpyBackend()
