"""Backends for the cases: `backend` runs a test on each; `native` names the one for deep runs."""

import pytest


@pytest.fixture(params=["native", "numpy"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)
