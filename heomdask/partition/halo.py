"""Which elements a part reads from which other, as data.

Takes: a `Part`, and the `support` of its links.
Gives: `reads`, `asked` and `answer`: what to receive where, what to ask for, what to send.
Next file: `partition/links/protocol.py`, how it gets there.

Of an ADO of the halo only those elements travel that some link of this part reads. The others
stay what they are, finite, and do not matter. Pairs (ADO, element) are ascending, so both sides
of a message know their order without telling.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import Selection
from heomdask.hierarchy.numbering import Ints
from heomdask.partition.part import Part


def reads(part: Part, support: NDArray[np.bool_]) -> dict[int, Selection]:
    """By owner: the elements that its messages bring, by column of this part."""
    n = part.n_rows
    needed = np.zeros((part.n_cols - n, part.d**2), dtype=bool)
    for pattern, elements in zip(part.patterns, support, strict=True):
        if not pattern.is_identity and elements.any():
            _, cols, _ = pattern.entries()
            beyond = np.unique(cols[cols >= n]) - n
            needed[np.ix_(beyond, np.flatnonzero(elements))] = True
    found: dict[int, Selection] = {}
    for owner in np.unique(part.owners[n:]).tolist():
        own = np.flatnonzero(part.owners[n:] == owner)
        which, element = np.nonzero(needed[own])
        if len(which):
            row, col = np.divmod(element.astype(np.int64), part.d)
            found[owner] = Selection(own[which] + n, row, col)
    return found


def asked(part: Part, wanted: Selection) -> Ints:
    """The request for the elements `wanted` of other parts: (3, n), by ADO of the whole."""
    return np.stack([part.columns[wanted.ado], wanted.row, wanted.col])


def answer(part: Part, request: Ints) -> Selection:
    """The elements that another part asked this one for, by own row."""
    ado, row, col = np.array(request)
    own = part.find(ado)
    if np.any(own < 0):
        raise ValueError("a part was asked for ADOs that it does not own")
    return Selection(own, row, col)
