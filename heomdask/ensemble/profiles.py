"""Profiles of clusters: where workers come from, and what a site wants to be asked for.

Takes: a word, the address of a scheduler, or the path of a TOML file.
Gives: a `Profile`: `Local`, `Address`, `Slurm` or `Ssh`; `schema`, the keys for programs, which
    docs/reference/cluster.md shows to people.
Next file: `cluster.py`, which starts the workers of one.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
from dask.utils import parse_bytes
from msgspec import Meta

from heomdask import checks, memory, toml, topology
from heomdask.brief import install
from heomdask.ensemble.pools import ALIKE, CPU, GPU
from heomdask.errors import InputError

SIZE = re.compile(r"[0-9.]+ *[kMGT]i?B")
WALLTIME = re.compile(r"(\d+-)?\d{1,2}:[0-5]\d:[0-5]\d")
CORE_MEMORY = 2 * 2**30  # bytes that a job asks for each of its processes, unless it is told
ALLOWED = (
    'one of "local", "slurm", "ssh:HOST,HOST", the address of a scheduler (tcp://..., tls://...) '
    "or a TOML file"
)

Count = Annotated[int, Meta(ge=1)]
Word = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_]*$")]


def cores() -> int:
    """CPUs that this process may use."""
    return len(topology.allowed())


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A TOML table whose unknown keys are errors."""


class Certificates(_Table, frozen=True, kw_only=True):
    """Files that make a connection private, which all machines see at the same paths."""

    ca: Annotated[str, Meta(description="Of the authority that signed the certificate.")]
    cert: Annotated[str, Meta(description="The certificate.")]
    key: Annotated[str, Meta(description="Its private key.")]


Tls = bool | Certificates


class Local(_Table, frozen=True, kw_only=True, tag_field="kind", tag="local"):
    """Worker processes of this machine, on its loopback only."""

    workers: Annotated[
        Count | None, Meta(description="How many; by default one a core that may be used.")
    ] = None
    gpus: Annotated[
        int,
        Meta(ge=0, description="Of this machine: each has a worker more, of the class GPU."),
    ] = 0

    @property
    def pools(self) -> dict[str, int]:
        count = self.workers or max(1, cores() - self.gpus)
        return {CPU: count, GPU: self.gpus} if self.gpus else {ALIKE: count}

    @property
    def worker_nbytes(self) -> int:
        return memory.available() // sum(self.pools.values())


class Address(_Table, frozen=True, kw_only=True, tag_field="kind", tag="address"):
    """A scheduler that runs already, with workers of its own."""

    address: Annotated[str, Meta(description='Such as "tcp://10.0.0.1:8786".')]
    tls: Annotated[
        Certificates | None, Meta(description="For an address that begins with tls://.")
    ] = None

    @property
    def pools(self) -> dict[str, int]:
        """As if they were here."""
        return Local().pools

    @property
    def worker_nbytes(self) -> int:
        return Local().worker_nbytes


class Jobs(_Table, frozen=True, kw_only=True):
    """Batch jobs that are alike; each holds some worker processes with one thread each."""

    pool: Annotated[
        Word | None,
        Meta(
            description='The class of these workers, where there are several: "CPU", "GPU" (which '
            "compute on a card), or any word.",
        ),
    ] = None
    jobs: Annotated[Count, Meta(description="How many jobs.")] = 1
    cores: Annotated[Count, Meta(description="Of a job, which is on one node.")] = 4
    processes: Annotated[
        Count | None, Meta(description="Workers in a job, at most `cores`; by default one a core.")
    ] = None
    memory: Annotated[
        str | None, Meta(description='Of a job, such as "64 GB"; by default 2 GiB for each worker.')
    ] = None
    walltime: Annotated[
        str, Meta(description='Time limit of a job, as "HH:MM:SS" or "D-HH:MM:SS".')
    ] = "01:00:00"
    partition: Annotated[str | None, Meta(description="Else the site's default.")] = None
    account: Annotated[str | None, Meta(description="What the time is charged to.")] = None
    dask_cuda: Annotated[
        bool,
        Meta(
            description="Whether the one worker of a job, of the pool GPU, is started by dask-cuda "
            "(of the extra cuda12 or cuda13)."
        ),
    ] = False
    directives: Annotated[
        tuple[str, ...],
        Meta(description='More options of sbatch, such as "--exclusive" or "--gres=gpu:1".'),
    ] = ()
    prologue: Annotated[
        tuple[str, ...],
        Meta(description='Shell lines before the workers start, such as "module load python".'),
    ] = ()
    python: Annotated[
        str | None,
        Meta(
            description="Command of the workers' Python, such as \"apptainer exec heomdask.sif "
            'python3"; by default this one, at the same path.'
        ),
    ] = None
    local_directory: Annotated[
        str | None, Meta(description="Scratch folder on the nodes; else their folder for such.")
    ] = None

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes > self.cores:
            raise checks.refuse(
                "processes", f"at most `cores` ({self.cores})", self.processes, "each needs one"
            )
        if self.dask_cuda and (self.processes_each, self.pool) != (1, GPU):
            raise checks.refuse(
                "dask_cuda", 'used with processes = 1 and pool = "GPU"',
                f"it with {self.processes_each} and {self.pool!r}",
            )  # fmt: skip
        _require_size("memory", self.memory)
        if not WALLTIME.fullmatch(self.walltime):
            raise checks.refuse(
                "walltime", '"HH:MM:SS" or "D-HH:MM:SS"', self.walltime,
                'write for example "12:00:00"; Slurm itself takes "12:00" as 12 minutes',
            )  # fmt: skip
        for line in self.directives:
            if not line.startswith("-") or line.startswith("-- ") or "\n" in line:
                raise checks.refuse(
                    "directives", "options of sbatch as it takes them", line,
                    'write for example "--exclusive", without #SBATCH',
                )  # fmt: skip

    @property
    def processes_each(self) -> int:
        return self.processes or self.cores

    @property
    def job_nbytes(self) -> int:
        """Memory of a job."""
        if self.memory is None:
            return self.processes_each * CORE_MEMORY
        return int(parse_bytes(self.memory))


class Slurm(Jobs, frozen=True, kw_only=True, tag_field="kind", tag="slurm"):
    """Batch jobs of Slurm; each holds some worker processes with one thread each.

    Jobs that end before the sweep, as at their time limit, are submitted again.
    """

    interface: Annotated[
        str | None,
        Meta(description='Network that workers and scheduler use, such as "ib0"; see `ip link`.'),
    ] = None
    log_directory: Annotated[
        str, Meta(description="Of the jobs' output, in a folder that the nodes see.")
    ] = "heomdask-jobs"
    tls: Annotated[
        Tls,
        Meta(description="Encrypt: with certificates for this run only (true), or with a table."),
    ] = False
    more: Annotated[
        tuple[Jobs, ...],
        Meta(description="Jobs of other classes for the same sweep, such as some with GPUs."),
    ] = ()

    def __post_init__(self) -> None:
        Jobs.__post_init__(self)
        pools = [kind.pool for kind in (self, *self.more)]
        if self.more and (None in pools or len(set(pools)) < len(pools)):
            raise checks.refuse(
                "pool", "another word in each table, where there are `more`", pools,
                'write for example pool = "CPU" above, and pool = "GPU" in [[more]]',
            )  # fmt: skip

    @property
    def kinds(self) -> tuple[Slurm, ...]:
        """A profile for the jobs of each class, with all that they share."""
        others = (msgspec.structs.asdict(jobs) for jobs in self.more)
        alone = msgspec.structs.replace(self, more=())
        return (alone, *(msgspec.structs.replace(alone, **fields) for fields in others))

    @property
    def pools(self) -> dict[str, int]:
        return {kind.pool or ALIKE: kind.jobs * kind.processes_each for kind in self.kinds}

    @property
    def worker_nbytes(self) -> int:
        return min(kind.job_nbytes // kind.processes_each for kind in self.kinds)


class Ssh(_Table, frozen=True, kw_only=True, tag_field="kind", tag="ssh"):
    """Machines that can be logged in to without a password; the first runs the scheduler, too."""

    hosts: Annotated[
        tuple[str, ...], Meta(min_length=1, description="Their names, as for the command `ssh`.")
    ]
    processes: Annotated[Count, Meta(description="Workers on each, with one thread each.")] = 1
    memory: Annotated[
        str | None, Meta(description='Of each worker, such as "4 GB"; else a share of the machine.')
    ] = None
    python: Annotated[
        str | None, Meta(description="Command of the workers' Python; by default this one's path.")
    ] = None
    interface: Annotated[
        str | None, Meta(description="Network that workers and scheduler use; see `ip link`.")
    ] = None
    user: Annotated[str | None, Meta(description="To log in as; else your name here.")] = None
    port: Annotated[int, Meta(ge=1, le=65535, description="Of the SSH servers.")] = 22

    def __post_init__(self) -> None:
        _require_size("memory", self.memory)

    @property
    def pools(self) -> dict[str, int]:
        return {ALIKE: len(self.hosts) * self.processes}

    @property
    def worker_nbytes(self) -> int:
        """As if each were alone on this machine."""
        return memory.available()


# each tells `pools`, workers by class, and `worker_nbytes`, the memory of the smallest
Profile = Local | Address | Slurm | Ssh


def _require_size(name: str, text: str | None) -> None:
    if text is not None and not SIZE.fullmatch(text.strip()):
        raise checks.refuse(name, "a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB", text)


def read(source: str | Path) -> Profile:
    """The profile that a word, an address or a file means."""
    text = str(source)
    word, _, rest = text.partition(":")
    if text in ("local", "slurm"):
        return Local() if text == "local" else Slurm()
    if "://" in text:
        return Address(address=text)
    if word == "ssh":
        hosts = tuple(filter(None, rest.split(",")))
        if not hosts:
            raise checks.refuse("cluster", ALLOWED, text, "name the hosts: ssh:node1,node2")
        return Ssh(hosts=hosts)
    profile: Profile = toml.decode(
        toml.read("cluster", Path(source), ALLOWED), Profile, text,
        what="cluster profile", listed="docs/reference/cluster.md lists",
    )  # fmt: skip
    return profile


def with_tls(profile: Profile) -> Profile:
    """The same, encrypted; refused where that needs more than a word."""
    if isinstance(profile, Slurm):
        return msgspec.structs.replace(profile, tls=profile.tls or True)
    if isinstance(profile, Address) and profile.tls is not None:
        return profile
    remedy = {
        Local: "local workers use the loopback only; leave it out",
        Ssh: "start a scheduler with certificates by hand, and give its address",
        Address: 'name its certificates in a TOML file: kind = "address", address, and tls with '
        "ca, cert and key",
    }[type(profile)]
    raise InputError(f"`tls` must go with Slurm, got it for {_kind(profile)}; {remedy}.")


def _kind(profile: Profile) -> str:
    return str(msgspec.structs.asdict(profile).get("address") or type(profile).__name__.lower())


def require_package(profile: Profile) -> None:
    """Refuse a profile for which a package is missing."""
    for kind, package, extra in ((Slurm, "dask_jobqueue", "jobqueue"), (Ssh, "asyncssh", "ssh")):
        if isinstance(profile, kind) and importlib.util.find_spec(package) is None:
            raise InputError(
                f"`cluster` must have the package {package} for {_kind(profile)}, got none here; "
                f"{install(extra)}."
            )


def require_dashboard() -> None:
    """Refuse to show what cannot be shown here."""
    if importlib.util.find_spec("bokeh") is None:
        raise InputError(
            f"`dashboard` must have the package bokeh, got none here; {install('dashboard')}."
        )


def require(profile: Profile) -> None:
    """Refuse what cannot be started on this machine."""
    require_package(profile)
    if isinstance(profile, Slurm) and shutil.which("sbatch") is None:
        raise InputError(
            "`cluster` must be used where Slurm's commands are, got a machine without `sbatch`; "
            "log in to the cluster and run it there."
        )


def python(profile: Slurm | Ssh) -> str:
    """The command that runs the workers' Python."""
    return profile.python or shlex.quote(sys.executable)


def schema() -> dict[str, Any]:
    """The JSON schema of a file."""
    return msgspec.json.schema(Profile)
