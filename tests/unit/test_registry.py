"""The registry: names, reasons and the choice."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from collections.abc import Callable

import numpy as np
import pytest

import heomdask._native
from heomdask.backends import registry
from heomdask.backends.numpy_ import NumpyBackend
from heomdask.backends.traits import BackendInfo
from heomdask.errors import BackendUnavailable, HeomdaskWarning, InputError
from heomdask.testing.random_plans import random_plan

Hide = Callable[[pytest.MonkeyPatch], None]


def hide_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where the compiled module is missing."""
    monkeypatch.delitem(sys.modules, "heomdask.backends.native", raising=False)
    monkeypatch.delattr(heomdask._native, "_core", raising=False)
    monkeypatch.setitem(sys.modules, "heomdask._native._core", None)  # its import then raises


def hide_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where MKL is not installed."""
    monkeypatch.delitem(sys.modules, "heomdask.backends.mkl", raising=False)
    monkeypatch.setattr(sys, "prefix", "/nowhere")
    monkeypatch.setattr(importlib.metadata, "files", lambda name: None)


def hide_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where CuPy is not installed."""
    monkeypatch.setitem(sys.modules, "cupy", None)  # its import then raises


def test_available_names_every_backend_once_with_facts_or_a_sentence() -> None:
    found = registry.available()
    assert [name for name, _ in found] == ["native", "numpy", "mkl", "cupy"]
    facts = dict(found)
    numpy_info = facts["numpy"]
    assert isinstance(numpy_info, BackendInfo)
    assert numpy_info.name == "numpy"
    for name, found_here in found:
        if isinstance(found_here, str):
            assert f"The backend '{name}' cannot run here: " in found_here
            assert found_here.count(".\n") == 0
            assert found_here.endswith(".")


def test_get_by_name() -> None:
    assert isinstance(registry.get("numpy"), NumpyBackend)


@pytest.mark.parametrize(
    ("name", "hide", "cause", "remedy"),
    [
        ("native", hide_the_extension, "its compiled extension cannot be loaded", "C++"),
        ("mkl", hide_mkl, "libmkl_rt was not found", "pip install 'heomdask[mkl]'"),
        ("cupy", hide_cupy, "CuPy is not installed", "pip install 'heomdask[cuda13]'"),
    ],
)
def test_missing_backend_gives_reason_and_remedy(
    name: str, hide: Hide, cause: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch)
    with pytest.raises(BackendUnavailable) as caught:
        registry.get(name)
    assert cause in str(caught.value)
    assert remedy in str(caught.value)
    assert dict(registry.available())[name] == str(caught.value)


def test_auto_never_fails_without_the_extension(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hide_the_extension(monkeypatch)
    hide_mkl(monkeypatch)
    plan = random_plan(np.random.default_rng(1), d=2)
    registry._warn_of_slowness.cache_clear()
    with (
        caplog.at_level(logging.INFO, logger="heomdask.backends.registry"),
        pytest.warns(HeomdaskWarning, match="slower than it could be.*extension.*heomdask.mkl"),
    ):
        assert registry.get("auto", plan=plan).info.name == "numpy"
    assert registry.get("auto", plan=plan).info.name == "numpy"  # said once
    assert "'auto' is 'numpy'" in caplog.text


def test_auto_takes_mkl_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(
        "heomdask.backends.mkl", reason="MKL is not installed", exc_type=ImportError
    )
    hide_the_extension(monkeypatch)
    registry._warn_of_slowness.cache_clear()
    plan = random_plan(np.random.default_rng(1), d=2, depth=5)
    with pytest.warns(HeomdaskWarning, match="slower than it could be.*extension"):
        assert registry.get("auto", plan=plan).info.name == "mkl"


def test_auto_imports_nothing_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "heomdask.backends.mkl", raising=False)
    plan = random_plan(np.random.default_rng(1), d=2)
    assert registry.get("auto", plan=plan).info.name == "native"
    assert "heomdask.backends.mkl" not in sys.modules


def test_choice_is_the_smallest_prediction() -> None:
    for d, depth in [(1, 0), (2, 3), (5, 4)]:
        plan = random_plan(np.random.default_rng(d), d=d, depth=depth)
        chosen = registry.choose(plan)
        runs = [name for name, found in registry.available() if isinstance(found, BackendInfo)]
        own = registry.predicted_seconds(chosen.info.name, plan, chosen.info.threads)
        for name in runs:
            threads = registry.get(name).info.threads
            assert own <= registry.predicted_seconds(name, plan, threads)


def test_choice_does_not_depend_on_the_company() -> None:
    plan = random_plan(np.random.default_rng(3), d=2, members=8)
    assert registry.multiplications(plan) == registry.multiplications(plan.member(5))


@pytest.mark.parametrize("name", ["cuda", "", "Native"])
def test_unknown_name_is_an_input_error(name: str) -> None:
    with pytest.raises(InputError, match="`backend` must be one of 'auto', 'native', 'numpy'"):
        registry.get(name)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_threads_must_be_a_whole_number(threads: object) -> None:
    with pytest.raises(InputError, match="`threads` must be a whole number of at least 1"):
        registry.get("numpy", threads=threads)  # type: ignore[arg-type]  # the wrong type is the test
