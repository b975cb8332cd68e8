"""Checks heomdask on an NVIDIA GPU: python deploy/gpu_check.py [--out FOLDER] [--only STAGE ...].

Needs a clone with its tests, an installed heomdask with CuPy, and pytest with hypothesis. It takes
about seven minutes. Each stage is a process of its own, since an error of the card would spoil all
that follows in one, and has a deadline; what it has found by then is kept. `report.json` is written
after each stage. `--dry` runs every stage on a stand-in for CuPy, with tiny sizes.

The exit status is 0 if no stage failed or ran out of time. Speeds are reported, never judged.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np
from gpuless import everything, faults, nvrtc, speed
from gpuless.halves import halves_apart

import heomdask as hd
from heomdask._cuda import device as device_module
from heomdask._cuda import probe
from heomdask.backends.cupy_ import CupyBackend
from heomdask.backends.native import NativeBackend
from heomdask.backends.traits import TRAJECTORY_TOLERANCE, Selection
from heomdask.bench import cases
from heomdask.errors import HeomdaskError, TooLarge
from heomdask.testing.random_plans import Case

MOST_SECONDS = 420  # of all stages together
MORE_REGISTERS = 8  # than the table of ptxas has, which is of one release of the compiler
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
CONTROLS = {  # what a tool must find, or its silence means nothing
    "memcheck": ("no guard at the end",),
    "racecheck": ("a late read", "no barrier between the products"),
}
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
Facts = Iterator[tuple[str, Any]]


class Failed(Exception):
    """What a stage found wrong, in a sentence."""


class LeftOut(Exception):
    """Why a stage cannot be run here."""


class Lab:
    """The card, or what stands for it, and sizes to match."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.out = Path(given.out).absolute()
        self.dry: bool = given.dry
        self.watched: str = given.watched

    @functools.cached_property
    def api(self) -> Any:
        if not self.dry:
            return probe.load()
        from gpuless.emulator import Compiler
        from gpuless.strict import StrictCupy

        (self.out / "kernels").mkdir(exist_ok=True)
        return StrictCupy(Compiler(self.out / "kernels", self.watched))

    @property
    def nccl(self) -> Any:
        if self.dry:
            from gpuless.one_rank import one_rank

            return one_rank()
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where the library is missing
            from cupy.cuda import nccl
        return nccl

    def backend(self) -> CupyBackend:
        return CupyBackend(api=self.api)

    def pick(self, real: Any, tiny: Any) -> Any:
        return tiny if self.dry else real

    def this(self, *options: str) -> list[str]:
        """The command that runs this program again."""
        dry = ["--dry"] if self.dry else []
        return [sys.executable, __file__, "--out", str(self.out), *dry, *options]


# ------------------------------------------------------------------------------------ stages


def detection(lab: Lab) -> Facts:
    """Versions, driver, card."""
    yield (
        "heomdask",
        f"{hd.__version__}, Python {platform.python_version()}, numpy {np.__version__}",
    )
    api = lab.api
    if (found := probe.cause(api)) is not None:
        raise Failed("; ".join(found))
    runtime = api.cuda.runtime
    yield "cupy", f"{api.__version__} for CUDA {runtime.runtimeGetVersion()}"
    yield "driver", runtime.driverGetVersion()
    yield "nvrtc", list(api.cuda.nvrtc.getVersion())
    info = lab.backend().info
    yield "card", f"{info.device}, {info.isa}"
    yield "bytes free, in all", list(runtime.memGetInfo())
    if smi := shutil.which("nvidia-smi"):
        yield "nvidia-smi", subprocess.run([smi], capture_output=True, text=True).stdout


def compilation(lab: Lab) -> Facts:
    """Every variant on this card; registers and spills as they were predicted."""
    device, known = lab.backend()._device, json.loads(nvrtc.BASELINE.read_text())
    wrong, whole = [], time.perf_counter()
    for name in lab.pick(list(nvrtc.VARIANTS), ["apply real d=2", "vectors real double"]):
        file, macros = nvrtc.VARIANTS[name]
        began = time.perf_counter()
        kernels = re.findall(r"HD_KERNEL void (\w+)", device_module.source(file))
        made = {k: device._kernel(file, k, macros) for k in kernels}
        used = {k: (f.num_regs, f.local_size_bytes) for k, f in made.items()}
        yield name, {"seconds": time.perf_counter() - began, "registers, bytes spilled": used}
        for kernel, (registers, spilled) in used.items():
            at = f"{device.capability} {name}: {kernel}"
            if registers > known.get(at, [registers])[0] + MORE_REGISTERS:
                yield f"more registers than predicted, {at}", [registers, known[at][0]]
            if spilled:
                wrong.append(f"{at} has {spilled} bytes spilled")
    yield "seconds", time.perf_counter() - whole
    if wrong:
        raise Failed("; ".join(wrong))


def golden(lab: Lab) -> Facts:
    """The bits of the host, three times, each with a stream of its own."""
    wrong = []
    for case in lab.pick(everything.HASHED, everything.HASHED[:2]):
        want = everything.golden(case)
        found = [everything.digest(lab.backend(), case) for _ in range(lab.pick(3, 1))]
        moving = " and moving" * (len(set(found)) > 1)
        yield str(case), "as on the host" if set(found) == {want} else f"other bits{moving}"
        if set(found) != {want}:
            wrong.append(f"{case}{moving}")
    if wrong:
        raise Failed(f"other bits than on the host: {', '.join(wrong)}")


def conformance(lab: Lab) -> Facts:
    """The suite, and what else has the mark gpu."""
    chosen = lab.pick(["-m", "gpu"], ["-k", "Emulated and input_is_left_alone and d2"])
    xml = lab.out / "conformance.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={xml}",
         *chosen, "tests/conformance/test_cupy.py", "tests/gpuless/test_kernels.py"],
        cwd=ROOT, check=False,
    )  # fmt: skip
    suite = ET.parse(xml).getroot().find("testsuite")
    assert suite is not None
    counts = {k: int(suite.attrib[k]) for k in ("tests", "failures", "errors", "skipped")}
    yield "counts", counts
    bad = [c.attrib["name"] for c in suite if {e.tag for e in c} & {"failure", "error"}]
    if bad or counts["errors"] or counts["skipped"] or not counts["tests"]:
        raise Failed(f"of {counts}, these failed: {', '.join(bad) or 'none'}")


def physics(lab: Lab) -> Facts:
    """Whole runs by this backend and by the compiled one."""
    x, z = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
    fmo, spin = cases.FMO_7.problem(), cases.SPIN_BOSON.problem()
    pair = hd.Exponents(c=[0.2, 0.1], gamma=[0.5 + 1.0j, 0.5 - 1.0j])
    undamped = hd.Problem(0.5 * x, [hd.Coupling(z, pair)])
    driven = hd.Problem(spin.H, spin.couplings, drives=[(np.cos, x)])
    own = {7: cases.FMO_7.expansion, 2: cases.SPIN_BOSON.expansion}
    runs = {
        "fmo": (fmo, lab.pick(4, 1), lab.pick(200.0, 10.0)),
        "spin-boson": (spin, lab.pick(12, 2), lab.pick(20.0, 1.0)),
        "complex plan": (undamped, lab.pick(12, 2), lab.pick(20.0, 1.0)),
        "drive": (driven, lab.pick(10, 2), lab.pick(10.0, 0.5)),
    }
    worst = 0.0
    for name, (problem, depth, end) in runs.items():
        times, d = np.linspace(0.0, end, 5), len(problem.H)
        begin = np.eye(d)[0]
        ours, theirs = (
            hd.evolve(problem, begin, times, depth=depth, expansion=own[d], tol=1e-12, backend=b)
            for b in (lab.backend(), NativeBackend(threads=1))
        )
        apart = float(np.abs(ours.rho - theirs.rho).max())
        yield name, {"apart": apart, "form": ours.stats["form"], "n_ado": ours.stats["n_ado"]}
        worst = max(worst, apart if np.isfinite(apart) else np.inf)
    if not worst <= TRAJECTORY_TOLERANCE["float64"]:
        raise Failed(f"{worst:.1e} apart from the compiled kernels")


def sanitizers(lab: Lab) -> Facts:
    """NVIDIA's sanitizers find nothing in the kernels, and find the faults that are put in."""
    program = [shutil.which("compute-sanitizer") or ""]
    if lab.dry:
        program = [sys.executable, str(ROOT / "tests" / "gpuless" / "sanitizer.py")]
    if not program[0]:
        raise LeftOut("compute-sanitizer was not found")
    wrong = []
    for tool in lab.pick(TOOLS, ("memcheck",)):
        for fault in ("none", *CONTROLS.get(tool, ())):
            result = subprocess.run(
                [*program, "--tool", tool, "--error-exitcode", "9", *lab.this("--kernels", fault)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            print(result.stdout)
            said = SUMMARY.search(result.stdout)
            yield f"{tool}, {fault}", said[0] if said else "no summary: nothing was watched"
            found = said is not None and int(said[1]) > 0
            right = found if fault != "none" else said and not found and not result.returncode
            if not right:
                wrong.append(f"{tool} with the fault {fault!r}")
    if wrong:
        raise Failed(f"not as it should be: {', '.join(wrong)}")


def streams(lab: Lab) -> Facts:
    """What one stream has made another uses, behind a mark and behind much work."""
    case = Case(seed=7, d=7, members=lab.pick(64, 1), form="real", modes=3, depth=lab.pick(8, 1))
    plan, (one, two) = case.plan(), (lab.backend(), lab.backend())
    compiled = one.compile(plan)
    x, out, seen = one.put(compiled, case.state(plan)), one.empty(compiled), two.empty(compiled)
    two.sync()
    for turn in range(lab.pick(20, 2)):
        for _ in range(lab.pick(50, 2)):
            one.apply(compiled, x, out, a=turn + 1.0)
        two.wait(one.mark())
        two.combine(compiled, seen, [1.0], [out])
        mark = two.mark()
        if not np.array_equal(two.fetch(compiled, seen), one.fetch(compiled, out)):
            raise Failed(f"turn {turn}: another stream saw other numbers")
        one.wait(mark)
    yield "turns", turn + 1


def memory(lab: Lab) -> Facts:
    """The pool holds what was predicted, gives it back, and running out is said in a sentence."""
    backend, pool = lab.backend(), lab.api.get_default_memory_pool()
    case = Case(seed=3, d=7, members=lab.pick(100, 2), form="complex", modes=3, depth=3)
    before = pool.used_bytes()
    compiled = backend.compile(case.plan())
    states = [backend.empty(compiled) for _ in range(3)]
    found, want = pool.used_bytes() - before, compiled.nbytes + 3 * compiled.state_nbytes
    yield "bytes of three states, and predicted", [found, want]
    del states
    pool.free_all_blocks()
    pool.set_limit(size=pool.used_bytes() + compiled.state_nbytes)
    kept = [backend.empty(compiled)]
    try:
        kept.append(backend.empty(compiled))
        raise Failed("two states went into the room of one")
    except TooLarge as error:
        yield "said", str(error)
    pool.set_limit(size=0)
    kept.append(backend.empty(compiled))
    backend.sync()
    del kept, compiled
    yield "bytes left behind", pool.used_bytes() - before
    lab.backend()
    yield "bytes of the pool after the next start", pool.total_bytes()
    if found != want or pool.used_bytes() != before:
        raise Failed(f"{found} bytes for {want}, {pool.used_bytes() - before} left behind")


def nccl(lab: Lab) -> Facts:
    """One rank sends itself what it has packed; two need two cards."""
    library = lab.nccl
    if not library.available:
        raise LeftOut("CuPy finds no NCCL")
    yield "version", library.get_version()
    case = Case(seed=5, d=3, members=2, form="real")
    backend, plan = lab.backend(), case.plan()
    compiled, chosen = backend.compile(plan), Selection.whole([0, plan.n_rows - 1], 3)
    sent = backend.pack(compiled, backend.put(compiled, case.state(plan)), chosen)
    came, stream = backend._device.zeros(sent.shape, sent.dtype), backend._device.stream
    communicator, count = library.NcclCommunicator(1, library.get_unique_id(), 0), sent.nbytes // 8
    backend.sync()
    library.groupStart()
    communicator.send(sent.data.ptr, count, library.NCCL_FLOAT64, 0, stream.ptr)
    communicator.recv(came.data.ptr, count, library.NCCL_FLOAT64, 0, stream.ptr)
    library.groupEnd()
    backend.sync()
    if not np.array_equal(backend.host(came), backend.host(sent)):
        raise Failed("what came is not what was sent")
    communicator.destroy()
    yield "numbers", count


def processes(lab: Lab) -> Facts:
    """Two processes on this card, each with half of the ADOs; the halo goes over the host."""
    made = functools.partial(Lab, argparse.Namespace(out=lab.out, dry=lab.dry, watched=""))
    apart = halves_apart(made)
    yield "apart", apart
    if not apart <= 1e-12:
        raise Failed(f"two processes are {apart:.1e} apart from one")


STAGES: dict[str, tuple[int, Callable[[Lab], Facts]]] = {  # seconds that it may take
    "detection": (30, detection), "compilation": (60, compilation), "golden": (40, golden),
    "conformance": (120, conformance), "physics": (50, physics), "sanitizers": (110, sanitizers),
    "streams": (20, streams), "memory": (20, memory), "throughput": (70, speed.throughput),
    "batches": (40, speed.batches), "nccl": (20, nccl), "processes": (45, processes),
}  # fmt: skip


# -------------------------------------------------------------------------------- running them


def run_stage(lab: Lab, name: str) -> None:
    """A stage in this process: each fact is a line of its file, the last says how it ended."""
    with (lab.out / f"{name}.facts").open("w", encoding="utf-8", buffering=1) as file:

        def say(key: str, value: Any) -> None:
            file.write(json.dumps([key, value]) + "\n")

        end, why = "passed", ""
        try:
            for key, value in STAGES[name][1](lab):
                say(key, value)
        except LeftOut as error:
            end, why = "left out", str(error)
        except (Failed, HeomdaskError) as error:
            end, why = "failed", str(error)
        say("end", [end, why])


def watch_stage(lab: Lab, name: str, seconds: float) -> dict[str, Any]:
    """A stage in a process of its own, which ends at its deadline with all that it started."""
    facts, log = lab.out / f"{name}.facts", lab.out / f"{name}.log"
    facts.unlink(missing_ok=True)
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            lab.this("--stage", name), stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "CUPY_CACHE_DIR": str(lab.out / "cache")},
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        late = process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    found = dict(json.loads(line) for line in lines)
    lines = log.read_text(errors="replace").strip().splitlines()
    broken = f"it ended with status {process.returncode}: {lines[-1] if lines else ''}"
    end = found.pop("end", ["out of time", f"{seconds:.0f} s"] if late else ["failed", broken])
    took = round(time.monotonic() - began, 1)
    return {"end": end[0], "why": end[1], "seconds": took, "facts": found}


def run_kernels(lab: Lab, name: str) -> None:
    """Every kernel once, with a fault, for what watches this process."""
    plain = device_module.source
    if name != "none":
        device_module.source = lambda file: faults.BY_NAME[name].put_into(plain(file))
    if not lab.dry:
        lab.api.cuda.set_allocator(None)  # a pool would hide what is written past an array
    everything.digest(lab.backend(), faults.CASES[0], ("float64",))


def run_all(lab: Lab, names: list[str], most: float, scale: float) -> int:
    """All stages, one after the other; the number that failed."""
    began, stages = time.monotonic(), {}
    report = {"dry": lab.dry, "began": time.strftime("%Y-%m-%d %H:%M:%S"), "stages": stages}
    for name in names:
        left = most * scale - (time.monotonic() - began)
        stages[name] = watch_stage(lab, name, max(min(STAGES[name][0] * scale, left), 0.0))
        (lab.out / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        print("{0:<12} {end}, {seconds} s {why}".format(name, **stages[name]), flush=True)
        for key, value in stages[name]["facts"].items():
            print(f"  {key}: {text(value)}")
        if name == "detection" and stages[name]["end"] == "failed":
            break
    bad = [name for name, stage in stages.items() if stage["end"] in ("failed", "out of time")]
    print(f"{len(stages) - len(bad)} of {len(names)} stages are well; see {lab.out}/report.json")
    return len(bad)


def text(value: Any) -> str:
    """A fact on a line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(part)}" for key, part in value.items())
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check heomdask on a GPU.")
    parser.add_argument("--out", default="gpu-check", help="folder of the report and the logs")
    parser.add_argument("--dry", action="store_true", help="on a stand-in for CuPy, tiny sizes")
    parser.add_argument("--only", nargs="+", choices=STAGES, help="these stages")
    parser.add_argument("--scale", type=float, default=1.0, help="of all deadlines")
    for hidden in ("--stage", "--kernels", "--watched"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    lab = Lab(given)
    lab.out.mkdir(parents=True, exist_ok=True)
    if given.stage:
        run_stage(lab, given.stage)
    elif given.kernels:
        run_kernels(lab, given.kernels)
    else:
        return int(run_all(lab, given.only or list(STAGES), MOST_SECONDS, given.scale) > 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
