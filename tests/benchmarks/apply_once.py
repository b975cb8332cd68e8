"""One application for each plan and instruction set named on the command line, and no more.

To run under callgrind: ``python apply_once.py CASE:ISA ...``.
"""

from __future__ import annotations

import sys

import numpy as np

from heomdask.backends.native import NativeBackend
from heomdask.bench.cases import CASES


def main() -> None:
    cases = {case.name: case for case in CASES}
    for argument in sys.argv[1:]:
        name, isa = argument.split(":")
        plan = cases[name].plan()
        backend = NativeBackend(threads=1, isa=isa)
        compiled = backend.compile(plan)
        x = backend.put(compiled, np.ones((plan.n_cols, plan.d, plan.d, 1)))
        backend.apply(compiled, x, backend.empty(compiled))


if __name__ == "__main__":
    main()
