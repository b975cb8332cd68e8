import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from heomdask.solvers.tableau import DOPRI5

A = [[Fraction(0)] * 7] + [[*row, *[Fraction(0)] * (7 - len(row))] for row in DOPRI5.a]
C = DOPRI5.c


def times(matrix, vector):
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix]


def product(*vectors):
    return [np.prod(entries) for entries in zip(*vectors, strict=True)]


ONE = [Fraction(1)] * 7
AC = times(A, C)
AC2 = times(A, product(C, C))
TREES = {  # elementary weight of every rooted tree of up to five nodes, and its density
    1: [(ONE, 1)],
    2: [(list(C), 2)],
    3: [(product(C, C), 3), (AC, 6)],
    4: [(product(C, C, C), 4), (product(C, AC), 8), (AC2, 12), (times(A, AC), 24)],
    5: [
        (product(C, C, C, C), 5),
        (product(C, C, AC), 10),
        (product(C, AC2), 15),
        (product(C, times(A, AC)), 30),
        (product(AC, AC), 20),
        (times(A, product(C, C, C)), 20),
        (times(A, product(C, AC)), 40),
        (times(A, AC2), 60),
        (times(A, times(A, AC)), 120),
    ],
}


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_order_conditions_hold_exactly(order):
    for weights, density in TREES[order]:
        value = sum(b * w for b, w in zip(DOPRI5.b, weights, strict=True))
        assert value == Fraction(1, density)
    errors = [
        sum(e * w for e, w in zip(DOPRI5.error, weights, strict=True))
        for weights, _ in TREES[order]
    ]
    assert any(errors) == (order == 5)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_interpolant_is_of_order_four_at_every_time(order):
    for weights, density in TREES[order]:
        series = [
            sum(row[j] * w for row, w in zip(DOPRI5.dense, weights, strict=True)) for j in range(4)
        ]
        assert float(series[order - 1]) == pytest.approx(1 / density, abs=1e-15)
        assert [float(s) for j, s in enumerate(series) if j != order - 1] == pytest.approx(
            [0, 0, 0], abs=1e-15
        )


def test_weights_at_the_ends():
    weights = DOPRI5.weights_at(np.array([0.0, 1.0]))
    assert np.array_equal(weights[:, 0], np.zeros(7))
    assert weights[:, 1] == pytest.approx([float(b) for b in DOPRI5.b], abs=1e-14)


@pytest.mark.parametrize(
    "change",
    [
        {"b": (*DOPRI5.b[:-1], Fraction(1, 2))},
        {"error": (Fraction(1), *DOPRI5.error[1:])},
        {"dense": DOPRI5.dense[::-1]},
        {"order": 6},
        {"a": DOPRI5.a[:-1]},
    ],
)
def test_wrong_tables_are_refused(change):
    with pytest.raises(ValueError, match="`"):
        dataclasses.replace(DOPRI5, **change)
