"""Checks a cluster's profile with a tiny sweep: python deploy/smoke.py PROFILE [--folder FOLDER].

One job (or what the profile names) is started; its workers are asked for their versions, threads
and memory, and whether they see FOLDER, where stores are to lie; then they compute four points.
What fails is said with a remedy, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import heomdask as hd
from heomdask import memory
from heomdask.ensemble import profiles
from heomdask.ensemble.cluster import Workers
from heomdask.errors import HeomdaskError

THREADS = "OMP_NUM_THREADS"


def describe() -> dict[str, Any]:
    """What a worker runs on; also asked of this process."""
    import distributed

    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "heomdask": hd.__version__,
        "numpy": np.__version__,
        "distributed": distributed.__version__,
        "threads": os.environ.get(THREADS),
        "memory": memory.available(),
    }


def answer(folder: str) -> str:
    """Read what the client wrote, and write beside it; gives the error, or nothing."""
    try:
        text = (Path(folder) / "from-client").read_text()
        (Path(folder) / f"{socket.gethostname()}-{os.getpid()}").write_text(text)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def build(e: float) -> Any:
    sz = np.diag([1.0, -1.0])
    bath = hd.DrudeLorentz(lam=0.02, gamma=0.5, T=1.0)
    return hd.Problem(e * sz, [hd.Coupling(sz, bath)]), np.full((2, 2), 0.5)


def wrong_versions(here: dict[str, Any], there: list[dict[str, Any]]) -> Iterator[str]:
    """Packages of which a worker has another version; of Python the first two numbers count."""
    for name in ("python", "heomdask", "numpy", "distributed"):
        parts = 2 if name == "python" else None
        own = here[name].split(".")[:parts]
        for worker in there:
            if worker[name].split(".")[:parts] != own:
                yield (
                    f"{worker['host']} has {name} {worker[name]}, this machine {here[name]}; let "
                    "`python` and `prologue` of the profile choose the same environment."
                )
                break


def wrong_threads(there: list[dict[str, Any]]) -> Iterator[str]:
    many = {worker["host"] for worker in there if worker["threads"] != "1"}
    if many:
        yield f"{THREADS} is not 1 on {', '.join(sorted(many))}; take it out of `prologue`."


def invisible(client: Any, folder: Path) -> Iterator[str]:
    (folder / "from-client").write_text("hello")
    answers = client.run(answer, str(folder))
    remedy = "stores must lie on a file system that all nodes share: give such a --folder"
    for error in sorted({text for text in answers.values() if text}):
        yield f"a worker does not see {folder} ({error}); {remedy}."
    time.sleep(0.5)
    back = [p for p in folder.iterdir() if p.name != "from-client"]
    if len(back) < len(answers) and not any(answers.values()):
        yield f"what {len(answers)} workers wrote to {folder} is not all here; {remedy}."


def wrong_numbers(client: Any, folder: Path) -> Iterator[str]:
    sweep = hd.Sweep(
        build, over={"e": [0.1, 0.2, 0.3, 0.4]}, times=[0.0, 1.0], depth=3, expansion=hd.Pade(1)
    )
    stores = [folder / "there.zarr", folder / "here.zarr"]
    there, here = (
        sweep.run(store, client=who, progress=False)["rho"].values
        for store, who in zip(stores, (client, hd.SerialRunner()), strict=True)
    )
    worst = float(np.abs(there - here).max())
    same = there.tobytes() == here.tobytes()
    print(f"sweep     4 points, {'equal to the last bit' if same else f'{worst:.1e} apart'}")
    if not worst < 1e-6:
        yield f"the workers' numbers differ by {worst:.1e}; compare the versions above."


def check(profile: profiles.Profile, folder: Path) -> list[str]:
    """Everything that is wrong, in sentences."""
    started = time.perf_counter()
    here = describe()
    with Workers(cluster=profile) as workers:
        client = workers.client()
        print(f"workers   the first after {time.perf_counter() - started:.1f} s")
        there = list(client.run(describe).values())
        for worker in [here, *there]:
            print(
                "{host:<9} Python {python}, heomdask {heomdask}, numpy {numpy}, distributed "
                "{distributed}, threads {threads}, ".format(**worker)
                + f"{memory.readable(worker['memory'])} free"
                + " (this machine)" * (worker is here)
            )
        wrong = [*wrong_versions(here, there), *wrong_threads(there)]
        unseen = list(invisible(client, folder))
        return wrong + unseen + ([] if unseen else list(wrong_numbers(client, folder)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the profile of a cluster.")
    parser.add_argument("profile", help="as for heomdask run --cluster")
    parser.add_argument("--folder", default=".", help="where stores are to lie; default: here")
    given = parser.parse_args()
    started = time.perf_counter()
    try:
        profile = profiles.read(given.profile)
        if isinstance(profile, profiles.Slurm):
            profile = msgspec.structs.replace(profile, jobs=1)
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="smoke-") as folder:
            wrong = check(profile, Path(folder).absolute())
    except HeomdaskError as error:
        wrong = [str(error)]
    except OSError as error:  # of the folder
        wrong = [f"--folder must be a folder that can be written, got {given.folder} ({error})."]
    for text in wrong:
        print(f"FAILED    {text}")
    end = f"in {time.perf_counter() - started:.0f} s"
    print(f"all checks passed {end}" if not wrong else f"{len(wrong)} of the checks failed {end}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
