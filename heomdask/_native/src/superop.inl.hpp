// y += S x for one ADO of a batch: dense one-sided products in register tiles, sparse entries, full
// matrices, two-sided products.
#pragma once
#include "number.hpp"
#include "program.hpp"

namespace {

using namespace heomdask;

// NI x NJ elements of A B (+ C E), added to y (element i, j at i * si + j * sj); D = 0: d at run
// time. Loops over the sums are unrolled at once: else the compiler keeps a copy of them in memory.
template <class N, int D, int NI, int NJ>
HD_INLINE void tile(const Scalar<N> *a, const Scalar<N> *b, const Scalar<N> *c, const Scalar<N> *e,
                    int runtime_d, int i0, int j0, Scalar<N> *y, int si, int sj) {
    const int d = D ? D : runtime_d;
    constexpr int S = N::size;
    N sum[NI][NJ];
    const auto place = [&](int i, int j) HD_LAMBDA { return ((i0 + i) * si + (j0 + j) * sj) * S; };
#pragma GCC unroll 4
    for (int i = 0; i < NI; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < NJ; ++j)
            sum[i][j] = N::load(y + place(i, j));
    // The fewer of both factors stay in registers while the others come one at a time.
    const auto product = [&](const Scalar<N> *p, const Scalar<N> *q, auto &&add) HD_LAMBDA {
        constexpr bool by_row = NJ <= NI;
        constexpr int kept = by_row ? NJ : NI, passing = by_row ? NI : NJ;
#pragma GCC unroll 2
        for (int k = 0; k < d; ++k) {
            const auto left = [&](int i) HD_LAMBDA { return N::load(p + ((i0 + i) * d + k) * S); };
            const auto right = [&](int j) HD_LAMBDA { return N::load(q + (k * d + j0 + j) * S); };
            N stays[kept];
#pragma GCC unroll 4
            for (int n = 0; n < kept; ++n)
                stays[n] = by_row ? right(n) : left(n);
#pragma GCC unroll 8
            for (int m = 0; m < passing; ++m) {
                const N comes = by_row ? left(m) : right(m);
#pragma GCC unroll 4
                for (int n = 0; n < kept; ++n)
                    if constexpr (by_row)
                        sum[m][n] = add(comes, stays[n], sum[m][n]);
                    else
                        sum[n][m] = add(stays[n], comes, sum[n][m]);
            }
        }
    };
    // Operator first, as in sparse entries: complex products round by the order of their factors.
    if (a)
        product(a, b, [](N left, N right, N sum) HD_LAMBDA { return fma(left, right, sum); });
    if (e)
        product(c, e, [](N left, N right, N sum) HD_LAMBDA { return fma(right, left, sum); });
#pragma GCC unroll 4
    for (int i = 0; i < NI; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < NJ; ++j)
            sum[i][j].store(y + place(i, j));
}

template <class N> struct TileSize { // what the registers hold
    static constexpr int rows = N::is_complex ? 2 : 4, cols = N::is_complex ? 2 : 3;
};

// All tiles of a size known to the compiler, as even as they can be; lower ones are wider, so that
// there are enough sums to hide the time that one addition takes.
template <class N, int D, int I = 0, int J = 0>
HD_INLINE void tiles(const Scalar<N> *left, const Scalar<N> *right, const Scalar<N> *x,
                     Scalar<N> *y, int si, int sj) {
    constexpr int ni = (D + TileSize<N>::rows - 1) / TileSize<N>::rows;
    constexpr int i0 = D * I / ni, i1 = D * (I + 1) / ni;
    constexpr int cols = TileSize<N>::rows * TileSize<N>::cols / (i1 - i0);
    constexpr int nj = (D + cols - 1) / cols, j0 = D * J / nj, j1 = D * (J + 1) / nj;
    tile<N, D, i1 - i0, j1 - j0>(left, x, x, right, D, i0, j0, y, si, sj);
    if constexpr (J + 1 < nj)
        tiles<N, D, I, J + 1>(left, right, x, y, si, sj);
    else if constexpr (I + 1 < ni)
        tiles<N, D, I + 1, 0>(left, right, x, y, si, sj);
}

template <class N>
void tiles_of_any_size(const Scalar<N> *left, const Scalar<N> *right, const Scalar<N> *x, int d,
                       Scalar<N> *y, int si, int sj) {
    constexpr int TI = TileSize<N>::rows, TJ = TileSize<N>::cols;
    for (int i0 = 0; i0 < d; i0 += TI)
        for (int j0 = 0; j0 < d; j0 += TJ) {
            if (i0 + TI <= d && j0 + TJ <= d) {
                tile<N, 0, TI, TJ>(left, x, x, right, d, i0, j0, y, si, sj);
            } else if (i0 + TI <= d) {
                for (int j = j0; j < d; ++j)
                    tile<N, 0, TI, 1>(left, x, x, right, d, i0, j, y, si, sj);
            } else if (j0 + TJ <= d) {
                for (int i = i0; i < d; ++i)
                    tile<N, 0, 1, TJ>(left, x, x, right, d, i, j0, y, si, sj);
            } else {
                for (int i = i0; i < d; ++i)
                    for (int j = j0; j < d; ++j)
                        tile<N, 0, 1, 1>(left, x, x, right, d, i, j, y, si, sj);
            }
        }
}

// y += L x + x R (a null operator is absent), transposed at the end if so flagged.
template <class N, int D>
void one_sided(const Scalar<N> *left, const Scalar<N> *right, const Scalar<N> *x, int d,
               Scalar<N> *y, bool transposed) {
    if constexpr (D == 0 || D == 2)
        tiles_of_any_size<N>(left, right, x, d, y, transposed ? 1 : d, transposed ? d : 1);
    else if (transposed)
        tiles<N, D>(left, right, x, y, 1, D);
    else
        tiles<N, D>(left, right, x, y, D, 1);
}

template <class N>
HD_INLINE void sparse(const Entries &s, const Scalar<N> *table, const Scalar<N> *x, Scalar<N> *y) {
    for (int o = 0; o < s.n_out; ++o) {
        Scalar<N> *target = y + s.out[o] * N::size;
        N sum = N::load(target);
        for (int e = s.start[o]; e < s.start[o + 1]; ++e)
            sum = fma(N::load(table + int64_t{s.value[e]} * N::size),
                      N::load(x + s.in[e] * N::size), sum);
        sum.store(target);
    }
}

// `each` is left to the caller: it comes before all other summands.
template <class N, int D>
HD_INLINE void super(const Super &s, const Scalar<N> *table, const Scalar<N> *x, int d,
                     Scalar<N> *y, Scalar<N> *scratch) {
    const auto at = [table](int32_t row) {
        return row < 0 ? nullptr : table + int64_t{row} * N::size;
    };
    if (s.left_t >= 0 || s.right_t >= 0)
        one_sided<N, D>(at(s.left_t), at(s.right_t), x, d, y, true);
    if (s.left >= 0 || s.right >= 0)
        one_sided<N, D>(at(s.left), at(s.right), x, d, y, false);
    if (s.entries.n_out)
        sparse<N>(s.entries, table, x, y);
    if (s.full >= 0) {
        const int n = d * d;
        const Scalar<N> *m = at(s.full);
        for (int i = 0; i < n; ++i) {
            N sum = N::load(y + i * N::size);
            for (int j = 0; j < n; ++j)
                sum = fma(N::load(m + (i * n + j) * N::size), N::load(x + j * N::size), sum);
            sum.store(y + i * N::size);
        }
    }
    for (int k = 0; k < s.n_sandwich; ++k) {
        for (int e = 0; e < d * d; ++e)
            N::zero().store(scratch + e * N::size);
        one_sided<N, D>(at(s.sandwich[k].left), nullptr, x, d, scratch, false);
        one_sided<N, D>(nullptr, at(s.sandwich[k].right), scratch, d, y,
                        s.sandwich[k].transposed != 0);
    }
}

} // namespace
