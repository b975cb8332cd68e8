"""Assembled matrices applied by Intel's Math Kernel Library: fast where nothing is compiled.

Takes: a `Plan`.
Gives: `MklBackend`. The state is that of `backends/host.py`; a compiled plan holds, per member,
    a sparse matrix of all that is constant and one for each named scalar.
Next file: `backends/native.py`, fused C++ kernels without any matrix.

Two things keep the matrices small. Members with equal numbers share one. And from `DENSE_FROM`
levels on, what maps each ADO to itself, all in the same way (the system's own part), is left out
of the sparse matrix: one dense (d^2, d^2) block does it, if that is filled well enough. So members
that differ in their Hamiltonian only, as with static disorder, share all that is large.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask import checks, memory, topology
from heomdask.backends import mkl_library
from heomdask.backends.host import HostBackend, aligned, numbers, weighted
from heomdask.backends.mkl_library import Factor
from heomdask.backends.traits import BackendInfo, Compiled, Weight, state_dtype
from heomdask.plan import AnyArray, Plan, Scalars, Shift

DENSE_FROM = 6  # levels: below, the product with a block costs more than its few elements
DENSE_FILL = 10  # a block is dense if one element of so many is not zero
ASSEMBLY_BYTES = 100  # per element, while the terms are added up
THREAD_ELEMENTS = 3_000  # of a member's state: what one thread works through while others start

_LIBRARY = mkl_library.load()


@dataclass(frozen=True, eq=False)
class Part:
    """The part of G that goes with one named scalar, or, if `name` is None, the constant one.

    Each of `layers` has one factor per member; the part is the sum over the layers.
    """

    name: str | None
    layers: tuple[tuple[Factor, ...], ...]


@dataclass(frozen=True, eq=False)
class MklCompiled:
    """A plan with its matrices, and the threads that are worth their while for it."""

    plan: Plan
    dtype: np.dtype[Any]
    parts: tuple[Part, ...]
    threads: int

    @property
    def nbytes(self) -> int:
        factors = [f for part in self.parts for layer in part.layers for f in layer]
        return self.plan.nbytes + sum({id(f): f.nbytes for f in factors}.values())

    def multiply(
        self, m: int, a: Any, x: AnyArray, c: Any, y: AnyArray,
        names: Mapping[str, NDArray[np.float64]],
    ) -> None:  # fmt: skip
        """``y <- a G x + c y`` of one member."""
        for part in self.parts:
            scaled = a
            if part.name is not None:
                values = names[part.name]
                scaled = a * float(values[m if len(values) > 1 else 0])
            for layer in part.layers:
                layer[m].multiply(scaled, x, c, y)
                c = 1.0


class MklBackend(HostBackend):
    """Sparse matrices, made and inspected once, applied member by member."""

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            checks.whole_number("threads", threads, low=1)
        self._threads = _LIBRARY.most_threads(threads or len(topology.allowed()))

    @property
    def info(self) -> BackendInfo:
        return BackendInfo(
            "mkl", "cpu", _LIBRARY.isa, ("float64", "float32"), self._threads, True,
            notes=f"MKL {_LIBRARY.version}, {_LIBRARY.threading}",
        )  # fmt: skip

    def compile(self, plan: Plan, dtype: str = "float64") -> MklCompiled:
        full = state_dtype(plan, dtype)
        elements = plan.n_rows * plan.d * plan.d
        threads = max(1, min(self._threads, elements // THREAD_ELEMENTS))
        with _LIBRARY.threads(threads):
            parts = [_part(plan, name, full) for name in (None, *plan.names)]
        return MklCompiled(plan, full, tuple(parts), threads)

    def apply(
        self,
        compiled: Compiled,
        x: AnyArray,
        out: AnyArray,
        *,
        a: Weight = 1.0,
        b: Weight = 0.0,
        c: Weight = 0.0,
        acc: AnyArray | None = None,
        w: Weight = 0.0,
        scalars: Scalars | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        assert isinstance(compiled, MklCompiled)
        plan = compiled.plan
        names = plan.named(scalars)
        whole = rows is None or rows == (0, plan.n_rows)
        mine = slice(*((0, plan.n_rows) if rows is None else rows))
        weights = zip(*(numbers(v, plan.n_members) for v in (a, b, c, w)), strict=True)
        with np.errstate(all="ignore"), _LIBRARY.threads(compiled.threads):
            for m, (am, bm, cm, wm) in enumerate(weights):
                target = out[m, mine]
                if am == 0:
                    target[...] = weighted(cm, target)
                elif whole:
                    compiled.multiply(m, am, x[m], cm, target, names)
                else:
                    image = aligned((plan.n_rows, plan.d, plan.d), compiled.dtype)
                    compiled.multiply(m, am, x[m], 0.0, image, names)
                    target[...] = weighted(cm, target) + image[mine]
                if bm != 0:
                    target += bm * x[m, mine]
                if acc is not None and wm != 0:
                    acc[m, mine] += wm * target.astype(acc.dtype, copy=False)


def _part(plan: Plan, name: str | None, dtype: np.dtype[Any]) -> Part:
    """The terms with this name, as factors."""

    def sparse(terms: Plan, m: int) -> Factor:
        elements = _addends(terms, m)
        memory.require(
            ASSEMBLY_BYTES * elements,
            f"A sparse matrix of {elements:,} elements",
            "use backend='native' or 'numpy', which need none, or lower `depth`",
        )
        return _LIBRARY.sparse(terms.to_sparse(m), dtype)

    def local(terms: Plan, m: int) -> Factor:
        block = terms.take([m]).common_blocks()[0]
        if np.count_nonzero(block) * DENSE_FILL < block.size:
            return sparse(terms, m)
        return _LIBRARY.dense(block, plan.n_rows, dtype)

    own = _only(plan, lambda shift: shift.name == name)
    within = _only(own, lambda shift: plan.patterns[shift.pattern].is_identity)
    if plan.d < DENSE_FROM or not within.terms:
        return Part(name, (_layer(own, sparse),))
    links = _only(own, lambda shift: not plan.patterns[shift.pattern].is_identity)
    return Part(name, (_layer(within, local), _layer(links, sparse)))


def _addends(terms: Plan, m: int) -> int:
    """What is to be added up to the matrix of a member, at most."""
    total = 0
    for term in terms.terms:
        sides = (term.left, term.right)
        small = [terms.d if op is None else int(np.count_nonzero(op.of(m))) for op in sides]
        patterns = (terms.patterns[shift.pattern] for shift in term.shifts)
        total += math.prod(small) * sum(len(p.entries()[0]) for p in patterns)
    return total


def _only(plan: Plan, wanted: Callable[[Shift], bool]) -> Plan:
    """The plan of some of the shifts, without their names."""
    kept = [
        dataclasses.replace(
            term,
            shifts=tuple(dataclasses.replace(s, name=None) for s in term.shifts if wanted(s)),
        )
        for term in plan.terms
    ]
    return dataclasses.replace(plan, terms=tuple(term for term in kept if term.shifts), names=())


def _layer(terms: Plan, make: Callable[[Plan, int], Factor]) -> tuple[Factor, ...]:
    """A factor per member; members with equal numbers share one."""
    digests = terms.member_digests()
    examples = {digest: m for m, digest in enumerate(digests)}
    made = {digest: make(terms, m) for digest, m in examples.items()}
    return tuple(made[digest] for digest in digests)
