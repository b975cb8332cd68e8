"""Where the field of values of a constant generator lies, per member.

Takes: a plan without named scalars, and the backend that is to run it.
Gives: `Bounds`, an ellipse per member, and the `rounding` to be expected of a run;
    `fastest_rate`, read off the plan alone.
Next file: `faber.py`, the polynomials of that ellipse.

``G = B + C``, where B maps every ADO to itself and is the same on all of them (the Hamiltonian,
Lindblad operators, terminators), and C is the rest. The field of values of a sum lies within the
sum of both; that of B is known exactly from one (d^2, d^2) matrix, and that of C, which disorder
in the Hamiltonian leaves alone, is found once and kept for all members and batches that share it.
It comes from Lanczos on ``(C + C^+)/2`` and ``(C - C^+)/2i``: a Hermitian operator's extreme
eigenvalues are approached from inside by the Ritz values; each is moved outwards by its residual
norm, which makes it an upper estimate as a rule. What is still outside costs applications, not
accuracy: the guard of `polynomial.py` sees it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heomdask.backends.traits import BackendInfo, BackendTraits, Compiled, State
from heomdask.plan import Plan, Term
from heomdask.solvers.trajectory import Floats, Ints

REAL_ITERATIONS, IMAG_ITERATIONS = 7, 10  # each applies G and G^+ once
LEFT_INFLATION = 1.01  # of the width; a margin on the right would cost e^{margin t}
RIGHT_SHARE = 0.5  # of the residual norm, for the same reason
INVARIANT = 1e-7  # a residual this small, relative, ends a chain: the square root of rounding
SEED = 20240229  # of the one start vector that all problems of a shape share
LARGEST_LOCAL = 16  # levels: beyond, the matrix of B is too large to be worth its eigenvalues
AT_ONCE = 2**18  # elements of the matrices of B of several members
MOST_KEPT = 4096  # members whose C is remembered
_boxes: dict[tuple[BackendInfo, str, str], Floats] = {}


@dataclass(frozen=True, eq=False)
class Bounds:
    """An ellipse in the complex plane for each member; all arrays of shape (M,).

    The points are ``centre + real cos(phi) + i imag sin(phi)``.
    """

    centre: Floats
    real: Floats
    imag: Floats
    applications: int = 0

    def __post_init__(self) -> None:
        for name in ("centre", "real", "imag"):
            array = np.atleast_1d(np.array(getattr(self, name), dtype=np.float64))
            if not np.all(np.isfinite(array)) or (name != "centre" and np.any(array < 0)):
                raise ValueError(f"`{name}` must be finite, and a semi-axis not negative")
            object.__setattr__(self, name, array)
        if not len(self.centre) == len(self.real) == len(self.imag):
            raise ValueError("`centre`, `real` and `imag` must have one length")

    @property
    def radius(self) -> Floats:
        """The largest distance of a point of the ellipse from its centre."""
        return np.maximum(self.real, self.imag)

    def take(self, members: Ints) -> Bounds:
        """The ellipses of some members, repeats allowed."""
        return Bounds(
            self.centre[members], self.real[members], self.imag[members], self.applications
        )


def rounding(bounds: Bounds, span: float, precision: str) -> Floats:
    """What rounding adds to a run at most, relative to its largest element; (M,).

    Half the machine epsilon for each time in which the fastest part of G moves by 1: that is what
    rounding the numbers of G itself may do. All else did less where no polynomial adds terms much
    larger than their sum (docs/design/012).
    """
    reach = np.maximum(np.abs(bounds.centre) + bounds.real, bounds.imag)
    result: Floats = 0.5 * float(np.finfo(precision).eps) * span * reach
    return result


def field_of_values(backend: BackendTraits, plan: Plan, precision: str = "float64") -> Bounds:
    """The ellipse of every member of a plan.

    A member's ellipse does not depend on its companions: the start vector of Lanczos depends on
    the plan's shape alone.
    """
    small = plan.d <= LARGEST_LOCAL
    same, rest = (
        dataclasses.replace(
            plan, terms=tuple(t for t in plan.terms if (small and is_local(plan, t)) == local)
        )
        for local in (True, False)
    )
    return _ellipses(_known(backend, rest, precision) + _local_box(same))


def is_local(plan: Plan, term: Term) -> bool:
    """Whether a term acts on every ADO alone, and alike."""
    return all(plan.patterns[s.pattern].is_identity for s in term.shifts)


def _ellipses(box: Floats) -> Bounds:
    """From (4, M): lowest and highest real part, lowest and highest imaginary part."""
    low, high, left, right = box
    return Bounds(
        centre=(high + low) / 2,
        real=(high - low) / 2,
        imag=np.maximum(np.abs(left), np.abs(right)),
        applications=2 * (REAL_ITERATIONS + IMAG_ITERATIONS),
    )


def _local_box(plan: Plan) -> Floats:
    """The box (4, M) of a plan whose terms are all local, exactly."""
    if not plan.terms:
        return np.zeros((4, plan.n_members))
    some = max(1, AT_ONCE // plan.d**4)
    if plan.n_members > some:
        parts = np.array_split(np.arange(plan.n_members), -(-plan.n_members // some))
        return np.concatenate([_local_box(plan.take(part.tolist())) for part in parts], axis=1)
    blocks = plan.common_blocks()
    box = np.tile([[0.0], [0.0], [-1.0], [1.0]], plan.n_members)  # if not finite: the run finds out
    finite = np.all(np.isfinite(blocks), axis=(1, 2))
    blocks = blocks[finite]
    adjoint = blocks.conj().swapaxes(1, 2)
    hermitian, skew = (blocks + adjoint) / 2, (blocks - adjoint) / 2
    box[:2, finite] = np.linalg.eigvalsh(hermitian).T[[0, -1]]
    if plan.form == "complex":
        box[2:, finite] = np.linalg.eigvalsh(skew / 1j).T[[0, -1]]
    else:  # in pairs +-
        size = np.maximum(np.max(np.abs(skew), axis=(1, 2)), 1e-300)
        skew /= size[:, None, None]
        square = np.linalg.eigvalsh(skew.swapaxes(1, 2) @ skew)[:, -1]
        box[2:, finite] = np.multiply.outer([-1.0, 1.0], size * np.sqrt(np.maximum(square, 0.0)))
    return box


def _known(backend: BackendTraits, plan: Plan, precision: str) -> Floats:
    """The box (4, M) of a plan, by Lanczos for those members that have not been seen before."""
    if not plan.terms:
        return np.zeros((4, plan.n_members))
    if not plan.is_whole:  # other parts may have forgotten what this one knows, and all must agree
        return _lanczos(backend, plan, precision)
    keys = [(backend.info, precision, digest) for digest in plan.member_digests()]
    first = {key: m for m, key in reversed(list(enumerate(keys)))}
    kept = {key: _boxes.get(key) for key in first}  # another thread may empty it meanwhile
    found = {key: box for key, box in kept.items() if box is not None}
    new = sorted(m for key, m in first.items() if key not in found)
    if new:
        boxes = _lanczos(backend, plan.take(new), precision)
        found |= {keys[m]: box for m, box in zip(new, boxes.T, strict=True)}
        if len(_boxes) > MOST_KEPT:
            _boxes.clear()
        _boxes.update(found)
    return np.stack([found[key] for key in keys], axis=1)


def _lanczos(backend: BackendTraits, plan: Plan, precision: str) -> Floats:
    """The box (4, M) of a plan, to one or two per cent."""
    compiled, adjoint = (backend.compile(p, precision) for p in (plan, plan.adjoint()))
    low, high = _extremes(backend, compiled, adjoint, REAL_ITERATIONS, +1)
    left, right = _extremes(backend, compiled, adjoint, IMAG_ITERATIONS, -1)
    return np.stack([high - LEFT_INFLATION * (high - low), high, left, right])


def _extremes(
    backend: BackendTraits, compiled: Compiled, adjoint: Compiled, steps: int, sign: int
) -> tuple[Floats, Floats]:
    """Lowest and highest eigenvalue of ``(G + G^+)/2`` (sign 1) or of ``(G - G^+)/2i`` (sign -1).

    The skew part K = (G - G^+)/2 is never multiplied by i, so that a real plan stays real:
    with ``v_k' = i^k v_k`` the recurrence ``beta v_{k+1} = K v_k - i alpha v_k + beta v_{k-1}``
    has the real tridiagonal matrix of K/i.
    """
    plan = compiled.plan
    members = plan.n_members
    alphas = np.zeros((steps, members))
    betas = np.zeros((steps, members))
    v = _start(backend, compiled)
    other = backend.empty(compiled)
    beta = np.zeros(members)
    for k in range(steps):  # a member that is not finite gives NaN, for _ritz to see
        # other <- A v - sign beta other, one half of A after the other
        backend.apply(compiled, v, other, a=0.5, c=-sign * beta)
        backend.apply(adjoint, v, other, a=0.5 * sign, c=1.0)
        along, square = backend.dots(compiled, [v, other], other)
        alpha = np.asarray(along.real if sign > 0 else along.imag, dtype=np.float64)
        alphas[k] = alpha
        norm_square = np.asarray(square.real, dtype=np.float64)
        beta = np.sqrt(np.maximum(norm_square - alpha * alpha, 0.0))
        live = beta > INVARIANT * np.sqrt(norm_square)
        beta = np.where(live, beta, 0.0)
        betas[k] = beta
        inverse = np.where(live, 1.0 / np.where(live, beta, 1.0), 0.0)
        shift = -inverse * (alpha if sign > 0 or plan.form == "real" else 1j * alpha)
        backend.combine(compiled, other, [inverse, shift], [other, v])
        v, other = other, v
    return _ritz(alphas, betas, RIGHT_SHARE if sign > 0 else 1.0)


def _start(backend: BackendTraits, compiled: Compiled) -> State:
    """The normalised random state that every Lanczos run starts from, half of it in row 0.

    The right edge of the field of values belongs to the first rows, of which a random state
    has next to nothing.
    """
    plan = compiled.plan
    state = backend.put(compiled, plan.random_state(SEED).astype(plan.dtype))
    square = np.asarray(backend.dots(compiled, [state], state)[0].real, dtype=np.float64)
    backend.combine(compiled, state, [1.0 / np.sqrt(square)], [state])
    return state


def _ritz(alphas: Floats, betas: Floats, share: float) -> tuple[Floats, Floats]:
    """Extreme Ritz values of the tridiagonal matrices (columns), moved outwards.

    `share` of the residual norm is added on the right, all of it on the left. A chain that
    ended in an invariant subspace (beta 0) goes on with zero vectors, whose rows
    and columns are zero: they are left out.
    """
    steps, members = alphas.shape
    low, high = np.empty(members), np.empty(members)
    for m in range(members):
        if not np.all(np.isfinite(alphas[:, m]) & np.isfinite(betas[:, m])):
            low[m], high[m] = -1.0, 1.0  # nothing can be said, and the run will find out
            continue
        ended = np.flatnonzero(betas[:, m] == 0)
        n = int(ended[0]) + 1 if len(ended) else steps
        off = betas[: n - 1, m]
        matrix = np.diag(alphas[:n, m]) + np.diag(off, 1) + np.diag(off, -1)
        values, vectors = np.linalg.eigh(matrix)
        residual = betas[n - 1, m] * np.abs(vectors[-1])
        low[m], high[m] = values[0] - residual[0], values[-1] + share * residual[-1]
    return low, high


def fastest_rate(plan: Plan) -> Floats:
    """The largest |rate| with which an ADO decays by itself, per member; (M,).

    Sums the terms ``s A X`` without operators over the diagonals of their A.
    """
    diagonal: NDArray[np.complex128] = np.zeros((plan.n_rows, plan.n_members), np.complex128)
    for term in plan.terms:
        if term.left is not None or term.right is not None or term.transposed:
            continue
        for shift in term.shifts:
            if shift.name is None:
                line = plan.patterns[shift.pattern].matrix.diagonal()
                diagonal += line[:, None] * np.asarray(shift.scalar)
    result: Floats = np.max(np.abs(diagonal), axis=0, initial=0.0)
    return result
