// What an ADO takes from its neighbours, for one group: W = sum of coef * X[col] on the elements
// that S reads, then y += S W, without W ever leaving registers where S has one entry per element.
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

// S reads row j and column j only (a coupling to one site): D elements of each, then those of y.
template <class N, int D>
HD_INLINE void cross(const Group &g, const Link *link, const Link *end, const Scalar<N> *table,
                     const Scalar<N> *x, int64_t ado, Scalar<N> *y) {
    constexpr int S = N::size;
    const int64_t row = int64_t{g.cross.number} * D * S, col = int64_t{g.cross.number} * S;
    N r[D], c[D];
    for (int k = 0; k < D; ++k)
        r[k] = N::zero(), c[k] = N::zero();
    const auto add_row = [&](const Link *l) HD_LAMBDA {
        const N coef = N::load(table + int64_t{l->coef} * S);
        const Scalar<N> *from = x + l->col * ado + row;
        for (int k = 0; k < D; ++k)
            r[k] = fma(coef, N::load(from + k * S), r[k]);
    };
    const auto add_col = [&](const Link *l) HD_LAMBDA {
        const N coef = N::load(table + int64_t{l->coef} * S);
        const Scalar<N> *from = x + l->col * ado + col;
        for (int k = 0; k < D; ++k)
            c[k] = fma(coef, N::load(from + k * D * S), c[k]);
    };
    const Scalar<N> *value = table + int64_t{g.cross.value} * S;
    const auto finish = [&](const N *w, const Scalar<N> *v, Scalar<N> *to, int64_t step) HD_LAMBDA {
        for (int k = 0; k < D; ++k)
            fma(N::load(v + k * S), w[k], N::load(to + k * step)).store(to + k * step);
    };
    if constexpr (2 * D * (N::is_complex ? 2 : 1) <= 14) {
        for (const Link *l = link; l != end; ++l)
            add_row(l), add_col(l);
    } else {
        for (const Link *l = link; l != end; ++l)
            add_row(l);
    }
    finish(r, value, y + (g.cross.swapped ? col : row), g.cross.swapped ? D * S : S);
    if constexpr (2 * D * (N::is_complex ? 2 : 1) > 14)
        for (const Link *l = link; l != end; ++l)
            add_col(l);
    finish(c, value + D * S, y + (g.cross.swapped ? row : col), g.cross.swapped ? S : D * S);
}

// All of a group's part of y.
template <class N, int D>
HD_INLINE void neighbours(const Group &g, const Link *link, const Link *end, int d,
                          const Scalar<N> *table, const Scalar<N> *x, int64_t ado, Scalar<N> *y,
                          Scalar<N> *scratch) {
    if constexpr (D > 2) {
        if (g.cross.number >= 0)
            return cross<N, D>(g, link, end, table, x, ado, y);
    }
    if (g.n_run)
        return runs<N>(g, link, end, table, x, ado, y);
    gather<N>(g, link, end, table, x, ado, scratch);
    super<N, D>(g.super, table, scratch, d, y, scratch + ado);
}

} // namespace
