"""The public names: added on purpose, never lost by accident."""

from __future__ import annotations

import heomdask as hd

PUBLIC = {
    # problems
    "Problem", "Coupling", "Drive", "Samples", "counter_term",
    "DrudeLorentz", "UnderdampedBrownian", "Ohmic", "SpectralDensity", "CorrelationFunction",
    "Exponents",
    # their hierarchies
    "Pade", "Matsubara", "AAA", "ESPRIT", "Depth", "ModeLimits", "Weighted",
    "advise", "converge",
    # runs
    "evolve", "steady_state", "run_batch", "prepare", "as_linear_operator", "interaction_energy",
    "Solution", "SteadyState", "Outcome",
    # sweeps
    "Sweep", "StandardError", "SerialRunner", "Table", "axis", "mean", "open",
    # what may go wrong
    "HeomdaskError", "InputError", "TooLarge", "BackendUnavailable", "StoreError", "SolveFailed",
    "HeomdaskWarning",
    "units", "__version__",
}  # fmt: skip


def test_public_names_are_pinned() -> None:
    assert set(hd.__all__) == PUBLIC


def test_every_public_name_exists_and_is_documented() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(hd, name).__doc__, f"{name} has no docstring"
    assert set(dir(hd)) >= PUBLIC


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(hd, "no_such_name")
