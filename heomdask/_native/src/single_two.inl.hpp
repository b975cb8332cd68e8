// The kernels for one system of two levels (or one): an ADO is one register. Where all couplings are
// diagonal and all numbers real, a neighbour is one multiply-add.
#pragma once
#include "kernels.inl.hpp"
#include "single_numbers.inl.hpp"

namespace {

using namespace heomdask;

// S as four registers of factors: element o of y takes v[p][o] times element o ^ p of x.
template <class N> struct Four {
    N v[quad];
    bool on[quad];
};

template <class N> Four<N> four(const Super &s, const double *table, int d) {
    constexpr int C = planes<N>;
    double dense[quad * quad][2] = {};
    const auto add_to = [&](int out, int in, int32_t row) {
        for (int c = 0; c < C; ++c)
            dense[out * quad + in][c] += table[int64_t{row} * C + c];
    };
    for (int o = 0; o < s.entries.n_out; ++o)
        for (int e = s.entries.start[o]; e < s.entries.start[o + 1]; ++e)
            add_to(s.entries.out[o], s.entries.in[e], s.entries.value[e]);
    for (int e = 0; e < d * d && s.each >= 0; ++e)
        add_to(e, e, s.each + e);
    for (int i = 0; i < d * d * d * d && s.full >= 0; ++i)
        add_to(i / (d * d), i % (d * d), s.full + i);
    for (int i = 0; i < d; ++i)
        for (int j = 0; j < d; ++j)
            for (int k = 0; k < d; ++k) {
                if (s.left >= 0)
                    add_to(i * d + j, k * d + j, s.left + i * d + k);
                if (s.right >= 0)
                    add_to(i * d + j, i * d + k, s.right + k * d + j);
                if (s.left_t >= 0)
                    add_to(j * d + i, k * d + j, s.left_t + i * d + k);
                if (s.right_t >= 0)
                    add_to(j * d + i, i * d + k, s.right_t + k * d + j);
            }
    Four<N> f;
    for (int p = 0; p < quad; ++p) {
        const auto part = [&](int c) {
            return of4(dense[p][c], dense[quad + (1 ^ p)][c], dense[2 * quad + (2 ^ p)][c],
                       dense[3 * quad + (3 ^ p)][c]);
        };
        f.v[p].re = part(0);
        if constexpr (N::is_complex)
            f.v[p].im = part(1);
        f.on[p] = false;
        for (int o = 0; o < quad; ++o)
            f.on[p] =
                f.on[p] || dense[o * quad + (o ^ p)][0] != 0 || dense[o * quad + (o ^ p)][1] != 0;
    }
    return f;
}

template <class N> HD_INLINE N act(const Four<N> &f, N x, N y) {
    if (f.on[0])
        y = fma(f.v[0], x, y);
    if (f.on[1])
        y = fma(f.v[1], exchanged<1>(x), y);
    if (f.on[2])
        y = fma(f.v[2], exchanged<2>(x), y);
    if (f.on[3])
        y = fma(f.v[3], exchanged<3>(x), y);
    return y;
}

// y = G x for n rows from `first` on, one after the other in scratch.
template <class N>
void two_by_groups(const Program &p, const Step<double> &s, const Four<N> &local,
                   const Four<N> *groups, int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) {
        const N x = N::load(s.x + r * N::size);
        const N rate = p.has_diagonal ? spread<N>(s.diagonal + r * planes<N>) : N::zero();
        N y = act(local, x, fma(rate, x, N::zero()));
        const Link *link = p.link + p.link_start[r];
        for (const Visit *v = p.visit + p.visit_start[r]; v != p.visit + p.visit_start[r + 1];
             ++v) {
            N w = N::zero();
            for (const Link *last = link + v->n; link != last; ++link)
                w = fma(spread<N>(s.table + int64_t{link->coef} * planes<N>),
                        N::load(s.x + int64_t{link->col} * N::size), w);
            y = act(groups[v->group], w, y);
        }
        y.store(s.scratch + (r - first) * N::size);
    }
}

// The same with every neighbour in one step.
template <class N, bool HasAcross>
void two_by_strands(const Program &p, const Step<double> &s, const Four<N> &f, int64_t first,
                    int64_t n) {
    const Link *link = p.strand + p.strand_start[first];
    for (int64_t r = first; r < first + n; ++r) {
        const N x = N::load(s.x + r * N::size);
        const N rate = p.has_diagonal ? spread<N>(s.diagonal + r) : N::zero();
        N y = fma(f.v[0], x, fma(rate, x, N::zero())), crossed = N::zero();
        y = fma(f.v[1], exchanged<1>(x), y);
        y = fma(f.v[2], exchanged<2>(x), y);
        y = fma(f.v[3], exchanged<3>(x), y);
        for (const Link *end = p.strand + p.strand_start[r + 1]; link != end; ++link) {
            const double *factors = p.factors + link->coef;
            const N from = N::load(s.x + int64_t{link->col} * N::size);
            crossed = fma(N::load(factors), from, crossed);
            if constexpr (HasAcross)
                y = fma(N::load(factors + quad), from, y);
        }
        add(y, N{middle_exchanged(crossed.re)}).store(s.scratch + (r - first) * N::size);
    }
}

template <class N>
void single_two(const Program &p, const Step<double> &s, int64_t begin, int64_t end) {
    const Four<N> local = four<N>(p.local, s.table, p.d);
    auto *groups = reinterpret_cast<Four<N> *>(s.scratch + chunk_units * N::size);
    for (int g = 0; g < p.n_group && !p.strand; ++g)
        groups[g] = four<N>(p.group[g].super, s.table, p.d);
    const Epilogue<N> finish = epilogue_for<N>(s);
    for (int64_t first = begin; first < end; first += chunk_units) {
        const int64_t n = end - first < chunk_units ? end - first : chunk_units;
        if (s.mode[A] != none) {
            if constexpr (!N::is_complex)
                if (p.strand) {
                    if (p.has_across)
                        two_by_strands<N, true>(p, s, local, first, n);
                    else
                        two_by_strands<N, false>(p, s, local, first, n);
                }
            if (!p.strand)
                two_by_groups<N>(p, s, local, groups, first, n);
        }
        const int64_t at = first * N::size;
        finish(s, 0, s.scratch, s.x + at, s.old + at, s.out + at, s.acc + at, static_cast<int>(n));
    }
}

} // namespace
