"""Workers on machines that can be logged in to.

Takes: an `Ssh` profile.
Gives: `cluster`, Dask's own; its scheduler runs on the first machine.
Next file: `remote.py`, what the workers load.
"""

from __future__ import annotations

from typing import Any

from dask.utils import parse_bytes
from distributed import SSHCluster
from distributed.deploy.spec import SpecCluster

from heomdask.ensemble.profiles import Ssh, python
from heomdask.ensemble.tls import warn_if_open

SETTINGS = {  # Dask sends these to the machines
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.preload": ["heomdask.ensemble.remote"],
}


def cluster(profile: Ssh, dashboard: bool) -> SpecCluster:
    """The cluster, with all its workers asked for."""
    login: dict[str, Any] = {"port": profile.port}
    if profile.user is not None:
        login["username"] = profile.user
    network = {} if profile.interface is None else {"interface": profile.interface}
    worker: dict[str, Any] = {"nthreads": 1, "n_workers": profile.processes, **network}
    if profile.memory is not None:
        worker["memory_limit"] = parse_bytes(profile.memory)
    started = SSHCluster(
        [profile.hosts[0], *profile.hosts],
        connect_options=login,
        worker_options=worker,
        scheduler_options={
            "port": 0,
            "dashboard": dashboard,
            "dashboard_address": "127.0.0.1:0",
            **network,
        },
        remote_python=f"env PYTHONSAFEPATH=1 {python(profile)}",  # see remote.py
    )
    warn_if_open(started.scheduler_address)
    return started
