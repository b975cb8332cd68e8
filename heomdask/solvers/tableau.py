"""Butcher tableaux as checked data.

Takes: rational coefficients.
Gives: `Tableau`, and `DOPRI5`, the pair of Dormand and Prince of order 5(4).
Next file: `runge_kutta.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from heomdask.solvers.trajectory import Floats

Row = tuple[Fraction, ...]


@dataclass(frozen=True)
class Tableau:
    """An explicit embedded pair whose last stage is the first of the next step.

    Attributes
    ----------
    a : rows of the stages after the first, of length 1, 2, ...; the last row is `b`.
    b : weights of the step, of order `order`.
    error : weights of the difference to the embedded step, of order ``order - 1``.
    dense : per stage, the coefficients of s, s^2, ... of its weight at the time s h, s in [0, 1].
    """

    order: int
    a: tuple[Row, ...]
    b: Row
    error: Row
    dense: tuple[Row, ...]

    def __post_init__(self) -> None:
        stages = len(self.b)
        if [len(row) for row in self.a] != list(range(1, stages)):
            raise ValueError("`a` must be the rows below the diagonal")
        if (*self.a[-1], Fraction(0)) != self.b:
            raise ValueError("the last row of `a` must be `b`: the last stage is the step itself")
        for q in range(1, self.order + 1):
            if self._moment(self.b, q) != Fraction(1, q):
                raise ValueError(f"`b` integrates powers of degree {q - 1} wrongly")
        for q in range(1, self.order):
            if self._moment(self.error, q) != 0:
                raise ValueError("`error` must vanish up to the order of the embedded step")
        if tuple(sum(row, Fraction(0)) for row in self.dense) != self.b:
            raise ValueError("`dense` must end in `b`")

    def _moment(self, weights: Row, q: int) -> Fraction:
        """``sum_i weights_i c_i^(q - 1)``."""
        products = (w * c ** (q - 1) for w, c in zip(weights, self.c, strict=True))
        return sum(products, Fraction(0))

    @property
    def c(self) -> Row:
        """The stage times: row sums of `a`."""
        return (Fraction(0), *(sum(row, Fraction(0)) for row in self.a))

    @property
    def stages(self) -> int:
        return len(self.b)

    def weights_at(self, s: Floats) -> Floats:
        """Weights (stages, n) of the dense output at the relative times s (n,)."""
        table = np.array([[float(x) for x in row] for row in self.dense])
        powers = np.multiply.accumulate(np.repeat(s[None], table.shape[1], axis=0), axis=0)
        result = np.zeros((len(table), len(s)))
        for j in range(table.shape[1]):
            result += table[:, j, None] * powers[j]
        return result


def _row(*numbers: str | int) -> Row:
    return tuple(Fraction(n) for n in numbers)


DOPRI5 = Tableau(
    order=5,
    a=(
        _row("1/5"),
        _row("3/40", "9/40"),
        _row("44/45", "-56/15", "32/9"),
        _row("19372/6561", "-25360/2187", "64448/6561", "-212/729"),
        _row("9017/3168", "-355/33", "46732/5247", "49/176", "-5103/18656"),
        _row("35/384", 0, "500/1113", "125/192", "-2187/6784", "11/84"),
    ),
    b=_row("35/384", 0, "500/1113", "125/192", "-2187/6784", "11/84", 0),
    error=_row("71/57600", 0, "-71/16695", "71/1920", "-17253/339200", "22/525", "-1/40"),
    dense=(
        _row(1, "-8048581381/2820520608", "8663915743/2820520608", "-12715105075/11282082432"),
        _row(0, 0, 0, 0),
        _row(0, "131558114200/32700410799", "-68118460800/10900136933", "87487479700/32700410799"),
        _row(0, "-1754552775/470086768", "14199869525/1410260304", "-10690763975/1880347072"),
        _row(
            0, "127303824393/49829197408", "-318862633887/49829197408", "701980252875/199316789632"
        ),
        _row(0, "-282668133/205662961", "2019193451/616988883", "-1453857185/822651844"),
        _row(0, "40617522/29380423", "-110615467/29380423", "69997945/29380423"),
    ),
)
