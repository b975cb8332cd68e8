"""Who owns which ADO.

Takes: a `Numbering`, a number of parts, and what an ADO and a link cost.
Gives: `Lexicographic`, `Levels`, `Bisection`: the owner of a tuple, and the rows of a part.
Next file: `partition/part.py`, a plan for these rows.

Every strategy sorts the ADOs by a key that their tuples tell, and cuts where the parts have equal
work. The cuts come from a sample (of all ADOs, if they are few), so they are the same in every
process, and no process ever lists the hierarchy: what is kept is as large as the sample, and
`rows` goes through the others in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from heomdask import checks
from heomdask.hierarchy.numbering import Ints, Numbering

SAMPLE = 2**16  # ADOs whose work is looked at
PROBES = 2**11  # ADOs whose links decide where a bisection cuts
PIECE = 2**16  # ADOs that are listed at once


@dataclass(frozen=True)
class Work:
    """What an ADO costs by itself, and for each of its links, in the same unit."""

    own: float = 1.0
    link: float = 0.0

    def of(self, numbering: Numbering, indices: Ints) -> NDArray[np.float64]:
        """The work of each of the tuples (n, K); (n,)."""
        return self.own + self.link * numbering.links(indices).astype(np.float64)


class Split(Protocol):
    """Every ADO has one owner among `parts`."""

    numbering: Numbering
    parts: int

    def owner(self, indices: Ints) -> Ints:
        """The part that owns each of the tuples (n, K); (n,)."""
        ...

    def rows(self, part: int) -> Ints:
        """The ADOs that a part owns, ascending."""
        ...


def pieces(numbering: Numbering) -> Iterator[tuple[Ints, Ints]]:
    """All rows and their tuples, some at a time."""
    for start in range(0, numbering.n_ado, PIECE):
        rows = np.arange(start, min(start + PIECE, numbering.n_ado))
        yield rows, numbering.unrank(rows)


class _Cut:
    """What all strategies do alike, each with an `owner` of its own."""

    def __init__(self, numbering: Numbering, parts: int, work: Work | None = None) -> None:
        self.numbering = numbering
        self.parts = checks.whole_number("parts", parts, low=1)
        self._work = work or Work()

    def owner(self, indices: Ints) -> Ints:
        raise NotImplementedError

    def rows(self, part: int) -> Ints:
        checks.whole_number("part", part)
        own = [rows[self.owner(n) == part] for rows, n in pieces(self.numbering)]
        return np.concatenate(own)

    def _sample(self) -> tuple[Ints, NDArray[np.float64]]:
        """Tuples (n, K) spread evenly over all ADOs, and their work (n,)."""
        n = self.numbering.n_ado
        count = min(n, SAMPLE)
        rows = np.arange(count) * n // count
        indices = self.numbering.unrank(rows)
        return indices, self._work.of(self.numbering, indices)


class _Blocks(_Cut):
    """Blocks of ADOs that follow each other in the order of a key."""

    def __init__(self, numbering: Numbering, parts: int, work: Work | None = None) -> None:
        super().__init__(numbering, parts, work)
        indices, costs = self._sample()
        shares = np.arange(1, parts) / parts
        self._cuts = cuts(self.key(indices), costs, shares)

    def key(self, indices: Ints) -> Ints:
        """A whole number for each of the tuples (n, K); no two have the same."""
        raise NotImplementedError

    def owner(self, indices: Ints) -> Ints:
        return np.searchsorted(self._cuts, self.key(indices), side="right").astype(np.int64)


class Lexicographic(_Blocks):
    """Blocks of neighbouring rows: those of one part agree in the modes of the first sites."""

    def key(self, indices: Ints) -> Ints:
        return self.numbering.rank(indices)

    def rows(self, part: int) -> Ints:
        ends = np.concatenate([[0], self._cuts, [self.numbering.n_ado]])
        return np.arange(ends[part], ends[part + 1])


class Levels(_Blocks):
    """Blocks in the order of depth, ``sum_k n_k``; within a depth, of rows."""

    def key(self, indices: Ints) -> Ints:
        key: Ints = indices.sum(axis=1) * self.numbering.n_ado + self.numbering.rank(indices)
        return key


@dataclass(frozen=True, eq=False)
class _Node:
    """A cut in two: by ``form . n``, then by row. A leaf is the number of a part."""

    form: Ints
    cut: int
    low: _Node | int
    high: _Node | int


class Bisection(_Cut):
    """Cut in two, and again: along the mode, or between the modes, that cuts fewest links.

    ADOs are sorted by a whole-number form of their tuple, one mode alone or what one half of the
    modes holds less the other half, and by row where that is equal. The two sides get work in
    proportion to the parts that they are to be cut into.
    """

    def __init__(self, numbering: Numbering, parts: int, work: Work | None = None) -> None:
        super().__init__(numbering, parts, work)
        self._forms = _forms(numbering.n_modes)
        indices, costs = self._sample()
        chosen = np.arange(min(len(indices), PROBES)) * len(indices) // min(len(indices), PROBES)
        probes = indices[chosen]
        steps = [(k, by) for k in range(numbering.n_modes) for by in (1, -1)]
        beside = [numbering.moved(probes, k, by) for k, by in steps]
        neighbours = np.array(beside, dtype=np.int64).reshape(len(steps), len(probes))
        rows = numbering.rank(probes)
        seen = _Probes(numbering.n_ado, probes, rows, neighbours)
        self._tree = self._divide(0, parts, indices, costs, seen)

    def owner(self, indices: Ints) -> Ints:
        found = np.zeros(len(indices), dtype=np.int64)
        rows = self.numbering.rank(indices)
        todo: list[tuple[_Node | int, Ints]] = [(self._tree, np.arange(len(indices)))]
        while todo:
            node, mine = todo.pop()
            if isinstance(node, int):
                found[mine] = node
                continue
            high = (indices[mine] @ node.form) * self.numbering.n_ado + rows[mine] >= node.cut
            todo += [(node.low, mine[~high]), (node.high, mine[high])]
        return found

    def _divide(
        self, first: int, parts: int, indices: Ints, costs: NDArray[np.float64], probes: _Probes
    ) -> _Node | int:
        if parts == 1:
            return first
        lower, n = parts // 2, self.numbering.n_ado
        rows = self.numbering.rank(indices)
        share = np.array([lower / parts])
        tried = []
        for form in self._forms:
            key = (indices @ form) * n + rows
            cut = int(cuts(key, costs, share)[0])
            tried.append((probes.crossing(form, cut), cut))
        best = min(range(len(tried)), key=lambda i: tried[i][0])
        form, cut = self._forms[best], tried[best][1]
        high = (indices @ form) * n + rows >= cut
        low_probes, high_probes = probes.divided(form, cut)
        return _Node(
            form,
            cut,
            self._divide(first, lower, indices[~high], costs[~high], low_probes),
            self._divide(first + lower, parts - lower, indices[high], costs[high], high_probes),
        )


@dataclass(frozen=True, eq=False)
class _Probes:
    """ADOs (n, K) of one side, their rows (n,), and those of their neighbours (2 K, n).

    A neighbour that is not on this side is -1.
    """

    n_ado: int
    indices: Ints
    rows: Ints
    neighbours: Ints

    def _sides(self, form: Ints, cut: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether the ADOs (n,), and their neighbours (2 K, n), lie above the cut."""
        steps = np.stack([form, -form], axis=1).reshape(-1, 1)
        first = (self.indices @ form) * self.n_ado
        return first + self.rows >= cut, first + steps * self.n_ado + self.neighbours >= cut

    def crossing(self, form: Ints, cut: int) -> int:
        """How many links the cut severs."""
        here, there = self._sides(form, cut)
        return int(np.count_nonzero((here != there) & (self.neighbours >= 0)))

    def divided(self, form: Ints, cut: int) -> tuple[_Probes, _Probes]:
        """Those below the cut, and those above."""
        here, there = self._sides(form, cut)
        low, high = (
            _Probes(
                self.n_ado,
                self.indices[here == side],
                self.rows[here == side],
                np.where(there == side, self.neighbours, -1)[:, here == side],
            )
            for side in (False, True)
        )
        return low, high


def cuts(keys: Ints, costs: NDArray[np.float64], shares: NDArray[np.float64]) -> Ints:
    """The keys from which on the next part begins, so that the shares of all work lie below.

    An ADO belongs to the side where the middle of its work lies.
    """
    order = np.argsort(keys)
    sorted_keys, sorted_costs = keys[order], costs[order]
    middles = np.cumsum(sorted_costs) - sorted_costs / 2
    beyond = sorted_keys[-1] + 1 if len(keys) else 0
    first = np.searchsorted(middles, shares * sorted_costs.sum())
    found: Ints = np.append(sorted_keys, beyond)[first]
    return found


def _forms(n_modes: int) -> list[Ints]:
    """Each mode; and one half of the modes against the other, of all and of every half again."""
    forms = list(np.eye(n_modes, dtype=np.int64)) or [np.zeros(0, dtype=np.int64)]
    width = n_modes
    while width > 1:
        half = width // 2
        for start in range(0, n_modes - width + 1, width):
            form = np.zeros(n_modes, dtype=np.int64)
            form[start : start + half], form[start + half : start + width] = 1, -1
            forms.append(form)
        width = half
    return forms
