"""The MKL backend passes the suite; skipped where MKL is not installed."""

from __future__ import annotations

import pytest

from heomdask.testing.conformance import BackendConformance

mkl = pytest.importorskip(
    "heomdask.backends.mkl", reason="MKL is not installed", exc_type=ImportError
)


class TestMkl(BackendConformance):
    def backend(self):
        return mkl.MklBackend(threads=1)


class TestMklThreads(BackendConformance):
    @pytest.fixture(autouse=True)
    def _always_two(self, monkeypatch):
        monkeypatch.setattr(mkl, "THREAD_ELEMENTS", 1)

    def backend(self):
        return mkl.MklBackend(threads=2)


class TestMklDense(BackendConformance):
    """With dense blocks for systems of all sizes."""

    @pytest.fixture(autouse=True)
    def _for_every_size(self, monkeypatch):
        monkeypatch.setattr(mkl, "DENSE_FROM", 1)

    def backend(self):
        return mkl.MklBackend(threads=1)
