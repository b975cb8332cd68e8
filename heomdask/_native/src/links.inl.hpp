// What an ADO takes from its neighbours: couplings to one site link by link; other terms by group,
// W = sum of coef * X[col] on the elements that S reads, then y += S W, without W ever leaving
// registers where S has one entry per element.
#pragma once
#include "superop.inl.hpp"

namespace {

using namespace heomdask;

template <class N, int K>
HD_INLINE void gather_tile(const Link *link, const Link *end, const int32_t *in,
                           const Scalar<N> *table, const Scalar<N> *x, int64_t ado, Scalar<N> *w) {
    N sum[K];
    for (int k = 0; k < K; ++k)
        sum[k] = N::zero();
    for (; link != end; ++link) {
        const N coef = N::load(table + int64_t{link->coef} * N::size);
        const Scalar<N> *from = x + link->col * ado;
        for (int k = 0; k < K; ++k)
            sum[k] = fma(coef, N::load(from + in[k] * N::size), sum[k]);
    }
    for (int k = 0; k < K; ++k)
        sum[k].store(w + in[k] * N::size);
}

// K elements of W and of y += S W in registers, for a run of K entries.
template <class N, int K>
HD_INLINE void run_tile(const Link *link, const Link *end, const Run &run, const Scalar<N> *table,
                        const Scalar<N> *x, int64_t ado, Scalar<N> *y) {
    constexpr int S = N::size;
    const int64_t din = run.din * S, dout = run.dout * S;
    const Scalar<N> *first = x + run.in * S;
    N sum[K];
    for (int k = 0; k < K; ++k)
        sum[k] = N::zero();
    for (; link != end; ++link) {
        const N coef = N::load(table + int64_t{link->coef} * S);
        const Scalar<N> *from = first + link->col * ado;
        for (int k = 0; k < K; ++k)
            sum[k] = fma(coef, N::load(from + k * din), sum[k]);
    }
    const Scalar<N> *value = table + int64_t{run.value} * S;
    Scalar<N> *to = y + run.out * S;
    for (int k = 0; k < K; ++k)
        fma(N::load(value + k * S), sum[k], N::load(to + k * dout)).store(to + k * dout);
}

template <class N>
HD_INLINE void runs(const Group &g, const Link *link, const Link *end, const Scalar<N> *table,
                    const Scalar<N> *x, int64_t ado, Scalar<N> *y) {
    for (int k = 0; k < g.n_run; ++k) {
        const Run &run = g.run[k];
        switch (run.n) {
        case 1: run_tile<N, 1>(link, end, run, table, x, ado, y); break;
        case 2: run_tile<N, 2>(link, end, run, table, x, ado, y); break;
        case 3: run_tile<N, 3>(link, end, run, table, x, ado, y); break;
        case 4: run_tile<N, 4>(link, end, run, table, x, ado, y); break;
        case 5: run_tile<N, 5>(link, end, run, table, x, ado, y); break;
        case 6: run_tile<N, 6>(link, end, run, table, x, ado, y); break;
        case 7: run_tile<N, 7>(link, end, run, table, x, ado, y); break;
        default: run_tile<N, 8>(link, end, run, table, x, ado, y); break;
        }
    }
}

template <class N>
HD_INLINE void gather(const Group &g, const Link *link, const Link *end, const Scalar<N> *table,
                      const Scalar<N> *x, int64_t ado, Scalar<N> *w) {
    constexpr int K = N::is_complex ? 3 : 6;
    int k = 0;
    for (; k + K <= g.n_in; k += K)
        gather_tile<N, K>(link, end, g.in + k, table, x, ado, w);
    for (; k + 2 <= g.n_in; k += 2)
        gather_tile<N, 2>(link, end, g.in + k, table, x, ado, w);
    if (k < g.n_in)
        gather_tile<N, 1>(link, end, g.in + k, table, x, ado, w);
}

// A coupling to one site, link by link, into row and column `site` of y.
template <class N, int D, bool Straight, bool Swapped>
HD_INLINE void cross(const Crossing *link, const Crossing *end, int runtime_d,
                     const Scalar<N> *table, const Scalar<N> *x, int64_t ado, Scalar<N> *y) {
    constexpr int S = N::size, own = 2 * (Straight + Swapped);
    const int d = D ? D : runtime_d;
    for (; link != end; ++link) {
        const int64_t row = int64_t{link->site} * d * S, col = int64_t{link->site} * S;
        const Scalar<N> *from = x + link->col * ado, *coef = table + int64_t{link->coef} * S;
        const N to_row = N::load(coef), to_col = N::load(coef + S);
        const N across = N::load(coef + (own - 2) * S), back = N::load(coef + (own - 1) * S);
        const N common =
            fma(N::load(coef + own * S), N::load(from + row + col), N::load(y + row + col));
#pragma GCC unroll 8
        for (int k = 0; k < d; ++k) {
            const N r = N::load(from + row + k * S), c = N::load(from + col + k * d * S);
            N y_row = N::load(y + row + k * S), y_col = N::load(y + col + k * d * S);
            if constexpr (Straight)
                y_row = fma(to_row, r, y_row), y_col = fma(to_col, c, y_col);
            if constexpr (Swapped)
                y_row = fma(back, c, y_row), y_col = fma(across, r, y_col);
            y_row.store(y + row + k * S), y_col.store(y + col + k * d * S);
        }
        common.store(y + row + col);
    }
}

// All of a row's couplings to one site.
template <class N, int D>
HD_INLINE void crossings(const Program &p, int64_t r, int d, const Scalar<N> *table,
                         const Scalar<N> *x, int64_t ado, Scalar<N> *y) {
    const int64_t *start = p.cross_start + crossing_kinds * r;
    const auto at = [&](int kind) HD_LAMBDA { return p.crossing + start[kind]; };
    table += int64_t{p.cross_first} * N::size;
    cross<N, D, true, false>(at(0), at(1), d, table, x, ado, y);
    cross<N, D, false, true>(at(1), at(2), d, table, x, ado, y);
    cross<N, D, true, true>(at(2), at(3), d, table, x, ado, y);
}

// All of a group's part of y.
template <class N, int D>
HD_INLINE void neighbours(const Group &g, const Link *link, const Link *end, int d,
                          const Scalar<N> *table, const Scalar<N> *x, int64_t ado, Scalar<N> *y,
                          Scalar<N> *scratch) {
    if (g.n_run)
        return runs<N>(g, link, end, table, x, ado, y);
    gather<N>(g, link, end, table, x, ado, scratch);
    super<N, D>(g.super, table, scratch, d, y, scratch + ado);
}

} // namespace
