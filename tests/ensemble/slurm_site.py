"""A whole Slurm on this machine's loopback: munge, the controller and a node of 8 pretended cores.

Nothing of it is shared with a Slurm that may be installed for real: sockets, ports, keys and state
lie in a folder of its own. Jobs run as the user of the tests.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CONF = """
ClusterName=heomtest
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
KillWait=2
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
MinJobAge=10
SlurmctldTimeout=30
SlurmdTimeout=30
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """The daemons; gives what Slurm's commands need in their environment."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    conf = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    conf.write_text(
        CONF.format(folder=folder, user=getpass.getuser(), host=host, ports=free_ports(2))
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
    environment = {"SLURM_CONF": str(conf)}
    places = {
        option: folder / f"munge.{option}"
        for option in ("socket", "pid-file", "log-file", "seed-file")
    }
    munge = [f"--{option}={path}" for option, path in places.items()]
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", *munge],
        ["slurmctld", "-D", "-c", "-f", str(conf)],
        ["slurmd", "-D", "-c", "-f", str(conf)],
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in daemons:
            with (folder / f"{command[0]}.out").open("wb") as out:
                daemon = subprocess.Popen(
                    command, env={**os.environ, **environment, "PATH": SBIN},
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                )  # fmt: skip
            started.append(daemon)
            if command[0] == "munged":
                wait_for(places["socket"].exists)
        wait_for(lambda: ask(environment, "sinfo", "-h", "-o", "%T") == "idle")
        yield environment
    finally:
        with contextlib.suppress(Exception):
            ask(environment, "scancel", "--signal=KILL", "--full", "--user", getpass.getuser())
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def ask(environment: dict[str, str], *command: str) -> str:
    """What one of Slurm's commands says."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        timeout=30,
    )  # fmt: skip
    return done.stdout.strip()


def jobs(environment: dict[str, str], form: str = "%i") -> list[str]:
    """The jobs in the queue."""
    return ask(environment, "squeue", "-h", "-o", form).splitlines()


def wait_for(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
