"""The waist: a generator as data, a sum of (sparse A) x (left, right).

Takes: combinatorial patterns, scalars and small operators from `generator/`.
Gives: `Plan`, the only thing that backends know of a hierarchy.
Next file: `backends/traits.py`, what a backend does with a plan.

The state is ``X[n, i, j]``, n over ADOs, row 0 the reduced density matrix, and

    (G X)[n] = sum over terms t of  L_t ( sum over shifts k  s_tk  A_tk[n, n'] X[n'] ) R_t

where the product of a term flagged `transposed` is transposed, for one member or for
several members that share every ``A`` (the scalars s and the operators L and R are per member).
A plan knows no bath, no exponent, no level: it is algebra only.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Structure = Literal["diagonal", "projector", "sparse", "dense"]
Form = Literal["complex", "real"]
Scalars = NDArray[np.float64]  # (n_named,) or (n_named, n_members)
AnyArray = NDArray[Any]  # float64 or complex128

_INDEX = np.int32


@dataclass(frozen=True, eq=False)
class Pattern:
    """One combinatorial factor ``A``: a sparse real (n_rows, n_cols) matrix, rows ascending.

    `rows`, `cols` and `values` are None for the identity, ``A[n, n] = 1`` for every row; in a
    part of a partition it has columns beyond the rows, all zero. A pattern belongs to the
    hierarchy alone, so one object is shared by all plans and members on it.
    """

    n_rows: int
    n_cols: int
    rows: NDArray[np.int32] | None = None
    cols: NDArray[np.int32] | None = None
    values: NDArray[np.float64] | None = None
    label: str = ""

    def __post_init__(self) -> None:
        if self.rows is None:
            if self.n_rows > self.n_cols or self.cols is not None or self.values is not None:
                raise ValueError("an identity pattern has a column for each row, and no entries")
            return
        assert self.cols is not None
        assert self.values is not None
        if not len(self.rows) == len(self.cols) == len(self.values):
            raise ValueError("`rows`, `cols` and `values` must have one length")
        if np.any(np.diff(self.rows) < 0):
            raise ValueError("`rows` must ascend")

    @property
    def is_identity(self) -> bool:
        return self.rows is None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is linked (all links of a hierarchy of depth 0)."""
        return self.rows is not None and len(self.rows) == 0

    def entries(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
        """Rows, columns and values, also of the identity."""
        if self.rows is None:
            every = np.arange(self.n_rows, dtype=_INDEX)
            return every, every, np.ones(self.n_rows)
        assert self.cols is not None
        assert self.values is not None
        return self.rows, self.cols, self.values

    @functools.cached_property
    def matrix(self) -> sp.csr_array:
        """``A`` as a scipy CSR array, float64, of shape (n_rows, n_cols)."""
        rows, cols, values = self.entries()
        return sp.csr_array((values, (rows, cols)), shape=(self.n_rows, self.n_cols))

    @functools.cached_property
    def transpose(self) -> Pattern:
        """``A^T`` as a pattern."""
        if self.rows is None and self.n_rows == self.n_cols:
            return self
        rows, cols, values = self.entries()
        order = np.lexsort((rows, cols))
        return Pattern(
            self.n_cols, self.n_rows, cols[order], rows[order], values[order], self.label + "^T"
        )

    def restrict(
        self, rows: NDArray[np.int64], column_of: NDArray[np.int64], n_cols: int
    ) -> Pattern:
        """The listed rows in the order given, columns renumbered by `column_of` (-1: absent)."""
        if self.is_identity and np.array_equal(column_of[rows], np.arange(len(rows))):
            return Pattern(len(rows), n_cols, label=self.label)
        position = np.full(self.n_rows, -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        r, c, v = self.entries()
        keep = position[r] >= 0
        new_r, new_c, new_v = position[r[keep]], column_of[c[keep]], v[keep]
        order = np.lexsort((new_c, new_r))
        return Pattern(
            len(rows),
            n_cols,
            new_r[order].astype(_INDEX),
            new_c[order].astype(_INDEX),
            new_v[order],
            self.label,
        )

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of the matrix."""
        shape = (self.n_rows, self.n_cols, self.is_identity)
        h = hashlib.blake2b(repr(shape).encode(), digest_size=16)
        for array in () if self.is_identity else self.entries():
            h.update(np.ascontiguousarray(array).data)
        return h.digest()


def random_ados(seed: int, ados: NDArray[np.int64], d: int, n_whole: int) -> NDArray[np.float64]:
    """Numbers between -1 and 1 for some of `n_whole` ADOs, (n, d, d).

    A number depends on the seed, its ADO and its place there, and on nothing else (SplitMix64). ADO
    0 counts as much as all others together.
    """
    places = (np.asarray(ados)[:, None] * d**2 + np.arange(1, d**2 + 1)).astype(np.uint64)
    z = places * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    numbers = ((z >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0).reshape(-1, d, d)
    numbers[np.asarray(ados) == 0] *= np.sqrt(n_whole)
    return numbers


def structure_of(array: AnyArray) -> Structure:
    """The common structure of a stack (M, d, d) of operators: what a backend may exploit."""
    filled = np.any(array != 0, axis=0)
    count = np.count_nonzero(filled)
    if count == np.count_nonzero(filled.diagonal()):
        return "projector" if count == 1 else "diagonal"
    return "sparse" if 3 * count <= filled.size else "dense"


@dataclass(frozen=True, eq=False)
class Operator:
    """A small operator: (1, d, d), shared by the members, or (M, d, d), and its structure.

    "projector" means one non-zero element, on the diagonal; "sparse", at most a third filled.
    """

    array: AnyArray
    structure: Structure = field(init=False)

    def __post_init__(self) -> None:
        if self.array.ndim != 3 or self.array.shape[1] != self.array.shape[2]:
            raise ValueError(f"an operator stack is (M, d, d), not {self.array.shape}")
        object.__setattr__(self, "structure", structure_of(self.array))

    def of(self, member: int) -> AnyArray:
        """The (d, d) operator of one member."""
        array: AnyArray = self.array[member if len(self.array) > 1 else 0]
        return array

    def map(self, array: AnyArray) -> Operator:
        contiguous: Any = np.ascontiguousarray(array)
        return Operator(contiguous)


@dataclass(frozen=True, eq=False)
class Shift:
    """``s * A``: index of the pattern in `Plan.patterns`, scalar per member, name of a factor.

    `scalar` has shape (1,) or (M,). With a `name`, the scalar is multiplied by the value of that
    named scalar at the time of the application (a pulse shape).
    """

    pattern: int
    scalar: AnyArray
    name: str | None = None

    def value(self, member: int, names: Mapping[str, NDArray[np.float64]]) -> complex:
        s = self.scalar[member if len(self.scalar) > 1 else 0]
        if self.name is None:
            return complex(s)
        factor = names[self.name]
        return complex(s * factor[member if len(factor) > 1 else 0])


@dataclass(frozen=True, eq=False)
class Term:
    """``L (sum of shifts X) R``, transposed at the end if so flagged; None means identity."""

    shifts: tuple[Shift, ...]
    left: Operator | None = None
    right: Operator | None = None
    transposed: bool = False

    def superoperators(self, d: int) -> AnyArray:
        """``X -> L X R``, transposed if so flagged, as matrices on C-ordered X (d, d).

        Returns
        -------
        (1, d^2, d^2) if all members share it, or (M, d^2, d^2).
        """
        one = np.eye(d)[None]
        left = one if self.left is None else self.left.array
        right = one if self.right is None else self.right.array
        # vec_C(L X R) = (L kron R^T) vec_C(X)
        kron = left[:, :, None, :, None] * right.swapaxes(1, 2)[:, None, :, None, :]
        small: AnyArray = kron.reshape(-1, d * d, d * d)
        if self.transposed:
            small = small[:, np.arange(d * d).reshape(d, d).T.ravel()]
        return small

    def superoperator(self, d: int, member: int) -> AnyArray:
        """The same of one member, (d^2, d^2)."""
        matrices = self.superoperators(d)
        matrix: AnyArray = matrices[member if len(matrices) > 1 else 0]
        return matrix


@dataclass(frozen=True, eq=False)
class Plan:
    """A generator for `n_members` members that share their patterns.

    Attributes
    ----------
    d : dimension of the system.
    n_rows, n_cols : ADOs written and read; equal except for a part of a partition, where the
        columns are those owned, then the halo.
    form : "complex" for a state X of complex (d, d) matrices; "real" for the packed real
        Z = Re X + Im X of Hermitian ones.
    patterns : the factors A; `terms` refer to them by index.
    names : the named (time-dependent) scalars, in the order in which `apply` takes them.
    """

    d: int
    n_rows: int
    n_cols: int
    n_members: int
    form: Form
    patterns: tuple[Pattern, ...]
    terms: tuple[Term, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for p in self.patterns:
            if (p.n_rows, p.n_cols) != (self.n_rows, self.n_cols):
                raise ValueError("every pattern must have the plan's own shape")
        for term in self.terms:
            for op in (term.left, term.right):
                if op is not None and op.array.shape[1] != self.d:
                    raise ValueError("every operator must be (d, d)")
                if op is not None and len(op.array) not in (1, self.n_members):
                    raise ValueError("an operator is shared or one per member")
                if op is not None and self.form == "real" and np.iscomplexobj(op.array):
                    raise ValueError("a real plan has real operators")
            for shift in term.shifts:
                if not 0 <= shift.pattern < len(self.patterns):
                    raise ValueError("a shift refers to one of the plan's patterns")
                if len(shift.scalar) not in (1, self.n_members):
                    raise ValueError("a scalar is shared or one per member")
                if self.form == "real" and np.iscomplexobj(shift.scalar):
                    raise ValueError("a real plan has real scalars")
                if shift.name is not None and shift.name not in self.names:
                    raise ValueError(f"the named scalar {shift.name!r} is not declared")

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """float64 or complex128: what the state is made of at full precision."""
        return np.dtype(np.float64 if self.form == "real" else np.complex128)

    @property
    def is_whole(self) -> bool:
        """Whether this is all of a generator, so that what is known of it may be remembered."""
        return True

    @property
    def state_nbytes(self) -> int:
        """Bytes of one state vector of all members, columns included."""
        return self.n_cols * self.d * self.d * self.n_members * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the plan itself: index tables (each counted once), scalars and operators."""
        tables = [a for p in self.patterns if not p.is_identity for a in p.entries()]
        total = sum({id(a): a.nbytes for a in tables}.values())
        for term in self.terms:
            total += sum(s.scalar.nbytes for s in term.shifts)
            total += sum(op.array.nbytes for op in (term.left, term.right) if op is not None)
        return total

    def member_digests(self) -> list[str]:
        """A hash for each member of everything that determines its numbers."""
        h = hashlib.blake2b(digest_size=16)
        h.update(repr((self.d, self.n_rows, self.n_cols, self.form, self.names)).encode())
        for p in self.patterns:
            h.update(p.digest)
        arrays: list[AnyArray] = []
        for term in self.terms:
            ops = [op for op in (term.left, term.right) if op is not None]
            shape = [(s.pattern, s.name) for s in term.shifts], term.left is None, len(ops)
            h.update(repr((*shape, term.transposed)).encode())
            arrays += [s.scalar for s in term.shifts] + [op.array for op in ops]
        rows = [np.broadcast_to(a, (self.n_members, *a.shape[1:])) for a in arrays]
        numbers = [np.reshape(a, (self.n_members, -1)).astype(np.complex128) for a in rows]
        found = []
        for row in np.concatenate([np.zeros((self.n_members, 0)), *numbers], axis=1):
            own = h.copy()
            own.update(row.tobytes())
            found.append(own.hexdigest())
        return found

    def named(self, scalars: Scalars | None) -> dict[str, NDArray[np.float64]]:
        """Name -> values of shape (1,) or (M,), from what `apply` was given."""
        if not self.names:
            return {}
        if scalars is None or len(scalars) != len(self.names):
            raise ValueError(f"this plan needs values for its named scalars {self.names}")
        values = np.asarray(scalars, dtype=np.float64).reshape(len(self.names), -1)
        return dict(zip(self.names, values, strict=True))

    def member(self, m: int) -> Plan:
        """The plan of one member alone."""
        return self.take([m])

    def take(self, members: Sequence[int]) -> Plan:
        """The plan of the listed members, in that order."""
        index = list(members)

        def pick(a: AnyArray) -> AnyArray:
            chosen: AnyArray = a if len(a) == 1 else np.ascontiguousarray(a[index])
            return chosen

        terms = tuple(
            Term(
                tuple(dataclasses.replace(s, scalar=pick(s.scalar)) for s in t.shifts),
                None if t.left is None else Operator(pick(t.left.array)),
                None if t.right is None else Operator(pick(t.right.array)),
                t.transposed,
            )
            for t in self.terms
        )
        return dataclasses.replace(self, n_members=len(index), terms=terms)

    def adjoint(self) -> Plan:
        """The plan of G^dagger in the Hilbert-Schmidt product summed over ADOs.

        ``L (s A X) R`` becomes ``L^+ (s* A^T X) R^+``. For real operators the adjoint of
        ``X -> (L X R)^T`` is ``X -> (R X L)^T``.
        """
        return dataclasses.replace(
            self,
            n_rows=self.n_cols,
            n_cols=self.n_rows,
            patterns=tuple(p.transpose for p in self.patterns),
            terms=self.adjoint_terms(),
        )

    def adjoint_terms(self) -> tuple[Term, ...]:
        """The terms of `adjoint`, which refer to the transposed patterns."""
        if any(t.transposed for t in self.terms) and self.form != "real":
            raise ValueError("a transposed term belongs to a real plan")
        terms = []
        for t in self.terms:
            shifts = tuple(dataclasses.replace(s, scalar=s.scalar.conj()) for s in t.shifts)
            if t.transposed:
                terms.append(Term(shifts, t.right, t.left, True))
            else:
                terms.append(Term(shifts, _dagger(t.left), _dagger(t.right), False))
        return tuple(terms)

    def random_state(self, seed: int) -> NDArray[np.float64]:
        """Random numbers (n_cols, d, d), about half of their square norm in the first ADO."""
        return random_ados(seed, np.arange(self.n_cols), self.d, self.n_cols)

    def to_sparse(
        self,
        member: int = 0,
        scalars: Scalars | None = None,
        *,
        rows: NDArray[np.int64] | None = None,
        cols: NDArray[np.int64] | None = None,
    ) -> sp.csr_array:
        """G of one member as a CSR array, elements in C order.

        `rows` and `cols` list the ADOs wanted, in their order (default: all of them); the array
        has the shape (len(rows) d^2, len(cols) d^2).
        """
        d2, count = self.d * self.d, sum(len(term.shifts) for term in self.terms)
        row_at, n_rows = _places(rows, self.n_rows)
        col_at, n_cols = _places(cols, self.n_cols)
        names = self.named(scalars)
        r_all, c_all, values = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0, self.dtype)]
        for term in self.terms:
            small = term.superoperator(self.d, member)
            i, j = np.nonzero(small)
            for shift in term.shifts:
                row, col, a = self.patterns[shift.pattern].entries()
                r, c = row_at[row], col_at[col]
                kept = (r >= 0) & (c >= 0)
                s = shift.value(member, names)
                numbers = (s.real if self.form == "real" else s) * small[i, j]
                r_all.append(np.add.outer(r[kept] * d2, i).ravel())
                c_all.append(np.add.outer(c[kept] * d2, j).ravel() * count + len(c_all) - 1)
                values.append(np.multiply.outer(a[kept], numbers).ravel())
        # each shift has columns of its own, so that equal places are added in the order of terms
        entries = np.concatenate(values), (np.concatenate(r_all), np.concatenate(c_all))
        wide = (n_rows * d2, n_cols * d2 * max(count, 1))
        spread = sp.coo_array(entries, shape=wide).tocsr()
        places = (spread.data, spread.indices // max(count, 1), spread.indptr)
        total = sp.csr_array(places, shape=(n_rows * d2, n_cols * d2))
        total.sum_duplicates()
        total.eliminate_zeros()
        return total

    def local_blocks(self, member: int, rows: NDArray[np.int64] | None = None) -> AnyArray:
        """B_n, the part of G that maps ADO n to itself, without named terms.

        Returns
        -------
        (n_rows, d^2, d^2), or (len(rows), d^2, d^2) for the ADOs listed in `rows`.
        """
        shape = (self.n_rows if rows is None else len(rows), self.d**2, self.d**2)
        blocks = np.zeros(shape, dtype=self.dtype)
        for term in self.terms:
            weight = self.local_weight(term, member)
            chosen = weight if rows is None else weight[rows]
            if chosen.any():
                blocks += chosen[:, None, None] * term.superoperator(self.d, member)
        return blocks

    def local_weight(self, term: Term, member: int) -> AnyArray:
        """The diagonal of the sum over the unnamed shifts of s A of one term, (n_rows,)."""
        weight = np.zeros(self.n_rows, dtype=self.dtype)
        for s in term.shifts:
            if s.name is None:
                rows, cols, values = self.patterns[s.pattern].entries()
                stays = rows == cols
                value = s.scalar[member if len(s.scalar) > 1 else 0]
                np.add.at(weight, rows[stays], value * values[stays])
        return weight

    def common_blocks(self) -> AnyArray:
        """What the unnamed terms that act on every ADO alike do to each: (M, d^2, d^2)."""
        blocks = np.zeros((self.n_members, self.d**2, self.d**2), dtype=self.dtype)
        for term in self.terms:
            weight = np.zeros(1, dtype=self.dtype)
            for s in term.shifts:
                if s.name is None and self.patterns[s.pattern].is_identity:
                    weight = weight + s.scalar
            if weight.any():
                blocks += weight[:, None, None] * term.superoperators(self.d)
        return blocks


def _dagger(op: Operator | None) -> Operator | None:
    return None if op is None else op.map(op.array.conj().transpose(0, 2, 1))


def _places(listed: NDArray[np.int64] | None, n: int) -> tuple[NDArray[np.int64], int]:
    """Where each of n ADOs stands in a list (-1: nowhere), and the list's length; None: as is."""
    if listed is None:
        return np.arange(n), n
    at = np.full(n, -1)
    at[listed] = np.arange(len(listed))
    return at, len(listed)
