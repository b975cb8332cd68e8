"""FMO at 300 K with static disorder: heomdask on two workers against a pool of two QuTiP processes.

Both solve the same hierarchies (Drude pole and Matsubara-0 terminator, depth 6, 1 ps, outputs
every 10 fs) to a largest population error of 1e-5. QuTiP's method and tolerance are the fastest of
those tried that reach it; its time for many samples is scaled up from a subset. QuTiP's pool and
our sweep are timed in turns, and the better time of each counts. Prints ratios:

    python tests/benchmarks/fmo_against_qutip.py [--samples 64] [--command-samples 1024]

Figures are ratios in one run on one machine; absolute times mean little.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import heomdask as hd
from heomdask.ensemble.axes import sample_rng
from heomdask.units import K, cm1, fs

SIGMA, LAM, GAMMA, T, DEPTH, ERROR = 80 * cm1, 35 * cm1, 1 / (50 * fs), 300 * K, 6, 1e-5
TIMES = np.arange(0.0, 1001.0, 10.0)
CANDIDATES = [
    (method, rtol)
    for method in ("tsit5", "vern7", "adams", "vern9", "dop853")
    for rtol in (1e-4, 1e-5, 1e-6, 1e-7)
]


def hamiltonian(sample: int) -> np.ndarray[Any, Any]:
    """Exactly the sample that the sweep's own `rng` gives."""
    text = (resources.files("heomdask.examples") / "fmo.toml").read_text()
    H = cm1 * np.array(tomllib.loads(text)["system"]["hamiltonian"])
    rng = sample_rng(1, sample)
    return H + np.diag(SIGMA * rng.standard_normal(7))


def qutip_populations(sample: int, method: str, rtol: float) -> np.ndarray[Any, Any]:
    import qutip as qt
    from qutip.solver.heom import DrudeLorentzBath, HEOMSolver

    H = qt.Qobj(hamiltonian(sample))
    projectors = [qt.basis(7, j).proj() for j in range(7)]
    baths = [DrudeLorentzBath(P, lam=LAM, gamma=GAMMA, T=T, Nk=0) for P in projectors]
    L = qt.liouvillian(H)
    for bath in baths:
        L = L + bath.terminator()[1]
    options = {"method": method, "rtol": rtol, "atol": rtol * 1e-2, "nsteps": 100_000,
               "progress_bar": "", "store_states": False}  # fmt: skip
    solver = HEOMSolver(L, baths, max_depth=DEPTH, options=options)
    result = solver.run(qt.basis(7, 0).proj(), TIMES, e_ops=projectors)
    return np.real(np.array(result.expect)).T


def _timed(job: tuple[int, str, float]) -> float:
    started = time.perf_counter()
    qutip_populations(*job)
    return time.perf_counter() - started


def problem(sample: int) -> hd.Problem:
    bath = hd.DrudeLorentz(lam=LAM, gamma=GAMMA, T=T)
    projectors = [np.diag(np.eye(7)[j]) for j in range(7)]
    return hd.Problem(hamiltonian(sample), [hd.Coupling(P, bath) for P in projectors])


def best_qutip(reference: np.ndarray[Any, Any]) -> tuple[str, float]:
    """The fastest (method, rtol) whose largest population error is within ERROR."""
    best: tuple[float, str, float] | None = None
    for method, rtol in CANDIDATES:
        started = time.perf_counter()
        error = np.max(np.abs(qutip_populations(0, method, rtol) - reference))
        seconds = time.perf_counter() - started
        print(f"  QuTiP {method:7s} rtol {rtol:.0e}: {seconds:7.2f} s, error {error:.1e}")
        if error <= ERROR and (best is None or seconds < best[0]):
            best = (seconds, method, rtol)
    assert best is not None, "no QuTiP setting reached the error"
    return best[1], best[2]


def qutip_seconds_per_sample(method: str, rtol: float, subset: int) -> float:
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_timed, [(0, method, rtol)] * 2)  # imports paid
        started = time.perf_counter()
        pool.map(_timed, [(s, method, rtol) for s in range(subset)], chunksize=1)
        return (time.perf_counter() - started) / subset


def config(samples: int, store: Path) -> str:
    text = (resources.files("heomdask.examples") / "fmo.toml").read_text()
    for old, new in {
        "values = [77, 150, 300]": "values = [300]",
        "values = [5, 15, 35]": "values = [35]",
        "samples = 20": f"samples = {samples}",
        "depth = 3 ": f"depth = {DEPTH} ",
        'expansion = "pade 2"': 'expansion = "matsubara 0"\ncheck_convergence = false',
        'store = "fmo.zarr"': f'store = "{store}"',
        'plot = "fmo.png"': f'plot = "{store.with_suffix(".png")}"',
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def our_sweep_seconds(samples: int, folder: Path, reference: np.ndarray[Any, Any]) -> float:
    """From the first task submitted to the last shard committed, on two running workers."""
    from heomdask.cli.config import parse, to_sweep
    from heomdask.ensemble.cluster import connect

    with connect(workers=2) as client:
        to_sweep(parse(config(2, folder / "warm.zarr"), "benchmark")).run(
            str(folder / "warm.zarr"), client=client
        )
        sweep = to_sweep(parse(config(samples, folder / "sweep.zarr"), "benchmark"))
        started = time.perf_counter()
        dataset = sweep.run(str(folder / "sweep.zarr"), client=client)
        seconds = time.perf_counter() - started
        first = dataset.isel(T=0, lam=0, sample=0)
        ours = np.stack([first[f"P{j + 1}"].values.real for j in range(7)], axis=1)
        error = np.max(np.abs(ours - reference))
        print(f"  heomdask: {samples} samples in {seconds:.2f} s, error {error:.1e}")
        assert error <= ERROR
        assert int((dataset["status"] == 1).sum()) == samples
    return seconds


def our_command_seconds(samples: int, folder: Path) -> float:
    """The whole command, start-up, plot and all."""
    file = folder / "command.toml"
    file.write_text(config(samples, folder / "command.zarr"))
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "heomdask.cli", "run", str(file), "--workers", "2"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--command-samples", type=int, default=1024)
    parser.add_argument("--qutip-subset", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    rho0 = np.diag(np.eye(7)[0])
    tight = hd.evolve(problem(0), rho0, TIMES, depth=DEPTH, expansion=hd.Matsubara(0), tol=1e-10)
    reference = np.real(np.einsum("tii->ti", tight.rho))
    method, rtol = best_qutip(reference)
    per_sample, ours = float("inf"), float("inf")
    for _ in range(options.turns):
        own = qutip_seconds_per_sample(method, rtol, options.qutip_subset)
        print(f"  QuTiP pool of 2: {method} rtol {rtol:.0e}, {own:.3f} s a sample")
        per_sample = min(per_sample, own)
        with tempfile.TemporaryDirectory() as name:
            ours = min(ours, our_sweep_seconds(options.samples, Path(name), reference))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"sweep of {options.samples}: {per_sample * options.samples / ours:.1f} times faster")
        command = our_command_seconds(options.command_samples, folder)
        print(f"  heomdask run, {options.command_samples} samples: {command:.1f} s")
        ratio = per_sample * options.command_samples / command
        print(f"command of {options.command_samples}: {ratio:.1f} times faster")


if __name__ == "__main__":
    main()
