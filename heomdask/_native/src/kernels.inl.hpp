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
template <class N, int IN0, int IN1, int OUT0, int OUT1>
HD_INLINE void pair(const Link *link, const Link *end, const Scalar<N> *value,
                    const Scalar<N> *table, const Scalar<N> *x, N (*y)[4]) {
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
        y[h][OUT0] = fma(N::load(value + h * N::lanes), first[h], y[h][OUT0]);
        y[h][OUT1] = fma(N::load(value + S + h * N::lanes), second[h], y[h][OUT1]);
    }
}

// The part of a two-level system by itself: y = rate x + S x, where S may be known to mix only as a
// real Hamiltonian and pure dephasing do.
template <class N, Local Kind>
HD_INLINE void alone(N rate, const Scalar<N> *m, const Scalar<N> *x, N *y) {
    constexpr int S = N::size;
    const N x0 = N::load(x), x1 = N::load(x + S), x2 = N::load(x + 2 * S), x3 = N::load(x + 3 * S);
    const auto line = [&](int i, N own, auto... columns) HD_LAMBDA {
        N sum = fma(rate, own, N::zero());
        [[maybe_unused]] const N all[] = {x0, x1, x2, x3};
        ((sum = fma(N::load(m + (4 * i + columns) * S), all[columns], sum)), ...);
        return sum;
    };
    if constexpr (Kind == Local::none) {
        y[0] = line(0, x0), y[1] = line(1, x1), y[2] = line(2, x2), y[3] = line(3, x3);
    } else if constexpr (Kind == Local::plain) {
        y[0] = line(0, x0, 2), y[1] = line(1, x1, 1, 2);
        y[2] = line(2, x2, 0, 1, 2, 3), y[3] = line(3, x3, 2);
    } else {
        y[0] = line(0, x0, 0, 1, 2, 3), y[1] = line(1, x1, 0, 1, 2, 3);
        y[2] = line(2, x2, 0, 1, 2, 3), y[3] = line(3, x3, 0, 1, 2, 3);
    }
}

// The same for a two-level system with diagonal couplings: all members of a block at once, y in
// registers.
template <class N, Local Kind>
void image_two(const Program &p, const Step<Scalar<N>> &s, int64_t row, int64_t n, int64_t ado) {
    constexpr int S = N::size, R = N::parts, L = N::lanes;
    const Link *link = p.link + p.link_start[row];
    const int32_t *count = p.counts + row * p.n_group;
    const Scalar<N> *own = s.x + row * ado, *local = s.table + int64_t{p.local.full} * S;
    Scalar<N> *out = s.scratch;
    for (int64_t r = row; r < row + n; ++r, own += ado, out += ado) {
        N y[R][4];
        for (int h = 0; h < R; ++h) {
            const N rate = p.has_diagonal ? N::load(s.diagonal + r * S + h * L) : N::zero();
            alone<N, Kind>(rate, local + h * L, own + h * L, y[h]);
        }
        for (int g = 0; g < p.n_group; ++g, ++count) {
            const Link *end = link + *count;
            const Scalar<N> *value = s.table + int64_t{p.group[g].run->value} * S;
            if (p.group[g].pair == Pair::diagonal)
                pair<N, 0, 3, 0, 3>(link, end, value, s.table, s.x, y);
            else if (p.group[g].pair == Pair::across)
                pair<N, 1, 2, 1, 2>(link, end, value, s.table, s.x, y);
            else
                pair<N, 2, 1, 1, 2>(link, end, value, s.table, s.x, y);
            link = end;
        }
        for (int h = 0; h < R; ++h)
            for (int e = 0; e < 4; ++e)
                y[h][e].store(out + e * S + h * L);
    }
}

template <class N> using Image = decltype(&image<N, 0>);
template <class N> using Epilogue = decltype(&epilogue_masked<N>);

// Sizes known to the compiler where they pay: real numbers in registers that are really there. Two
// levels go by blocks of several registers, for their work is mostly that of finding the
// neighbours; larger systems by blocks of one, for their blocks fill the caches.
template <class N> Image<N> image_for(const Program &p) {
    if (p.counts)
        switch (p.two) {
        case Local::none: return image_two<N, Local::none>;
        case Local::plain: return image_two<N, Local::plain>;
        case Local::full: return image_two<N, Local::full>;
        }
#if defined(__AVX2__)
    if constexpr (!N::is_complex && N::parts == 1)
        switch (p.d) {
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
    const Image<N> make = image_for<N>(p);
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
