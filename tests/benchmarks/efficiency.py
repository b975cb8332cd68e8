"""What a large ensemble costs beside its solver; `docs/efficiency.md` explains the figures.

    python tests/benchmarks/efficiency.py NAME [--json FILE]

measures one of its tables, prints the rows, and keeps them in the file under that name.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import heomdask as hd
from heomdask.batch import run_batch
from heomdask.ensemble.cluster import connect
from heomdask.ensemble.pools import ALIKE
from heomdask.ensemble.probe import prepare_point
from heomdask.ensemble.profiles import cores
from heomdask.ensemble.runner import DaskRunner, SerialRunner

Row = dict[str, Any]
SZ, SX = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
PLUS = np.full((2, 2), 0.5)
FMO = np.array(  # cm^-1, Adolphs and Renger, Biophys. J. 91, 2778 (2006)
    [
        [410, -87.7, 5.5, -5.9, 6.7, -13.7, -9.9],
        [-87.7, 530, 30.8, 8.2, 0.7, 11.8, 4.3],
        [5.5, 30.8, 210, -53.5, -2.2, -9.6, 6.0],
        [-5.9, 8.2, -53.5, 320, -70.7, -17.0, -63.3],
        [6.7, 0.7, -2.2, -70.7, 480, 81.1, -1.3],
        [-13.7, 11.8, -9.6, -17.0, 81.1, 630, 39.7],
        [-9.9, 4.3, 6.0, -63.3, -1.3, 39.7, 440],
    ]
)


# -- what is computed ------------------------------------------------------------------------------


def two_level(T: float, rng: np.random.Generator) -> Any:
    bath = hd.DrudeLorentz(lam=0.1, gamma=0.5, T=T)
    return hd.Problem(0.3 * rng.standard_normal() * SZ + 0.5 * SX, [hd.Coupling(SZ, bath)]), PLUS


def spin_boson(points: int, depth: int = 5) -> hd.Sweep:
    """Two-level points in a Drude bath of 3 modes, 100 output times."""
    return hd.Sweep(
        two_level, over={"T": np.linspace(0.5, 1.0, 10)}, samples=points // 10,
        times=np.linspace(0, 20, 100), depth=depth, expansion=hd.Pade(2), observables={"z": SZ},
    )  # fmt: skip


def at_temperature(T: float) -> Any:
    return two_level(T, np.random.default_rng(0))


def table(points: int) -> hd.Sweep:
    """The same without samples, a row a point."""
    return hd.Sweep(
        at_temperature, over=hd.Table({"T": hd.axis(np.linspace(0.5, 1.0, points), "1/fs")}),
        times=hd.axis(np.linspace(0, 20, 100), "fs"), depth=5, expansion=hd.Pade(2),
        observables={"z": SZ},
    )  # fmt: skip


def seven_sites(rng: np.random.Generator) -> Any:
    H = (FMO + np.diag(50 * rng.standard_normal(7))) * hd.units.cm1
    bath = hd.DrudeLorentz(lam=35 * hd.units.cm1, gamma=1 / 50, T=300 * hd.units.K)
    site = np.eye(7)
    couplings = [hd.Coupling(np.outer(e, e), bath) for e in site]
    return hd.Problem(H, couplings), np.outer(site[0], site[0])


def fmo(points: int, depth: int = 3) -> hd.Sweep:
    """The FMO complex with disorder: 7 modes, 120 ADOs at depth 3, 100 output times."""
    return hd.Sweep(
        seven_sites, samples=points, times=np.linspace(0, 500, 100), depth=depth,
        expansion=hd.Matsubara(0), observables={"p1": np.diag(np.eye(7)[0])},
    )  # fmt: skip


# -- clocks ----------------------------------------------------------------------------------------

PARTS = ("random numbers", "build", "hierarchy", "solver", "store")
OWN = ("random numbers", "build", "hierarchy", "store", "rest of the task")  # outside the solver


def install() -> None:
    """Count the processor time of this process's tasks, part by part."""
    import gc

    from heomdask.ensemble import sweep, task
    from heomdask.results.chunks import Files

    if hasattr(task, "spent"):
        task.spent.clear()
        task.lengths.clear()
        return
    task.spent, task.lengths = Counter(), []

    def timed(owner: Any, name: str, part: str) -> None:
        plain = getattr(owner, name)

        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            started = time.thread_time()
            try:
                return plain(*arguments, **keywords)
            finally:
                task.spent[part] += time.thread_time() - started

        setattr(owner, name, wrapper)

    def collecting(phase: str, about: Any) -> None:
        sign = -1 if phase == "start" else 1
        task.spent["garbage"] += sign * time.thread_time()

    gc.callbacks.append(collecting)
    timed(sweep, "sample_rng", "random numbers")
    timed(sweep.Sweep, "point", "build")
    timed(task, "prepare_point", "hierarchy")
    timed(task, "run_batch", "solver")
    timed(Files, "commit", "store")
    timed(task, "run_task", "task")
    run_task = task.run_task

    def noting(*arguments: Any, **keywords: Any) -> Any:
        before = waited()
        report = run_task(*arguments, **keywords)
        task.spent["waited"] += waited() - before
        task.lengths.append(report.seconds)
        return report

    def waited() -> float:
        """Seconds for which this thread could have run, and had no processor."""
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9

    task.run_task = noting


def clocks() -> tuple[dict[str, float], list[float], float]:
    """Of this process: the parts, how long its tasks were, and all its time."""
    from heomdask.ensemble import task

    return dict(task.spent), list(task.lengths), time.process_time()


def measured(what: hd.Sweep, client: Any) -> Row:
    """One run: its wall time, and processor time per point (ms) where it went."""
    client.run(install)
    before = client.run(clocks)
    memory = Memory()
    started, own = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder, memory:
        ds = what.run(Path(folder, "s.zarr"), client=client, progress=False)
        wall, own = time.perf_counter() - started, time.process_time() - own
        growth = memory.growth
        names = [n for n in ds.data_vars if n not in ("seconds", "error", "traceback")]
        data = {str(n): ds[n].values for n in names}
    after = client.run(clocks)
    points, scale = what.grid.size, 1e3 / what.grid.size
    spent: Counter[str] = sum((Counter(c[0]) for c in after.values()), Counter())
    whole = sum(after[w][2] - before[w][2] for w in after)
    row: Row = {part: spent[part] * scale for part in PARTS}
    row["garbage"] = spent["garbage"] * scale
    row["rest of the task"] = (spent["task"] - sum(spent[p] for p in PARTS)) * scale
    row["rest of the worker"] = (whole - spent["task"]) * scale
    row["client and scheduler"] = own * scale
    row["outside"] = (whole - spent["solver"] + own) * scale
    waits = max(c[0]["waited"] for c in after.values())
    return row | {
        "points": points, "workers": len(after), "wall": wall, "waited": waits,
        "rss": growth, "lengths": [t for c in after.values() for t in c[1]], "data": data,
    }  # fmt: skip


def at_rest(client: Any, seconds: float = 10.0) -> float:
    """Cores that Dask keeps busy while there is nothing to do: workers, scheduler and client."""
    before, own = client.run(time.process_time), time.process_time()
    time.sleep(seconds)
    after, own = client.run(time.process_time), time.process_time() - own
    return (sum(after[w] - before[w] for w in after) + own) / seconds


class Memory:
    """How far this process, which holds the client and the scheduler, grows."""

    def __enter__(self) -> None:
        import threading

        self._process, self._done = psutil.Process(), threading.Event()
        self.growth, self._first = 0.0, self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            now = (self._process.memory_info().rss - self._first) / 2**20
            self.growth = max(self.growth, now)

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


@contextlib.contextmanager
def warm(workers: int) -> Iterator[Any]:
    """Workers that have computed before, each kept to one core."""
    with connect(workers=workers) as client, tempfile.TemporaryDirectory() as folder:
        spin_boson(100).run(Path(folder, "s.zarr"), client=client, progress=False)
        allowed = sorted(os.sched_getaffinity(0))
        for i, address in enumerate(client.scheduler_info(n_workers=-1)["workers"]):
            client.run(pin, allowed[i % len(allowed)], workers=[address])
        yield client


def pin(core: int) -> None:
    """Keep all threads of this process to a core."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def middle(values: list[float]) -> str:
    """The median, and how far the quartiles are from it."""
    center = statistics.median(values)
    low, high = np.percentile(values, [25, 75])
    off = max(high - center, center - low)
    return f"{center:.3g} ±{100 * off / center if center else 0:.0f}%"


# -- the tables ------------------------------------------------------------------------------------


def many(points: int = 100_000) -> list[Row]:
    """One long run: where the time of a point goes."""
    with warm(2) as client:
        idle = at_rest(client)
        row = measured(spin_boson(points), client)
    row["within tasks"] = sum(row[name] for name in OWN)
    row["of it, collecting garbage"] = row["garbage"]
    row["of it, Dask at rest"] = idle * row["wall"] * 1e3 / points
    shown = (
        "solver", *OWN, "within tasks", "of it, collecting garbage", "rest of the worker",
        "client and scheduler", "outside", "of it, Dask at rest",
    )  # fmt: skip
    each = row["workers"] * row["wall"] * 1e3 / points  # ms of a core
    rows: list[Row] = [
        {"part": n, "value": f"{row[n]:.3f} ms a point", "of the cores, %": f"{v:.1f}"}
        for n, v in ((n, 100 * row[n] / each) for n in shown)
    ]
    outside = row["outside"]
    facts = {
        "outside, of all processor time": f"{100 * outside / (outside + row['solver']):.1f} %",
        "outside, beside points of 3 ms": f"{100 * outside / (outside + 3):.1f} %",
        "points": f"{points:,}", "wall time": f"{row['wall']:.0f} s",
        "a task was ready and had no core": f"{row['waited']:.0f} s",
        "tasks": len(row["lengths"]), "growth of client and scheduler": f"{row['rss']:.0f} MiB",
    }  # fmt: skip
    return rows + [{"part": n, "value": v, "of the cores, %": ""} for n, v in facts.items()]


def million() -> list[Row]:
    """Sweeps of a million points, from the first line to the first task and no further."""
    shapes = {
        "10 x 100,000 samples": lambda: spin_boson(1_000_000),
        "a table of 1,000,000 rows with a unit": lambda: table(1_000_000),
    }
    rows = []
    for name, make in shapes.items():
        started, memory = time.perf_counter(), Memory()
        with tempfile.TemporaryDirectory() as folder, memory, contextlib.suppress(FirstTask):
            make().run(Path(folder, "s.zarr"), client=Waiting(), progress=False)
        seconds = f"{time.perf_counter() - started:.1f}"
        rows.append(
            {"sweep": name, "s to the first task": seconds, "MiB at most": f"{memory.growth:.0f}"}
        )
    return rows


class FirstTask(Exception):
    """Raised where a runner would compute one."""


class Waiting(SerialRunner):
    """Computes nothing."""

    def wait(self) -> Any:
        raise FirstTask


def batch(rounds: int = 9) -> list[Row]:
    """Processor time of one batch, and what of it does not depend on its members."""
    what, sizes = spin_boson(640), (1, 2, 4, 8, 16, 32, 64)
    points = [what.point((i % 10, i // 10)) for i in range(max(sizes))]
    prepared = [prepare_point(what, p) for p in points]
    spent: dict[int, list[float]] = {m: [] for m in sizes}
    for _ in range(rounds):
        for m in sizes:
            started = time.process_time()
            run_batch(
                prepared[:m], [p.rho0 for p in points[:m]], what.times.vector,
                observables=what.observables, save=what.save, threads=1,
            )  # fmt: skip
            spent[m].append(1e3 * (time.process_time() - started))
    return [
        {"members": m, "ms a batch": middle(t), "ms a point": f"{statistics.median(t) / m:.3f}"}
        for m, t in spent.items()
    ]


def cost(rounds: int = 2) -> list[Row]:
    """What tasks spend outside the solver, for points of different cost."""
    cases: dict[str, tuple[Callable[..., hd.Sweep], int, int]] = {
        "two levels, depth 2": (spin_boson, 2, 500),
        "two levels, depth 5": (spin_boson, 5, 500),
        "two levels, depth 10": (spin_boson, 10, 300),
        "two levels, depth 20": (spin_boson, 20, 100),
        "FMO, depth 2": (fmo, 2, 100),
        "FMO, depth 3": (fmo, 3, 64),
    }
    rows = []
    with warm(1) as client:
        for name, (make, depth, points) in cases.items():
            runs = [measured(make(points, depth), client) for _ in range(rounds)]
            outside = [sum(r[name] for name in OWN) for r in runs]
            share = [100 * o / (o + r["solver"]) for o, r in zip(outside, runs, strict=True)]
            rows.append({
                "points": name, "in the solver, ms": middle([r["solver"] for r in runs]),
                "outside, ms": middle(outside), "outside, %": f"{statistics.median(share):.1f}",
            })  # fmt: skip
    return rows


def workers(points: int = 1000, rounds: int = 2) -> list[Row]:
    """The same sweep on more and more workers; with more than cores, only the overhead counts."""
    runs: dict[int, list[Row]] = {1: [], 2: [], 4: [], 8: []}
    for _ in range(rounds):
        for count, found in runs.items():
            with warm(count) as client:
                found.append(measured(spin_boson(points), client))
    rows = []
    for count, found in runs.items():
        inside = [r["outside"] - r["client and scheduler"] for r in found]
        rows.append({
            "workers": count, "points a second": middle([points / r["wall"] for r in found]),
            "solver, ms a point": middle([r["solver"] for r in found]),
            "rest of the workers, ms a point": middle(inside),
            "client and scheduler, ms a point": middle([r["client and scheduler"] for r in found]),
            "tasks": len(found[0]["lengths"]),
        })  # fmt: skip
    return rows


def scaling(points: int = 128, rounds: int = 3) -> list[Row]:
    """Twice the points on two workers, against one, round by round."""
    raw, own, processor, equal = [], [], [], True
    with warm(1) as one, warm(2) as two:
        for _ in range(rounds):
            a, b = measured(fmo(points), one), measured(fmo(2 * points), two)
            raw.append(a["wall"] / b["wall"])
            own.append((a["wall"] - a["waited"]) / (b["wall"] - b["waited"]))
            processor.append(a["solver"] / b["solver"])
            equal &= all(np.array_equal(a["data"][n], b["data"][n][:points]) for n in a["data"])
            bits = hashlib.sha256(a["data"]["p1"].tobytes()).hexdigest()[:12]
    return [
        {"figure": "wall times", "efficiency": middle(raw)},
        {"figure": "wall times without waiting for a processor", "efficiency": middle(own)},
        {"figure": "processor time of a point in the solver", "efficiency": middle(processor)},
        {"figure": f"results equal to the bit ({bits})", "efficiency": "yes" if equal else "NO"},
    ]


def scheduler(length: float = 0.25, each: int = 12) -> list[Row]:
    """Tasks that only sleep, of a real run's lengths, on more threads than there are cores."""
    with warm(2) as client:
        lengths = measured(spin_boson(1000), client)["lengths"]
    shape = [x * length / statistics.fmean(lengths) for x in lengths]
    rows = []
    for processes in (1, 2, 4):
        rows.append(_asleep(processes, 16, shape, each))
    return rows


def _asleep(processes: int, threads: int, shape: list[float], each: int) -> Row:
    """The driver, the scheduler and its client, with `each` tasks a thread."""
    from distributed import Client, LocalCluster

    from heomdask.ensemble import driver

    slots = processes * threads
    with (
        LocalCluster(
            n_workers=processes,
            threads_per_worker=threads,
            host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        own = time.process_time()
        time.sleep(3)
        idle = (time.process_time() - own) / 3
        client.run(sleep_instead, shape)
        what, runner = spin_boson(64 * slots * each), Clocked(client)
        whole, driver.MOST_NBYTES = driver.MOST_NBYTES, 1  # a task is one shard
        try:
            what.run(Path(folder, "s.zarr"), client=runner, progress=False)
        finally:
            driver.MOST_NBYTES = whole
    wall, tasks = runner.wall, runner.tasks
    return {
        "slots": slots, "tasks": tasks, "tasks a second": f"{tasks / wall:.0f}",
        "asleep, %": f"{100 * tasks * statistics.fmean(shape) / wall / slots:.0f}",
        "client and scheduler, ms a task": f"{1e3 * runner.own / tasks:.2f}",
        "idle, % of a core": f"{100 * idle:.1f}",
    }  # fmt: skip


class Clocked(DaskRunner):
    """Knows how long its tasks took all together, and how much of this process's time."""

    tasks = 0

    def start(self, work: Any) -> None:
        super().start(work)
        self.wall, self.own = -time.perf_counter(), -time.process_time()

    def submit(self, task: Any, pool: str = ALIKE) -> None:
        self.tasks += 1
        super().submit(task, pool)

    def stop(self) -> None:
        self.wall += time.perf_counter()
        self.own += time.process_time()
        super().stop()


def sleep_instead(shape: list[float]) -> None:
    """Tasks of this process compute nothing."""
    import random

    from heomdask.ensemble import task

    def asleep(work: Any, shards: Any, *others: Any) -> task.Report:
        seconds = random.choice(shape)
        time.sleep(seconds)
        return task.Report(64 * len(shards), 0, seconds)

    task.run_task = asleep


TABLES: dict[str, Callable[[], list[Row]]] = {
    f.__name__: f for f in (many, million, batch, cost, workers, scaling, scheduler)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = TABLES[options.name]()
    for row in rows:
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        kept[options.name] = {"load": round(load, 1), "cores": cores(), "rows": rows}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
