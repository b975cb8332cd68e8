"""The exponential as a series of Faber polynomials of an ellipse.

Takes: an ellipse per member (`Bounds`), a step t, the norms of the terms of earlier segments.
Gives: `coefficients` and `Faber`, which chooses degree and length of each segment and judges it.
Next file: `taylor.py`, the same without an ellipse.

The ellipse ``c + a cos(phi) + i b sin(phi)`` is the image of the unit circle under
``c + g (w + r/w)`` with capacity g = (a + b)/2 and ratio r = (a - b)/(a + b). Its Faber
polynomials are ``F_0 = 1, F_k = w^k + (r/w)^k``; with ``z = (G - c)/g``

    F_1 = z,  F_2 = z F_1 - 2 r F_0,  F_k = z F_{k-1} - r F_{k-2},
    exp(G t) = sum_k e_k(t) F_k(G),
    e_k(t) = e^{ct} (g t)^k / k!  0F1(; k + 1; r g^2 t^2).

Chebyshev's polynomials are the same up to a factor, and e_k is e^{ct} I_k or e^{ct} J_k up to
that factor; in this form nothing happens at a circle (r = 0), and ``|F_k(G)| <= 2`` whenever the
ellipse holds the field of values of G, so the terms can be judged at sight.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.special

from heomdask.solvers.bounds import Bounds
from heomdask.solvers.segment import Segments
from heomdask.solvers.trajectory import Floats, Ints, Mask

MAX_DEGREE = 600  # of a segment
FIRST = 150  # the degree aimed at by the first segment, which teaches a lot
TAIL = 30  # coefficients beyond the degree that estimate what was cut off
PAST_PEAK = 1e-2  # of the largest term, that the last ones must have fallen to
BOUND = 2.0  # of |F_k|, in the 2-norm
SAFETY = 5.0  # of a measured norm of a term, when it predicts those of the next segment
RETRY_SAFETY = 4.0  # when it predicts those of the same state, tried again
LONGER = 4.0  # at most, than the segment before
SHORTER = 1.2  # in each attempt to find a length
LARGEST_DECAY = 7.0  # exponent by which an ellipse may claim that everything decays
LOOK = 16  # degrees over which the growth of the norms is looked at
STRIKES = 4  # rejections in a row after which the ellipse is given up
SEED_DEPTH = 75.0  # the recurrence starts where a coefficient is e^-75 of the largest one
NORM_LIMIT = 1e10  # of a term over the state: beyond it the coefficients are not exact enough
HUGE = 1e250  # a prediction that no segment will meet
NARROW = 0.5  # factor of the imaginary semi-axis, where
FAR_DOWN, STILL_FALLING = 1e-2, 0.2  # the norms fell so far, and so much in their second half
RISING = 3.0  # factor of the norms in their second half from which the ellipse is too small


def coefficients(centre: Floats, capacity: Floats, ratio: Floats, t: Floats, degree: int) -> Floats:
    """``e_k(t)``, k = 0 .. degree, for n ellipses and n times: (degree + 1, n).

    By the recurrence ``e_{k-1} = k/(g t) e_k + r e_{k+1}`` downwards, which keeps relative
    accuracy, from where e_k is negligible; normalised by the Bessel functions of order 0 (and 1
    where they oscillate). NaN where t is so long that these lie beyond the range of numbers.
    """
    y = np.maximum(capacity * t, 1e-60)
    start = _start_degree(y, ratio)
    order = np.argsort(start, kind="stable")
    top = int(start[order[-1]])
    begins = np.searchsorted(start[order], np.arange(top + 2)).tolist()
    e = np.empty((max(degree, top) + 2, len(y)))
    e[top:] = 0.0
    inverse, scratch = 1.0 / y, np.empty(len(y))
    for k in range(top, 0, -1):
        if begins[k] < begins[k + 1]:
            e[k, order[begins[k] : begins[k + 1]]] = 1.0
        below = np.multiply(e[k], inverse, out=e[k - 1])
        below *= k
        below += np.multiply(e[k + 1], ratio, out=scratch)
    e = e[: degree + 1]
    with np.errstate(invalid="ignore"):
        e *= _exact_size(centre * t, y, ratio) / _measured_size(e, ratio)
    return e


def _start_degree(y: Floats, ratio: Floats) -> Ints:
    """The degree at which ``e_k`` has fallen to e^-SEED_DEPTH of the largest one.

    By Cauchy's estimate on the circle ``|w| = e^s``, with k = y (e^s - r e^-s):
    ``y [e^s + r e^-s - 1 - r - (e^s - r e^-s) s] = -SEED_DEPTH``, by Newton from above.
    """
    flat = np.maximum(y * (1.0 + ratio), 1e-300)
    s = np.minimum(np.sqrt(2 * SEED_DEPTH / flat), np.maximum(2.0, np.log(SEED_DEPTH / y)))
    for _ in range(6):
        up, down = np.exp(s), ratio * np.exp(-s)
        value = up + down - 1.0 - ratio - (up - down) * s + SEED_DEPTH / y
        s = s + value / (s * (up + down))
    up, down = np.exp(s), ratio * np.exp(-s)
    return np.ceil(y * (up - down)).astype(np.int64) + 2


def _exact_size(ct: Floats, y: Floats, ratio: Floats) -> Floats:
    """``e_0`` for r >= 0; ``sqrt(e_0^2 + |r| e_1^2)`` for r < 0, which has no zeros."""
    x = 2.0 * y * np.sqrt(np.abs(ratio))
    grown = np.exp(np.minimum(ct + x, 700.0)) * scipy.special.i0e(x)
    swung = np.exp(ct) * np.hypot(scipy.special.j0(x), scipy.special.j1(x))
    result: Floats = np.where(ratio >= 0, grown, swung)
    return result


def _measured_size(e: Floats, ratio: Floats) -> Floats:
    """The same of unnormalised coefficients."""
    swung = np.hypot(e[0], np.sqrt(np.abs(ratio)) * e[1])
    result: Floats = np.where(ratio >= 0, e[0], swung)
    return result


class Faber:
    """The series on the ellipse of every member; remembers how large its terms were.

    Terms that grow by a factor w per degree tell of something outside the ellipse, on its
    confocal one with capacity w g and ratio r/w^2: that is taken from then on. A flat ellipse
    (real semi-axis the larger) comes from stiff generators that are far from normal: what the
    state really holds may lie well within it, and the terms fall. Then the next segment tries
    one with half the imaginary semi-axis, which needs fewer terms.
    """

    name = "faber"

    def __init__(self, bounds: Bounds, span: float) -> None:
        floor = np.maximum(1e-3 * bounds.radius, 1e-6 / span)
        self.centre = bounds.centre
        real, imag = np.maximum(bounds.real, floor), np.maximum(bounds.imag, floor)
        self.capacity, self.ratio = (real + imag) / 2, (real - imag) / (real + imag)
        members = len(self.centre)
        self.profile = np.full((MAX_DEGREE + TAIL + 1, members), SAFETY * BOUND)
        first = np.minimum(FIRST / imag, FIRST**2 / (40 * real))
        self.length = np.where(span < 2 * first, span, first)
        self.strikes = np.zeros(members, dtype=np.int64)
        self.growth = np.ones(members)  # by which to widen next
        self.narrowing = np.ones(members)  # by which to narrow next
        self.narrowed = np.ones(members)  # so far
        self.may_narrow = np.ones(members, dtype=bool)

    def given_up(self) -> Mask:
        """Members whose ellipse has failed too often in a row; (M,)."""
        return np.asarray(self.strikes >= STRIKES)

    def choose(
        self, idx: Ints, remaining: Floats, size: Floats, rate: Floats, ceiling: Floats
    ) -> Segments:
        """The longest equal segments whose predicted terms fall below the error allowed."""
        self._adapt(idx)
        decay = -(self.centre + self.capacity * (1 + self.ratio))[idx] / LARGEST_DECAY
        shortest = np.maximum(1.0 / self.length[idx], decay)
        count = np.maximum(np.ceil(remaining * shortest - 1e-9), 1.0)
        degree = np.ones(len(idx), dtype=np.int64)
        weights = np.zeros((len(self.profile), len(idx)))
        todo = np.arange(len(idx))
        while len(todo):
            who = idx[todo]
            length = remaining[todo] / count[todo]
            e = self._coefficients(who, length, len(weights) - 1)
            weights[:, todo] = e
            terms = np.abs(e) * self.profile[:, who] * size[todo]
            tail = np.add.accumulate(terms[::-1], axis=0)[::-1]
            largest = np.max(terms, axis=0)
            small = np.minimum(rate[todo] * length, PAST_PEAK * largest)
            needed = np.count_nonzero(tail > small, axis=0)
            degree[todo] = np.clip(needed, 2, MAX_DEGREE)
            bad = (needed > MAX_DEGREE) | ~(largest <= ceiling[todo])
            hopeless = bad & (count[todo] > 1e9)
            self.strikes[who[hopeless]] = STRIKES
            todo = todo[bad & ~hopeless]
            count[todo] = np.ceil(SHORTER * count[todo])
        return Segments(idx, remaining / count, degree, weights)

    def _coefficients(self, who: Ints, t: Floats, degree: int) -> Floats:
        return coefficients(self.centre[who], self.capacity[who], self.ratio[who], t, degree)

    def _adapt(self, idx: Ints) -> None:
        """Change the ellipses as the last segments told."""
        self.capacity[idx] *= self.growth[idx]
        self.ratio[idx] /= self.growth[idx] ** 2
        self.growth[idx] = 1.0
        real = self.capacity[idx] * (1 + self.ratio[idx])
        imag = self.capacity[idx] * (1 - self.ratio[idx]) * self.narrowing[idx]
        changed = self.narrowing[idx] != 1.0
        self.capacity[idx] = np.where(changed, (real + imag) / 2, self.capacity[idx])
        self.ratio[idx] = np.where(changed, (real - imag) / (real + imag), self.ratio[idx])
        self.narrowed[idx] *= self.narrowing[idx]
        self.narrowing[idx] = 1.0

    def rows(self, segments: Segments) -> Floats:
        weights = segments.kept()
        live = np.arange(len(weights))[:, None] <= segments.degree
        capacity, ratio = self.capacity[segments.idx], self.ratio[segments.idx]
        table = np.zeros((len(weights), 4, len(segments.idx)))
        table[1:, 0] = np.where(live[1:], 1.0 / capacity, 0.0)
        table[1:, 1] = np.where(live[1:], -self.centre[segments.idx] / capacity, 0.0)
        table[2:, 2] = np.where(live[2:], -ratio, 0.0)
        table[2, 2] *= 2
        table[:, 3] = weights
        return table

    def refine(self, segments: Segments, norms: Floats, rate: Floats) -> Segments:
        """As many terms as `judge` will want, if the norms go on as they went lately."""
        done = len(norms) - 1
        runs = segments.degree > done
        known, beyond = np.split(np.abs(segments.weights), [done + 1])
        with np.errstate(all="ignore"):
            terms = known * norms
            last, before = _window_max(norms, runs * done), _window_max(norms, runs * done - LOOK)
            growth = (last / before) ** (1.0 / LOOK)
            growth = np.where(growth < 1.0, np.sqrt(growth), growth)
            ahead = beyond * (SAFETY * last) * growth ** np.arange(1, len(beyond) + 1)[:, None]
        ahead = np.nan_to_num(ahead, nan=HUGE, posinf=HUGE)
        tail = np.add.accumulate(ahead[::-1], axis=0)[::-1]
        small = np.minimum(rate * segments.length, PAST_PEAK * np.max(terms, axis=0))
        needed = np.count_nonzero(tail > small, axis=0) + done
        lost = ~np.isfinite(last) | (last > NORM_LIMIT * norms[0])
        lost |= (needed > MAX_DEGREE) & (last > RISING * before)
        degree = np.where(lost, done, np.minimum(needed, MAX_DEGREE))
        return dataclasses.replace(segments, degree=np.where(runs, degree, segments.degree))

    def values(self, segments: Segments, which: Ints, dt: Floats) -> Floats:
        return self._coefficients(segments.idx[which], dt, int(segments.degree.max()))

    def judge(self, segments: Segments, norms: Floats, rate: Floats, ceiling: Floats) -> Mask:
        """Which segments hold; learn from all.

        What was cut off is the sum of the coefficients beyond the degree times the largest of
        the last three norms, the growth of the norms included.
        """
        idx, degree = segments.idx, segments.degree
        with np.errstate(all="ignore"):
            terms = np.abs(segments.kept()) * norms
            largest = np.max(terms, axis=0)
            good = (_cut_off(segments, norms) <= rate * segments.length) & (largest <= ceiling)
            good &= _window_max(terms, degree) <= PAST_PEAK * largest
            good &= np.max(norms, axis=0) <= NORM_LIMIT * norms[0]
            last, middle = _window_max(norms, degree), _window_max(norms, degree // 2)
            fell = (last < FAR_DOWN * norms[0]) & (last < STILL_FALLING * middle)
            growth = (last / middle) ** (1.0 / np.maximum(degree - degree // 2, 1))
        flat = self.ratio[idx] > 0
        undo = ~good & (self.narrowed[idx] < 1.0)
        self.may_narrow[idx] &= ~undo
        narrow = np.where(good & fell & flat & self.may_narrow[idx], NARROW, 1.0)
        self.narrowing[idx] = np.where(undo, 1.0 / NARROW, narrow)
        rose = np.isfinite(growth) & (last > RISING * middle) & (degree > 20)
        self.growth[idx] = np.where(rose & ~undo, growth, 1.0)
        with np.errstate(all="ignore"):
            self._learn(segments, norms, np.where(good, SAFETY, RETRY_SAFETY))
        again = np.where(self.strikes[idx] > 0, 0.5, 1.0)
        self.length[idx] = segments.length * np.where(good, LONGER, again)
        self.strikes[idx] = np.where(good, 0, self.strikes[idx] + 1)
        self.strikes[idx[~np.isfinite(last)]] = STRIKES
        return np.asarray(good)

    def _learn(self, segments: Segments, norms: Floats, safety: Floats) -> None:
        """Predict the next norms, relative to the state: these, then on as they went lately.

        On an ellipse that is wider by a factor of the capacity, term k is smaller by its power k.
        """
        idx, degree = segments.idx, segments.degree
        k = np.arange(len(self.profile))[:, None]
        measured = np.zeros((len(self.profile), len(idx)))
        measured[: len(norms)] = norms
        envelope = measured.copy()
        envelope[1:] = np.maximum(envelope[1:], measured[:-1])
        envelope[:-1] = np.maximum(envelope[:-1], measured[1:])
        last, middle = _window_max(norms, degree), _window_max(norms, degree // 2)
        slope = np.log(last / middle) / np.maximum(degree - degree // 2, 1)
        slope = np.where(slope < 0, slope / 2, slope)
        wider = np.log(self.growth[idx]) * k
        beyond = last * np.exp(slope * (k - degree) - wider)
        profile = np.where(k <= degree, envelope * np.exp(-wider), beyond) * (safety / norms[0])
        profile = np.nan_to_num(profile, nan=HUGE, posinf=HUGE)
        self.profile[:, idx] = np.where(norms[0] > 0, np.minimum(profile, HUGE), SAFETY * BOUND)


def _cut_off(segments: Segments, norms: Floats) -> Floats:
    """The sum of the terms beyond the degree, as they would go on."""
    degree = segments.degree
    last = _window_max(norms, degree)
    growth = np.maximum(1.0, (last / _window_max(norms, degree - 3)) ** (1 / 3))
    growth = np.where(np.isfinite(growth), growth, 1.0)
    total, factor = np.zeros(len(degree)), last
    for j in range(1, TAIL + 1):
        factor = factor * growth
        total = total + factor * np.abs(_row(segments.weights, degree + j))
    return total


def _row(array: Floats, k: Ints) -> Floats:
    """``array[k_i, i]``, k cut to the rows there are."""
    result: Floats = array[np.clip(k, 0, len(array) - 1), np.arange(array.shape[1])]
    return result


def _window_max(norms: Floats, k: Ints) -> Floats:
    """The largest of the norms of the terms k - 2 .. k."""
    result: Floats = np.maximum(np.maximum(_row(norms, k), _row(norms, k - 1)), _row(norms, k - 2))
    return result
