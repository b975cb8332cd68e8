"""The commands: run, plan, status, plot, backends, bench, schema.

Takes: the command line.
Gives: a store, a summary table and a picture; exit status 0, or with one clear sentence 2 (130
    after Ctrl-C, 143 after SIGTERM).
Next file: none; this is the top.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.markup import escape

import heomdask
from heomdask.errors import HeomdaskError, HeomdaskWarning

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_console = Console()
CHECK = "The convergence check comes on top: one sample of each point, in two larger hierarchies."
SILENT = 2.0  # seconds after which a plan says what it is doing

ConfigArgument = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A TOML file, or the name of a packaged example.")
]
StoreOption = Annotated[str | None, typer.Option(help="Where the store goes: a path or a URL.")]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="PROFILE",
        help='Where the workers are: "local", "slurm", "ssh:HOST,HOST", an address, or a TOML file '
        "(docs/reference/cluster.md).",
    ),
]
SchedulerOption = Annotated[
    str | None, typer.Option(help="Address of a running Dask scheduler.", metavar="ADDR")
]
StoreArgument = Annotated[str, typer.Argument(metavar="STORE", help="A store of `heomdask run`.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"heomdask {heomdask.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None:
    """Sweeps of hierarchical equations of motion into one labelled store."""


@app.command()
def run(
    config: ConfigArgument,
    store: StoreOption = None,
    scheduler: SchedulerOption = None,
    cluster: ClusterOption = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Local worker processes; default: one a core.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Encrypt what goes to and from a cluster's workers.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try points again that failed before.")
    ] = False,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Show the run on a dashboard; say where that is."),
    ] = False,
) -> None:
    """Run a sweep, or go on with it: what the store already holds is not computed again."""
    from heomdask.cli import config as configs
    from heomdask.cli.plot import beside, plot_store, require_drawable
    from heomdask.cli.summary import plan_table, summary_table
    from heomdask.ensemble.cluster import Workers

    started = time.perf_counter()
    settings = configs.read(config)
    sweep = configs.to_sweep(settings)
    target = store or settings.output.store
    picture = None if settings.output.plot is None else Path(settings.output.plot)
    if picture is not None and store is not None:
        picture = beside(store, picture.suffix)
    if picture is not None:
        require_drawable("output.plot", picture)
    if settings.title:
        _console.rule(escape(settings.title))
    asked = Workers(
        cluster=cluster, scheduler=scheduler, workers=workers, tls=tls, dashboard=dashboard
    )
    with _interruptible(target), asked as computing:
        with _explained():
            # timed, so nothing else runs yet
            needs = sweep.plan(store=target, workers=computing, retry_failed=retry_failed)
        if needs.pending:
            computing.start()  # goes on by itself while the run is made ready
        if needs.pending and dashboard:
            _console.print(f"Dashboard: {computing.page}")
        _console.print(plan_table(needs))
        if settings.solve.check_convergence and needs.pending:
            _console.print(CHECK)
        dataset = sweep.run(target, client=computing, retry_failed=retry_failed)
        if settings.solve.check_convergence:
            _console.print("Checking convergence against larger hierarchies.")
            dataset = sweep.check_convergence(target, client=computing)
    _console.print(summary_table(dataset, _console.width))
    _console.print(f"Store: {escape(target)}   ({time.perf_counter() - started:.1f} s)")
    if picture is not None:
        _console.print(f"Plot:  {escape(str(plot_store(target, picture)))}")


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """While a plan is made, say on standard error what takes so long, if it does."""
    text = "Building a few points and timing short runs of them, to tell what the sweep needs ...\n"
    timer = threading.Timer(SILENT, sys.stderr.write, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _interruptible(store: str) -> Iterator[None]:
    """After Ctrl-C or SIGTERM, one sentence about what the store holds, and 128 + the signal.

    SIGTERM comes from a batch system some seconds before it kills.
    """
    from heomdask.ensemble.cluster import handled
    from heomdask.results.dataset import progress_text

    received = signal.SIGINT

    def stop(number: int, _: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        raise KeyboardInterrupt

    before = {s: signal.signal(s, stop) for s in handled()}
    try:
        yield
    except KeyboardInterrupt:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        sys.stderr.write(f"\nInterrupted: {progress_text(store)}; run the same command to go on.\n")
        raise typer.Exit(128 + received) from None
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@app.command()
def plan(
    config: ConfigArgument,
    store: StoreOption = None,
    scheduler: SchedulerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Say what a sweep would need: points, ADOs, memory, time, store size.

    It times short runs of a few points, which takes a few seconds; it writes nothing. With a
    profile of Slurm, also the script of a job.
    """
    from heomdask.cli import config as configs
    from heomdask.cli.summary import plan_table
    from heomdask.ensemble.cluster import Workers

    settings = configs.read(config)
    asked = Workers(cluster=cluster, scheduler=scheduler)
    target = store or settings.output.store
    script = asked.script  # or what is missing for it, before anything is timed
    with _explained():
        needs = configs.to_sweep(settings).plan(store=target, workers=asked)
    _console.print(plan_table(needs))
    if settings.solve.check_convergence:
        _console.print(CHECK)
    sys.stdout.write(script)


@app.command()
def status(store: StoreArgument) -> None:
    """Say how far a store is, also while it is being filled."""
    from heomdask.cli.summary import status_table

    _console.print(status_table(store))


@app.command()
def plot(
    store: StoreArgument,
    output: Annotated[
        Path | None,
        typer.Option(help="The picture; default: beside the store, of a URL in this folder."),
    ] = None,
) -> None:
    """Draw the observables against time, with the disorder's standard error as a band."""
    from heomdask.cli.plot import beside, plot_store, require_drawable

    picture = output or beside(store, ".png")
    require_drawable("output", picture)
    _console.print(escape(str(plot_store(store, picture))))


@app.command()
def backends() -> None:
    """List the backends, and why one cannot run here."""
    from heomdask.cli.summary import backends_table

    _console.print(backends_table())


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="The short run: about a minute.")] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this one, or those of a pattern as 'fmo-7-*'."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the roofline to this file.")] = None,
) -> None:
    """Time the kernels, whole solves and set-up beside this machine's limits and other programs."""
    from heomdask.cli.bench import bench as run_bench

    run_bench(_console, quick, case or [], json, plot)


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration file."""
    from heomdask.cli.tables import schema as tables

    sys.stdout.write(json.dumps(tables(), indent=2) + "\n")


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of ours is a sentence; of anybody else's, Python shows also where it comes from."""
    del file
    if issubclass(category, HeomdaskWarning):
        text = f"[bold yellow]Warning:[/] {escape(str(message))}"
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def main() -> None:
    """Run the command line; an error of ours is one sentence and exit status 2."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app(standalone_mode=True)
    except HeomdaskError as error:
        text = f"[bold red]Error:[/] {escape(str(error))}"
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
        sys.exit(2)
