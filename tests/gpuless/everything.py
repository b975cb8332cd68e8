"""One run of every kernel on a small problem, as arrays or as a hash of all their bits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from heomdask.backends.cupy_ import CupyBackend
from heomdask.backends.traits import Selection
from heomdask.plan import AnyArray
from heomdask.testing.oracle import per_member
from heomdask.testing.random_plans import Case

GOLDEN = Path(__file__).with_name("golden.json")
HASHED = [
    Case(seed=90 + d, d=d, members=m, form=form, modes=2, depth=2, names=names)
    for d, m, names in [(2, 1, ()), (2, 5, ("f",)), (3, 2, ()), (7, 1, ()), (17, 1, ())]
    for form in ("complex", "real")
]


def results(backend: CupyBackend, case: Case, dtype: str = "float64") -> list[AnyArray]:
    """States, sums, norms, chosen elements."""
    plan = case.plan()
    compiled = backend.compile(plan, dtype)
    x, y, z = (backend.put(compiled, case.state(plan, k).astype(compiled.dtype)) for k in range(3))
    a, b, c, w = per_member(case, plan, 4)
    backend.apply(compiled, x, y, a=a, b=b, c=c, acc=z, w=w, scalars=case.scalars(plan))
    total = backend.empty(compiled)
    backend.combine(compiled, total, [a, b, c], [x, y, z])
    chosen = Selection.whole([plan.n_rows - 1, 0], plan.d)
    backend.unpack(compiled, backend.pack(compiled, y, chosen), chosen, x)
    return [
        *(backend.fetch(compiled, state) for state in (x, y, z, total)),
        backend.dots(compiled, [x, y], z),
        backend.error_norm(compiled, x, y, z, 1e-3, 0.5),
    ]


def digest(
    backend: CupyBackend, case: Case, dtypes: tuple[str, ...] = ("float64", "float32")
) -> str:
    """The hash of the results in these precisions."""
    hashed = hashlib.sha256()
    for dtype in dtypes:
        for result in results(backend, case, dtype):
            hashed.update(np.ascontiguousarray(result).tobytes())
    return hashed.hexdigest()


def golden(case: Case) -> str:
    """The digest of a case as it was when the kernels were written."""
    return str(json.loads(GOLDEN.read_text(encoding="utf-8"))[str(case)])
