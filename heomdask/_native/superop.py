"""Superoperators on one ADO, in the forms that the kernels know.

Takes: `Part`: left and right operators with a scalar, transposed or not.
Gives: `Table`, the rows of numbers that kernels read, and `build_super`, offsets into it.
Next file: `lower.py`.

A sum of parts is kept as dense one-sided products, as dense two-sided ones, or element by element
as a sparse matrix (output, input, value) in which equal pairs are merged, so that what cancels
(Q X - X Q where q_i = q_j) is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.plan import AnyArray, Operator, Plan

Int32 = NDArray[np.int32]
Floats = NDArray[np.float64]
_ORDERS = 8  # of the summands of one output
_SIDES = (2, 3, 0, 1)  # one-sided products by offset, as they are summed
_LONGEST_RUN = 8
# offsets of left, right, left_t, right_t, full, each (-1: absent); sandwiches (n, 3); then
# output elements, where their entries start, input elements, rows of the values
SuperArrays = tuple[list[int], Int32, Int32, Int32, Int32, Int32]


@dataclass(frozen=True)
class Part:
    """``scalar * left X right``, transposed if so flagged; None is the identity."""

    left: Operator | None
    right: Operator | None
    transposed: bool
    scalar: AnyArray
    name: str | None


class Table:
    """Rows of numbers, one number per member; and what named scalars add to them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.size = 0
        self._rows: list[AnyArray] = []
        self._named: list[tuple[str, int, AnyArray]] = []

    def add(self, rows: AnyArray, name: str | None = None) -> int:
        """Append (n, 1) or (n, M) values; with a name, zeros to which it adds. The first row."""
        return self.add_sum(len(rows), {name: rows})

    def add_sum(self, n: int, rows: dict[str | None, AnyArray]) -> int:
        """Append the n rows named None, plus each named scalar times the rows of its name."""
        first = self.size
        self._rows.append(rows.get(None, np.zeros((n, 1))))
        self._named.extend((name, first, r) for name, r in rows.items() if name is not None)
        self.size += n
        return first

    def spread(self, rows: AnyArray) -> Floats:
        """(n, 1) or (n, M) values as (n, M, planes) doubles."""
        full = np.empty((len(rows), self.plan.n_members), dtype=self.plan.dtype)
        full[...] = rows
        planes = full.itemsize // np.dtype(np.float64).itemsize
        return full.view(np.float64).reshape(len(rows), self.plan.n_members, planes)

    def values(self) -> Floats:
        """All rows."""
        full = np.empty((self.size, self.plan.n_members), dtype=self.plan.dtype)
        at = 0
        for rows in self._rows:
            full[at : at + len(rows)] = rows
            at += len(rows)
        return self.spread(full)

    def contributions(self) -> list[tuple[int, Int32, Floats]]:
        """Name, rows and values of everything that named scalars multiply."""
        return [
            (
                self.plan.names.index(name),
                np.arange(first, first + len(rows), dtype=np.int32),
                self.spread(rows),
            )
            for name, first, rows in self._named
        ]


class _Sparse:
    """Entries (output, input, value) of superoperators, to be merged or kept in order."""

    def __init__(self, d: int) -> None:
        self.d = d
        self.keys: list[NDArray[np.int64]] = []
        self.values: list[tuple[str | None, AnyArray]] = []

    def add(self, part: Part, order: int = 0, moving: bool = False) -> None:
        """All entries of ``s L_ia R_bj``: output (i, j) from input (a, b).

        Entries with equal `order`, output and input are merged; the kernel sums those of one
        output by ascending `order`, then input. `moving`: without those that `_each` has.
        """
        d = self.d
        left, right = _array(part.left, d), _array(part.right, d)
        i, a = np.nonzero(np.any(left != 0, axis=0))
        b, j = np.nonzero(np.any(right != 0, axis=0))
        product = left[:, i, a][:, :, None] * right[:, b, j][:, None, :]
        product = part.scalar[:, None, None] * product
        out = j[None, :] * d + i[:, None] if part.transposed else i[:, None] * d + j[None, :]
        key = (out * _ORDERS + order) * d**2 + a[:, None] * d + b[None, :]
        kept = np.full(key.shape, not moving or part.transposed) | (i != a)[:, None] | (b != j)
        self.keys.append(key[kept])
        self.values.append((part.name, product[:, kept].T))

    def finish(self, table: Table) -> tuple[Int32, Int32, Int32, Int32]:
        """Put the values into the table; outputs, starts, inputs, rows."""
        empty = np.zeros(0, dtype=np.int32)
        if not self.keys:
            return empty, np.zeros(1, dtype=np.int32), empty, empty
        pairs, where = np.unique(np.concatenate(self.keys), return_inverse=True)
        ends = np.cumsum([len(k) for k in self.keys])
        scattered = [
            (name, _scatter(len(pairs), where[end - len(v) : end], v))
            for end, (name, v) in zip(ends, self.values, strict=True)
        ]
        sums = _by_name(scattered)
        kept = np.any([np.any(v != 0, axis=1) for v in sums.values()], axis=0)
        pairs = pairs[kept]
        first = table.add_sum(len(pairs), {name: v[kept] for name, v in sums.items()})
        outputs, starts = np.unique(pairs // (_ORDERS * self.d**2), return_index=True)
        return (
            outputs.astype(np.int32),
            np.append(starts, len(pairs)).astype(np.int32),
            (pairs % self.d**2).astype(np.int32),
            np.arange(first, first + len(pairs), dtype=np.int32),
        )


def build_super(table: Table, parts: Sequence[Part]) -> SuperArrays:
    """The sum of the parts of a group, in the form that costs the kernels least.

    Which one depends on where the operators have elements, and for the members of a group of
    hierarchies that is the same by specification.
    """
    d = table.plan.d
    sided, other = _sort(parts)
    sparse, offsets = _Sparse(d), [-1] * 6
    for part in other:
        sparse.add(part)
    for side, mine in sided.items():
        if sum(_filled(_one(p)) for p in mine) <= d * d // 2:
            for part in mine:
                sparse.add(part)
        else:
            offsets[side] = _dense(table, mine)
    return (offsets, np.zeros((0, 3), dtype=np.int32), *sparse.finish(table))


def runs_of(arrays: SuperArrays) -> Int32:
    """A superoperator with one entry per element as runs (in, din, out, dout, value, n); n <= 8.

    None if it is of another kind. Elements of a run are equally spaced, at both ends.
    """
    if not _one_each(arrays):
        return np.zeros((0, 6), dtype=np.int32)
    _, _, outputs, _, inputs, values = arrays
    runs: list[list[int]] = []
    for i, o, v in zip(inputs.tolist(), outputs.tolist(), values.tolist(), strict=True):
        last = runs[-1] if runs else [0] * 5 + [_LONGEST_RUN]
        n = last[5]
        fits = i == last[0] + n * last[1] and o == last[2] + n * last[3] and v == last[4] + n
        if n == 1:
            last[1], last[3] = i - last[0], o - last[2]
            fits = v == last[4] + 1
        if fits and n < _LONGEST_RUN:
            last[5] += 1
        else:
            runs.append([i, 0, o, 0, v, 1])
    return np.array(runs, dtype=np.int32).reshape(-1, 6)


def elements_read(d: int, arrays: SuperArrays) -> Int32:
    """The elements of its argument that a superoperator reads."""
    offsets, sandwiches, _, _, inputs, _ = arrays
    if any(o >= 0 for o in offsets) or len(sandwiches):
        return np.arange(d * d, dtype=np.int32)
    return np.unique(inputs).astype(np.int32)


def _one_each(arrays: SuperArrays) -> bool:
    """Whether every output has one entry and every input is read once."""
    offsets, sandwiches, _, starts, inputs, _ = arrays
    sparse = not len(sandwiches) and all(o < 0 for o in offsets)
    return sparse and bool(np.all(np.diff(starts) == 1)) and len(np.unique(inputs)) == len(inputs)


def build_local(table: Table, parts: Sequence[Part]) -> SuperArrays:
    """The sum of all parts without a shift: its bits do not depend on which elements are zero.

    One system of two levels is a full (4, 4) matrix. Otherwise every form sums an output in one
    order: what it takes from the same element (`each`), one-sided products as in `_SIDES`, the
    rest. Dense products come before entries, so all sides up to the last that is worth it are
    dense. What is zero is left out: to add it would change nothing.
    """
    d = table.plan.d
    sparse, offsets, sandwiches = _Sparse(d), [-1] * 6, []
    if d == 2:
        offsets[4] = _full(table, parts)
        return (offsets, np.zeros((0, 3), dtype=np.int32), *sparse.finish(table))
    sided, other = _sort(parts)
    for part in other if d > 8 else ():
        if part.left is not None and _entries(part) > 4 * d**2:
            sandwiches.append(_sandwich(table, part))
    other = [p for p in other if d <= 8 or p.left is None or _entries(p) <= 4 * d**2]
    offsets[5] = _each(table, [p for mine in (*sided.values(), other) for p in mine])
    rest = [[_moving(p) for p in sided.get(side, [])] for side in _SIDES]
    filled = [sum(_filled(_one(p)) for p in mine) for mine in rest]
    dense = max((n + 1 for n, count in enumerate(filled) if count > d * d // 4), default=0)
    for n, mine in enumerate(rest):
        if n < dense and filled[n]:
            offsets[_SIDES[n]] = _dense(table, mine)
        for part in () if n < dense else mine:
            sparse.add(part, n)
    for part in other:
        sparse.add(part, _ORDERS - 1, moving=True)
    return (offsets, np.array(sandwiches, dtype=np.int32).reshape(-1, 3), *sparse.finish(table))


def _each(table: Table, parts: Sequence[Part]) -> int:
    """What the parts give an element times itself, as d*d rows of the table; -1 if nothing."""
    d = table.plan.d
    values = []
    for part in parts:
        if not part.transposed:
            left, right = (
                np.diagonal(_array(op, d), axis1=1, axis2=2) for op in (part.left, part.right)
            )
            product = part.scalar[:, None, None] * left[:, :, None] * right[:, None, :]
            values.append((part.name, product.reshape(-1, d * d).T))
    if not any(np.any(value) for _, value in values):
        return -1
    return table.add_sum(d * d, _by_name(values))


def _moving(part: Part) -> Part:
    """A one-sided part without what `_each` has of it."""
    if part.transposed:
        return part
    op = _one(part)
    rest = op.map(op.array * (1 - np.eye(op.array.shape[-1])))
    left, right = (rest, None) if part.left is not None else (None, rest)
    return Part(left, right, part.transposed, part.scalar, part.name)


def _sort(parts: Sequence[Part]) -> tuple[dict[int, list[Part]], list[Part]]:
    """One-sided parts by side (left, right, left transposed, right transposed), and the others."""
    sided: dict[int, list[Part]] = {}
    other = []
    for part in parts:
        if (part.left is None) == (part.right is None):
            other.append(part)
        else:
            side = (0 if part.left is not None else 1) + 2 * int(part.transposed)
            sided.setdefault(side, []).append(part)
    return dict(sorted(sided.items())), other


def _full(table: Table, parts: Sequence[Part]) -> int:
    """The sum of the parts as a dense (d*d, d*d) matrix."""
    d = table.plan.d
    swap = np.arange(d * d).reshape(d, d).T.ravel()
    matrices = []
    for part in parts:
        left, right = _array(part.left, d), _array(part.right, d)
        small = np.einsum("mia,mbj->mijab", left, right).reshape(-1, d * d, d * d)
        small = part.scalar[:, None, None] * (small[:, swap] if part.transposed else small)
        matrices.append((part.name, small.reshape(-1, d**4).T))
    return table.add_sum(d**4, _by_name(matrices))


def _sandwich(table: Table, part: Part) -> tuple[int, int, int]:
    d = table.plan.d
    left, right = _array(part.left, d), _array(part.right, d)
    scaled = (part.scalar[:, None, None] * left).reshape(-1, d * d)
    first = table.add_sum(d * d, {part.name: scaled.T})
    second = table.add_sum(d * d, {None: right.reshape(-1, d * d).T})
    return first, second, int(part.transposed)


def _dense(table: Table, parts: Sequence[Part]) -> int:
    """The sum of one-sided operators as d*d rows of the table."""
    d = table.plan.d
    values = [
        (p.name, (p.scalar[:, None, None] * _one(p).array).reshape(-1, d * d).T) for p in parts
    ]
    return table.add_sum(d * d, _by_name(values))


def _by_name(values: Sequence[tuple[str | None, AnyArray]]) -> dict[str | None, AnyArray]:
    """The sum of all arrays with one name."""
    sums: dict[str | None, AnyArray] = {}
    for name, value in values:
        sums[name] = sums[name] + value if name in sums else value
    return sums


def _scatter(n: int, where: NDArray[np.int64], values: AnyArray) -> AnyArray:
    """An (n, m) array with `values` at the rows `where`, which are distinct."""
    result = np.zeros((n, values.shape[1]), dtype=values.dtype)
    result[where] = values
    return result


def _entries(part: Part) -> int:
    assert part.left is not None and part.right is not None
    return _filled(part.left) * _filled(part.right)


def _one(part: Part) -> Operator:
    """The only operator of a one-sided part."""
    op = part.left if part.left is not None else part.right
    assert op is not None
    return op


def _array(op: Operator | None, d: int) -> AnyArray:
    return np.eye(d)[None] if op is None else op.array


def _filled(op: Operator) -> int:
    return int(np.count_nonzero(np.any(op.array != 0, axis=0)))
