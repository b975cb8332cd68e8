"""The preconditioner of stationary problems: a matrix continued fraction, level by level.

Takes: a compiled plan of one member, a shift sigma.
Gives: `Level`, what of the plan the preconditioner needs, and `Fraction`, ``out <- M^-1 v``.
Next file: `steady.py`.

The level of a row is its distance from row 0, so that links join rows of one level or of adjacent
ones. Rows of a level that links join are a cluster; most clusters are of one row, but the first
levels are one together. The levels are eliminated from the last to the first, where each cluster
keeps what comes back to it from the next level,

    T_l = [ (B_l - sigma) - A_l,l+1 T_l+1 A_l+1,l ]^-1  of every cluster,

and B_l is what maps the cluster to itself. So M is ``G - sigma`` but for what two clusters of a
level tell each other by way of the next one. T holds the square of the unknowns of a cluster: where
that is too much for all levels, the last ones are left out, and solved row by row.

The trace is conserved, which makes the matrix of row 0 singular for sigma = 0: ``- rate |1/d><Tr|``
is added to it, and the trace of what comes out, which is arbitrary then, is removed. So all
that is ever added to a state has the trace 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, shortest_path

from heomdask.backends.traits import Selection, State
from heomdask.plan import AnyArray, Plan
from heomdask.solvers.gmres import Shifted

Ints = NDArray[np.int64]

CORE_UNKNOWNS = 500  # of the first levels, which are solved together as one
LARGEST_CLUSTER = 400  # unknowns; the rows of a larger one stand alone
AT_ONCE = 1000  # unknowns of a level that are eliminated together


@dataclass(frozen=True, eq=False)
class Level:
    """The rows of a level, those of a cluster side by side, and G between them and around.

    Attributes
    ----------
    rows : (n,), in the plan.
    clusters : (how many, unknowns of each), in the order of the rows.
    own : rows by rows.
    inward, outward : rows of the level before by rows, and the reverse; empty for level 0.
    """

    rows: Ints
    clusters: tuple[tuple[int, int], ...]
    own: sp.csr_array
    inward: sp.csr_array
    outward: sp.csr_array

    def parts(self) -> Iterator[tuple[slice, int, int]]:
        """The unknowns of clusters of one size, how many clusters, and their size."""
        start = 0
        for count, size in self.clusters:
            yield slice(start, start + count * size), count, size
            start += count * size


def levels_of(plan: Plan, most: float) -> list[Level]:
    """The first levels of the plan's only member: as many as make `most` numbers of T at most."""
    d2 = plan.d**2
    level, label = _clusters(plan)
    size = np.bincount(label)[label] * d2  # of each row's cluster
    numbers = np.cumsum(np.bincount(level, weights=(level > 0) * size * float(d2)))
    n_levels = max(1, int(np.searchsorted(numbers, most, side="right")))
    order = np.lexsort((label, size, level))
    order = order[level[order] < n_levels]
    near = plan.to_sparse(rows=order, cols=order)
    found: list[Level] = []
    before = slice(0, 0)
    for rows in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
        here = slice(before.stop, before.stop + len(rows) * d2)
        sizes, counts = np.unique(size[rows], return_counts=True)
        clusters = tuple(zip((counts * d2 // sizes).tolist(), sizes.tolist(), strict=True))
        around = near[here, here], near[before, here], near[here, before]
        found.append(Level(rows, clusters, *around))
        before = here
    return found


def _clusters(plan: Plan) -> tuple[Ints, Ints]:
    """The level of each row, and a number that the rows of a cluster share."""
    joined = [pattern.entries()[:2] for pattern in plan.patterns if not pattern.is_identity]
    r, c = np.concatenate([np.zeros((2, 0), dtype=np.int64), *joined], axis=1)

    def graph(kept: NDArray[np.bool_]) -> sp.csr_array:
        ones, shape = np.ones(np.count_nonzero(kept)), (plan.n_rows, plan.n_rows)
        return sp.csr_array((ones, (r[kept], c[kept])), shape=shape)

    links = graph(r != c)
    distance = np.asarray(shortest_path(links, directed=False, unweighted=True, indices=0))
    farthest = float(np.max(distance[np.isfinite(distance)]))
    level = np.minimum(distance, farthest + 1).astype(np.int64)  # some may be out of reach
    inside = np.cumsum(np.bincount(level)) * plan.d**2 <= CORE_UNKNOWNS
    level = np.maximum(level - max(int(np.count_nonzero(inside)) - 1, 0), 0)
    count, label = connected_components(graph(level[r] == level[c]), directed=False)
    alone = (np.bincount(label) * plan.d**2 > LARGEST_CLUSTER)[label]
    label = np.where(alone, count + 1 + np.arange(plan.n_rows), label)
    return level, np.where(level == 0, count, label)


@dataclass(frozen=True, eq=False)
class Inverse:
    """T of a level: a stack of matrices for each size of its clusters."""

    level: Level
    stacks: tuple[AnyArray, ...]

    @classmethod
    def of(cls, level: Level, after: Inverse | None, sigma: float) -> Inverse:
        """Of a level, and the next one, if any."""
        following = None if after is None else after.matrix()
        stacks = []
        for part, count, size in level.parts():
            stack = np.zeros((count, size, size), dtype=level.own.dtype)
            step = max(1, AT_ONCE // size) * size
            for start in range(part.start, part.stop, step):
                some = slice(start, min(start + step, part.stop))
                block = level.own[some, some]
                if after is not None and following is not None:
                    links = after.level
                    block = block - links.inward[some] @ following @ links.outward[:, some]
                entries = block.tocoo()
                (k, i), (other, j) = (np.divmod(at, size) for at in (entries.row, entries.col))
                own = k == other
                first = (start - part.start) // size
                stack[first + k[own], i[own], j[own]] = entries.data[own]
            stacks.append(np.linalg.inv(stack - sigma * np.eye(size)))
        return cls(level, tuple(stacks))

    def matrix(self) -> sp.csr_array:
        """The same as a sparse matrix."""
        columns, lengths = [np.zeros(0, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
        for part, count, size in self.level.parts():
            every = np.arange(part.start, part.stop).reshape(count, 1, size)
            columns.append(np.repeat(every, size, axis=1).ravel())
            lengths.append(np.full(count * size, size))
        numbers = np.concatenate([stack.ravel() for stack in self.stacks])
        return sp.csr_array((numbers, np.concatenate(columns), np.cumsum(np.concatenate(lengths))))

    def __matmul__(self, x: AnyArray) -> AnyArray:
        parts = zip(self.stacks, self.level.parts(), strict=True)
        return np.concatenate(
            [(stack @ x[part].reshape(n, size, 1)).ravel() for stack, (part, n, size) in parts]
        )


class Fraction:
    """``out <- M^-1 v`` for one operator.

    Parameters
    ----------
    operator : ``G - sigma``; sigma > 0 keeps the blocks of a stable plan from being singular.
    levels : of the same plan, from the first.
    rate : positive, of the size of G: what the trace of row 0 decays with in M.
    """

    def __init__(self, operator: Shifted, levels: Sequence[Level], rate: float) -> None:
        plan = operator.compiled.plan
        self.operator, self.d = operator, plan.d
        trace = np.eye(self.d).ravel()
        i, j = np.nonzero(np.outer(trace, trace))
        sink = sp.csr_array((np.full(len(i), rate / self.d), (i, j)), shape=levels[0].own.shape)
        first = dataclasses.replace(levels[0], own=levels[0].own - sink)
        self.inverses: list[Inverse] = []  # from the last level to the first
        for level in reversed([first, *levels[1:]]):
            after = self.inverses[-1] if self.inverses else None
            self.inverses.append(Inverse.of(level, after, operator.sigma))
        rows = np.concatenate([level.rows for level in levels])
        self.ends = np.cumsum([len(level.rows) * self.d**2 for level in levels])
        self.near = Selection.whole(rows, self.d)
        self.is_whole = len(rows) == plan.n_rows

    def __call__(self, v: State, out: State) -> None:
        backend, compiled = self.operator.backend, self.operator.compiled
        if not self.is_whole:
            backend.solve_local(compiled, self.operator.sigma, v, out)
        near = backend.host(backend.pack(compiled, v, self.near))[:, 0]
        parts = np.split(near, self.ends[:-1])[::-1]  # views, in the order of the inverses
        for inverse, own, before in zip(self.inverses, parts, [*parts[1:], None], strict=True):
            own[:] = inverse @ own
            if before is not None:
                before -= inverse.level.inward @ own
        first = parts[-1][: self.d**2].reshape(self.d, self.d)
        first -= np.trace(first) / self.d * np.eye(self.d)
        for inverse, own, before in reversed(
            list(zip(self.inverses[:-1], parts[:-1], parts[1:], strict=True))
        ):
            own -= inverse @ (inverse.level.outward @ before)
        backend.unpack(compiled, near[:, None], self.near, out)
