"""The machine: what it is, and its two limits, operations and bytes per second.

Takes: a number of threads.
Gives: `native`, the backend that is measured; `Machine`, a description, and the actions that reach
    its limits.
Next file: `peers.py`, what others make of the same problem.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from heomdask import topology
from heomdask.backends import registry
from heomdask.bench.timing import Action, Effort, Spread

if TYPE_CHECKING:
    from heomdask.backends.native import NativeBackend

LARGE = 384_000_000  # bytes of a triad: more than caches hold
_ROUNDS = 200_000  # of multiply-adds: a millisecond
_LEAST = 1_000_000  # bytes that one call of a triad goes through
_TRIAD_BYTES = 24  # of one number of each array


@dataclass(frozen=True)
class Limits:
    """At most, on so many threads: operations (in double precision) and bytes per second."""

    threads: int
    flops: Spread
    bandwidth: Spread


@dataclass(frozen=True)
class Machine:
    """Where figures were taken."""

    processor: str
    cores: int
    instruction_set: str
    system: str
    versions: dict[str, str]
    load: float
    limits: list[Limits]


def native(threads: int) -> NativeBackend:
    """The compiled kernels; `BackendUnavailable` where there are none."""
    return cast("NativeBackend", registry.get("native", threads=threads))


def peak(backend: NativeBackend, precision: str) -> tuple[Action, float]:
    """Multiply-adds on all threads of a backend; how many operations one call is."""
    flops = backend.multiply_adds(precision, 1) * _ROUNDS
    return Action(lambda: backend.multiply_adds(precision, _ROUNDS), backend.info.threads), flops


def triad(backend: NativeBackend, footprint: int) -> tuple[Action, float]:
    """A triad on three arrays of so many bytes together; how many bytes one call moves."""
    arrays = backend.triad_arrays(footprint // _TRIAD_BYTES)
    moved = _TRIAD_BYTES * len(arrays[0])
    repeats = max(1, _LEAST // moved)
    return Action(lambda: backend.triads(arrays, repeats), backend.info.threads), float(
        moved * repeats
    )


def limits(backend: NativeBackend, effort: Effort) -> Limits:
    """Both limits, out of the caches."""
    (adds, flops), (triads, moved) = peak(backend, "float64"), triad(backend, LARGE)
    seconds = effort.interleave({"adds": adds, "triads": triads})
    return Limits(
        backend.info.threads,
        Spread.of(flops / seconds["adds"]),
        Spread.of(moved / seconds["triads"]),
    )


def describe(found: list[Limits], isa: str) -> Machine:
    """The processor, as far as it says, and the versions that matter."""
    versions = {"python": platform.python_version()}
    for name in ("heomdask", "numpy", "scipy", "qutip", "mkl"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    settings = [f"{name}={value}" for name, value in os.environ.items() if name[:4] == "OMP_"]
    system = ", ".join([platform.system(), *sorted(settings)])
    return Machine(
        _processor(), len(topology.allowed()), isa, system, versions,
        os.getloadavg()[0], found,
    )  # fmt: skip


def _processor() -> str:
    """The model's name, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
