"""A program: every kernel once, with one fault after the other, under what watches this process.

Arguments: a folder, the check ("", "memory" or "races"), names of faults; the name "none" is the
kernels as they are. For each it prints "== name", then the hashes of all results, or what stopped
it; what watches writes between them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from gpuless.emulator import Compiler
from gpuless.everything import digest
from gpuless.faults import BY_NAME, CASES
from gpuless.places import last_places
from gpuless.strict import StrictCupy

from heomdask.backends.cupy_ import CupyBackend


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def run(folder: Path, check: str, name: str) -> None:
    edit = (lambda text: text) if name == "none" else BY_NAME[name].put_into
    compiler = Compiler(folder, check, edit)
    try:
        for order in (2,) if check else (0, 1, 2):
            for case in CASES if name == "none" else CASES[:1]:
                backend = CupyBackend(api=StrictCupy(compiler, order=order))
                say(digest(backend, case, ("float64",)))
        if check == "memory":
            say(f"places {last_places(compiler)}")
    except RuntimeError as error:
        say(f"stopped: {error}")


def main(folder: str, check: str, *names: str) -> None:
    for name in names:
        say(f"== {name}")
        child = os.fork()  # what one fault does, or is reported of it, does not concern the next
        if child == 0:
            run(Path(folder), check, name)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            say(f"stopped: {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
