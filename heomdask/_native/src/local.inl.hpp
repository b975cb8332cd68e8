// The local solve of a tile of ADOs: two matrix products, and a complex factor for each mode.
#pragma once
#include "program.hpp"
#include "vec.hpp"

namespace {

using namespace heomdask;

constexpr int sums = 12; // registers that one block of a product is summed in

// out (local_tile, columns) = x (local_tile, n) times a matrix in panels
template <class V>
void product(const double *x, int64_t n, const double *panels, int64_t columns, double *out) {
    constexpr int parts = local_line / V::lanes, rows = sums / parts;
    static_assert(local_tile % rows == 0);
    for (int64_t c = 0; c < columns; c += local_line)
        for (int r = 0; r < local_tile; r += rows) {
            const double *panel = panels + c * n, *from = x + r * n;
            V sum[rows][parts];
#pragma GCC unroll 12
            for (int k = 0; k < rows; ++k)
#pragma GCC unroll 4
                for (int p = 0; p < parts; ++p)
                    sum[k][p] = V::set1(0);
            for (int64_t i = 0; i < n; ++i) {
                V row[parts];
#pragma GCC unroll 4
                for (int p = 0; p < parts; ++p)
                    row[p] = V::load(panel + i * local_line + p * V::lanes);
#pragma GCC unroll 12
                for (int k = 0; k < rows; ++k) {
                    const V factor = V::set1(from[k * n + i]);
#pragma GCC unroll 4
                    for (int p = 0; p < parts; ++p)
                        sum[k][p] = fma(factor, row[p], sum[k][p]);
                }
            }
#pragma GCC unroll 12
            for (int k = 0; k < rows; ++k)
#pragma GCC unroll 4
                for (int p = 0; p < parts; ++p)
                    sum[k][p].store(out + (r + k) * columns + c + p * V::lanes);
        }
}

// z /= value + shift, for the modes z of one ADO
void divide(const double *values, const double *shift, int64_t modes, double *z) {
    using V = F64x4;
    const V zero = V::set1(0), one = V::set1(1);
    const V shift_re = V::set1(shift[0]), shift_im = V::set1(shift[1]);
    for (int64_t j = 0; j < modes; j += V::lanes) {
        const V re = add(V::load(values + j), shift_re);
        const V im = add(V::load(values + modes + j), shift_im);
        const V over = div(one, fma(re, re, fma(im, im, zero)));
        const V a = V::load(z + j), b = V::load(z + modes + j);
        fma(over, fma(a, re, fma(b, im, zero)), zero).store(z + j);
        fma(over, fnma(a, im, fma(b, re, zero)), zero).store(z + modes + j);
    }
}

template <class V> void solve_tile(const LocalTables &t, const LocalTile &tile) {
    product<V>(tile.x, t.n, t.into, t.columns, tile.modes);
    for (int r = 0; r < local_tile; ++r)
        divide(t.values, tile.shifts + 2 * r, t.columns / 2, tile.modes + r * t.columns);
    product<V>(tile.modes, t.columns, t.back, t.n_out, tile.out);
}

} // namespace
