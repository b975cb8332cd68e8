// The kernels for batches, members fastest: written once over a number type, compiled once for
// each instruction set. One ADO at a time: y = G x in scratch, then the epilogue. Every sum starts
// from +0 with a fused multiply-add, so that a zero coefficient changes no bit of any result.
#pragma once
#include "epilogue.inl.hpp"
#include "links.inl.hpp"
#include "superop.inl.hpp"

namespace {

using namespace heomdask;

// y = (rate + each) x, element by element; `each` may be absent.
template <class N>
HD_INLINE void start(N rate, const Scalar<N> *each, const Scalar<N> *x, Scalar<N> *y, int units) {
    for (int at = 0; at < units * N::size; at += N::size) {
        const N factor = each ? add(rate, N::load(each + at)) : rate;
        fma(factor, N::load(x + at), N::zero()).store(y + at);
    }
}

// y = G x for n rows from `row` on, one after the other in scratch.
template <class N, int D>
void image(const Program &p, const Step<Scalar<N>> &s, int64_t row, int64_t n, int64_t ado) {
    const int d = D ? D : p.d, units = d * d;
    Scalar<N> *work = s.scratch + n * ado;
    for (int64_t r = row; r < row + n; ++r) {
        Scalar<N> *y = s.scratch + (r - row) * ado;
        for (int h = 0; h < N::width; h += N::lanes) {
            const Scalar<N> *x = s.x + r * ado + h;
            const N rate = p.has_diagonal ? N::load(s.diagonal + r * N::size + h) : N::zero();
            const Scalar<N> *each = s.table + int64_t{p.local.each} * N::size + h;
            start<N>(rate, p.local.each < 0 ? nullptr : each, x, y + h, units);
            if (p.has_local)
                super<N, D>(p.local, s.table + h, x, d, y + h, work);
            if (p.cross_start)
                crossings<N, D>(p, r, d, s.table + h, s.x + h, ado, y + h);
        }
        const Link *link = p.link + p.link_start[r];
        for (const Visit *v = p.visit + p.visit_start[r]; v != p.visit + p.visit_start[r + 1];
             ++v) {
            const Group &group = p.group[v->group];
            const Link *end = link + v->n;
            for (int h = 0; h < N::width; h += N::lanes)
                neighbours<N, D>(group, link, end, d, s.table + h, s.x + h, ado, y + h, work);
            link = end;
        }
    }
}

// Elements IN0 and IN1 of W for a two-level system, added to two of y in registers.
template <class N, int IN0, int IN1>
HD_INLINE void pair(const Link *link, const Link *end, const Scalar<N> *value,
                    const Scalar<N> *table, const Scalar<N> *x, N *y0, N *y1) {
    constexpr int S = N::size, R = N::parts;
    N first[R], second[R];
    for (int h = 0; h < R; ++h)
        first[h] = N::zero(), second[h] = N::zero();
    for (; link != end; ++link) {
        const Scalar<N> *coef = table + int64_t{link->coef} * S;
        const Scalar<N> *from = x + int64_t{link->col} * (4 * S);
        for (int h = 0; h < R; ++h) {
            const N c = N::load(coef + h * N::lanes);
            first[h] = fma(c, N::load(from + IN0 * S + h * N::lanes), first[h]);
            second[h] = fma(c, N::load(from + IN1 * S + h * N::lanes), second[h]);
        }
    }
    for (int h = 0; h < R; ++h) {
        y0[h] = fma(N::load(value + h * N::lanes), first[h], y0[h]);
        y1[h] = fma(N::load(value + S + h * N::lanes), second[h], y1[h]);
    }
}

// The same for a two-level system: all members of a block at once, y in registers as long as
// couplings are diagonal.
template <class N>
void image_two(const Program &p, const Step<Scalar<N>> &s, int64_t row, int64_t n, int64_t ado) {
    constexpr int S = N::size, R = N::parts, L = N::lanes;
    for (int64_t r = row; r < row + n; ++r) {
        const Scalar<N> *own = s.x + r * ado;
        Scalar<N> *out = s.scratch + (r - row) * ado;
        N y0[R], y1[R], y2[R], y3[R];
        for (int h = 0; h < R; ++h) {
            const N rate = p.has_diagonal ? N::load(s.diagonal + r * S + h * L) : N::zero();
            const N x0 = N::load(own + h * L), x1 = N::load(own + S + h * L);
            const N x2 = N::load(own + 2 * S + h * L), x3 = N::load(own + 3 * S + h * L);
            const Scalar<N> *m = s.table + int64_t{p.local.full} * S + h * L;
            const auto line = [&](int i, N x) HD_LAMBDA {
                N y = fma(rate, x, N::zero());
                if (!p.has_local)
                    return y;
                y = fma(N::load(m + 4 * i * S), x0, y);
                y = fma(N::load(m + (4 * i + 1) * S), x1, y);
                y = fma(N::load(m + (4 * i + 2) * S), x2, y);
                return fma(N::load(m + (4 * i + 3) * S), x3, y);
            };
            y0[h] = line(0, x0), y1[h] = line(1, x1), y2[h] = line(2, x2), y3[h] = line(3, x3);
        }
        const Visit *visits = p.visit + p.visit_start[r], *last = p.visit + p.visit_start[r + 1];
        const Link *link = p.link + p.link_start[r], *end = link;
        bool others = false;
        for (const Visit *v = visits; v != last; ++v, link = end) {
            const Group &group = p.group[v->group];
            end = link + v->n;
            others = others || group.pair == Pair::other;
            if (group.pair == Pair::other)
                continue;
            const Scalar<N> *value = s.table + int64_t{group.run->value} * S;
            if (group.pair == Pair::diagonal)
                pair<N, 0, 3>(link, end, value, s.table, s.x, y0, y3);
            else if (group.pair == Pair::across)
                pair<N, 1, 2>(link, end, value, s.table, s.x, y1, y2);
            else
                pair<N, 2, 1>(link, end, value, s.table, s.x, y1, y2);
        }
        for (int h = 0; h < R; ++h) {
            y0[h].store(out + h * L), y1[h].store(out + S + h * L);
            y2[h].store(out + 2 * S + h * L), y3[h].store(out + 3 * S + h * L);
        }
        link = end = p.link + p.link_start[r];
        for (const Visit *v = visits; others && v != last; ++v, link = end) {
            end = link + v->n;
            if (p.group[v->group].pair == Pair::other)
                for (int h = 0; h < N::width; h += L)
                    neighbours<N, 2>(p.group[v->group], link, end, 2, s.table + h, s.x + h, ado,
                                     out + h, s.scratch + n * ado);
        }
    }
}

template <class N> using Image = decltype(&image<N, 0>);
template <class N> using Epilogue = decltype(&epilogue_masked<N>);

// Sizes known to the compiler where they pay: real numbers in registers that are really there. Two
// levels go by blocks of several registers, for their work is mostly that of finding the
// neighbours; larger systems by blocks of one, for their blocks fill the caches.
template <class N> Image<N> image_for(int d) {
    if (d == 2)
        return image_two<N>;
#if defined(__AVX2__)
    if constexpr (!N::is_complex && N::parts == 1)
        switch (d) {
        case 3: return image<N, 3>;
        case 4: return image<N, 4>;
        case 5: return image<N, 5>;
        case 6: return image<N, 6>;
        case 7: return image<N, 7>;
        case 8: return image<N, 8>;
        }
#endif
    return image<N, 0>;
}

template <class N, bool HasB, bool HasC> Epilogue<N> epilogue_for(Acc accumulate) {
    switch (accumulate) {
    case Acc::add: return epilogue<N, HasB, HasC, Acc::add>;
    case Acc::add_both: return epilogue<N, HasB, HasC, Acc::add_both>;
    case Acc::init_both: return epilogue<N, HasB, HasC, Acc::init_both>;
    default: return epilogue<N, HasB, HasC, Acc::off>;
    }
}

template <class N> Epilogue<N> epilogue_for(const Step<Scalar<N>> &s) {
    if (!is_plain(s))
        return epilogue_masked<N>;
    if (s.mode[B] == all)
        return s.mode[C] == all ? epilogue_for<N, true, true>(s.accumulate)
                                : epilogue_for<N, true, false>(s.accumulate);
    return s.mode[C] == all ? epilogue_for<N, false, true>(s.accumulate)
                            : epilogue_for<N, false, false>(s.accumulate);
}

template <class N>
void rows(const Program &p, const Step<Scalar<N>> &s, int64_t begin, int64_t end) {
    const Image<N> make = image_for<N>(p.d);
    const Epilogue<N> finish = epilogue_for<N>(s);
    const int units = p.d * p.d;
    const int64_t ado = int64_t{units} * N::size,
                  many = units < chunk_units ? chunk_units / units : 1;
    for (int64_t r = begin; r < end; r += many) {
        const int64_t n = r + many < end ? many : end - r, at = r * ado;
        if (s.mode[A] != none)
            make(p, s, r, n, ado);
        for (int h = 0; h < N::width; h += N::lanes)
            finish(s, h, s.scratch + h, s.x + at + h, s.old + at + h, s.out + at + h,
                   s.acc + at + h, static_cast<int>(n) * units);
    }
}

} // namespace
