"""Backends for the cases: `backend` runs a test on each; `native` names the one for deep runs."""

import pytest


@pytest.fixture(params=["native", "numpy", "mkl"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "mkl":
        pytest.importorskip(
            "heomdask.backends.mkl", reason="MKL is not installed", exc_type=ImportError
        )
    return str(request.param)
