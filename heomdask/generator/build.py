"""The hierarchical equations of motion, written once, as a plan.

Takes: `Expanded` members with equal structure, and the index set that they share.
Gives: `build_plan`, and `ado_scale` to get unscaled ADOs out of a state.
Next file: `backends/traits.py`, what is done with a plan.

With modes k of baths with couplings Q (those with a drive: f(t) Q), unscaled,

    d rho_n/dt = -i [H, rho_n] + sum_L (L rho_n L^+ - {L^+ L, rho_n}/2)
        - sum_Q delta_Q [Q, [Q, rho_n]]
        - sum_k n_k gamma_k rho_n - sum_{k != l} n_k Gamma_kl rho_{n - e_k + e_l}
        - i sum_k r_k [Q, rho_{n + e_k}]
        - i sum_k n_k (c_k Q rho_{n - e_k} - cbar_k rho_{n - e_k} Q).

The last bracket is ``(c + cbar)/2 [Q, .] + (c - cbar)/2 {Q, .}``, so everything is made of the
three superoperators of `superops.py`. Links that share a coupling operator share its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heomdask.generator import scaling
from heomdask.generator.expanded import Expanded, has_imag, structure
from heomdask.generator.superops import IDENTITY, Stack, anti, comm, sandwich
from heomdask.generator.terms import Ladders, Link, TermSum
from heomdask.hierarchy.index_set import IndexSet
from heomdask.plan import Form, Plan

__all__ = ["Expanded", "ado_scale", "build_plan", "named_power", "structure"]

Reals = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_SQUARE = "**2"


def build_plan(
    members: Sequence[Expanded], index_set: Ladders, *, form: Form | None = None
) -> Plan:
    """The generator of all members on one index set.

    Parameters
    ----------
    members : with equal `structure`.
    index_set : over as many modes as each member has; a `Section` gives its rows only.
    form : "complex" also where the real form is possible; by default real where possible.
    """
    first = members[0]
    if any(structure(m) != structure(first) for m in members[1:]):
        raise ValueError("the members of a plan must have equal structure")
    if index_set.n_modes != first.n_modes:
        raise ValueError(f"{first.n_modes} modes do not fit an index set of {index_set.n_modes}")
    if form == "real" and first.form != "real":
        raise ValueError("these exponents do not keep ADOs Hermitian: no real form")
    total = TermSum(form or first.form, index_set, len(members))
    _system(total, members)
    modes = _Modes(members)
    _decay(total, members, modes)
    _links(total, members, modes)
    return total.plan(first.d)


def ado_scale(expanded: Expanded, index_set: IndexSet) -> Reals:
    """The factor (N,) of each ADO: unscaled ``rho_n = factor[n] X_n``."""
    return scaling.ado_scale(_Modes([expanded]).scale[0], index_set)


def named_power(name: str) -> tuple[str, int]:
    """The function behind one of `Plan.names`, and the power of it that the plan wants.

    A coupling f(t) Q enters its terminator as f(t)^2, the named scalar "f**2".
    """
    return (name.removesuffix(_SQUARE), 2) if name.endswith(_SQUARE) else (name, 1)


class _Modes:
    """Numbers of all modes of all members: arrays (M, K)."""

    def __init__(self, members: Sequence[Expanded]) -> None:
        every = [[e for _, e, _ in m.baths] for m in members]
        shape = (len(members), members[0].n_modes)

        def collect(field: str, dtype: type) -> NDArray[Any]:
            flat = [getattr(e, field) for row in every for e in row]
            return np.concatenate(flat).reshape(shape) if flat else np.zeros(shape, dtype)

        self.c: Complexes = collect("c", complex)
        self.cbar: Complexes = collect("cbar", complex)
        self.gamma: Complexes = collect("gamma", complex)
        self.read: Reals = collect("read", float)
        tied = [(k, j) for k, j, _ in members[0].lateral]
        self.scale = scaling.mode_scale(self.c, self.cbar, self.gamma, tied)


def _system(total: TermSum, members: Sequence[Expanded]) -> None:
    """Hamiltonian, drives, Lindblad operators: what acts within each ADO."""
    first, form = members[0], total.form
    hamiltonian = Stack.of([_centred(m.hamiltonian) for m in members], has_imag(first.hamiltonian))
    total.add_local(comm(hamiltonian, form))
    for i, (name, h1) in enumerate(first.drives):
        drive = Stack.of([_centred(m.drives[i][1]) for m in members], has_imag(h1))
        total.add([total.within(1.0, name)], comm(drive, form))
    for i, op in enumerate(first.lindblad):
        jump = Stack.of([m.lindblad[i] for m in members], has_imag(op))
        total.add([total.within(1.0)], sandwich(jump, form))
        total.add_local(anti(jump.gram().scaled(np.array([-0.5])), form))


def _centred(hamiltonian: Complexes) -> Complexes:
    """A Hamiltonian without its mean, which no commutator sees and every rounding error does."""
    d = len(hamiltonian)
    centred: Complexes = hamiltonian - np.trace(hamiltonian).real / d * np.eye(d)
    return centred


def _decay(total: TermSum, members: Sequence[Expanded], modes: _Modes) -> None:
    """Rates, on the diagonal and between the modes of a block."""
    index_set = total.index_set
    links = [Link(index_set.number(k), -modes.gamma[:, k]) for k in range(index_set.n_modes)]
    for i, (k, j, _) in enumerate(members[0].lateral):
        value = np.array([m.lateral[i][2] for m in members])
        ratio = modes.scale[:, j] / modes.scale[:, k]
        links.append(Link(index_set.lateral(k, j), -value * ratio))
    total.add(links, IDENTITY)


def _links(total: TermSum, members: Sequence[Expanded], modes: _Modes) -> None:
    """Links up and down and the terminator, coupling operator by coupling operator."""
    first, form = members[0], total.form
    offsets = np.cumsum([0, *(e.n_modes for _, e, _ in first.baths)])
    stacks: dict[int, Stack] = {}
    for i, (q, exponents, name) in enumerate(first.baths):
        group = first.couplings[i]
        if group not in stacks:
            stacks[group] = Stack.of([m.baths[i][0] for m in members], has_imag(q))
        stack = stacks[group]
        commuting, anticommuting = [], []
        for k, read in enumerate(exponents.read, start=int(offsets[i])):
            up, down = total.index_set.up(k), total.index_set.down(k)
            a = modes.scale[:, k]
            c, cbar = modes.c[:, k], modes.cbar[:, k]
            if read != 0:
                commuting.append(Link(up, modes.read[:, k] * a, name))
            commuting.append(Link(down, _over(c + cbar, 2 * a), name))
            anticommuting.append(Link(down, _over(-1j * (c - cbar), 2 * a), name))
        total.add(commuting, comm(stack, form))
        total.add(anticommuting, anti(stack, form))
        delta = np.array([m.baths[i][1].delta for m in members])
        if delta.any():
            _terminator(total, stack, delta, name)


def _terminator(total: TermSum, q: Stack, delta: Reals, name: str | None) -> None:
    """``-delta [Q, [Q, .]] = 2 delta Q . Q - delta {Q^2, .}``, times f^2 for a named f."""
    square = None if name is None else name + _SQUARE
    total.add([total.within(2 * delta, square)], sandwich(q, total.form))
    if square is None:
        total.add_local(anti(q.gram().scaled(-delta), total.form))
    else:
        total.add([total.within(-delta, square)], anti(q.gram(), total.form))


def _over(number: Complexes, real: Reals) -> Complexes:
    """``number / real``, part by part: complex division rounds differently along an array."""
    result = np.empty_like(number)
    result.real, result.imag = number.real / real, number.imag / real
    return result
