// Passes over whole states, unit by unit and therefore for every layout: linear combinations, dot
// products, largest elements. Sums run in a fixed order of units: no thread count changes a bit.
#pragma once
#include "number.hpp"
#include "program.hpp"

namespace {

using namespace heomdask;

constexpr int max_arrays = 32;  // of one combination
constexpr int side_by_side = 4; // sums, so that none waits for the one before

// Linear combinations of U units in a row.
template <int U, class N>
HD_INLINE void combine_units(Scalar<N> *out, int n, const Scalar<N> *const *arrays, const N *weight,
                             const Mode *modes, int64_t at) {
    N t[U];
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u)
        t[u] = N::zero();
    for (int i = 0; i < n; ++i) {
        if (modes[i] == none)
            continue;
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
            const N next = fma(weight[i], N::load(arrays[i] + at + u * N::size), t[u]);
            t[u] = modes[i] == all ? next : select(nonzero(weight[i]), next, t[u]);
        }
    }
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u)
        t[u].store(out + at + u * N::size);
}

template <class N>
void combine(Scalar<N> *out, int n, const Scalar<N> *const *arrays, const Scalar<N> *weights,
             const Mode *modes, int64_t units) {
    for (int h = 0; h < N::width; h += N::lanes) {
        N weight[max_arrays];
        for (int i = 0; i < n; ++i)
            weight[i] = N::load(weights + i * N::size + h);
        int64_t unit = 0;
        for (; unit + side_by_side <= units; unit += side_by_side)
            combine_units<side_by_side>(out, n, arrays, weight, modes, unit * N::size + h);
        for (; unit < units; ++unit)
            combine_units<1>(out, n, arrays, weight, modes, unit * N::size + h);
    }
}

template <class N>
void dots(const Scalar<N> *x, const Scalar<N> *y, int64_t units, Scalar<N> *result) {
    for (int h = 0; h < N::width; h += N::lanes) {
        N sum[side_by_side];
        for (int u = 0; u < side_by_side; ++u)
            sum[u] = N::zero();
        int64_t unit = 0;
        for (; unit + side_by_side <= units; unit += side_by_side)
#pragma GCC unroll 4
            for (int u = 0; u < side_by_side; ++u) {
                const int64_t at = (unit + u) * N::size + h;
                sum[u] = dot(N::load(x + at), N::load(y + at), sum[u]);
            }
        for (; unit < units; ++unit)
            sum[0] = dot(N::load(x + unit * N::size + h), N::load(y + unit * N::size + h), sum[0]);
        for (int u = 1; u < side_by_side; ++u)
            sum[0] = add(sum[0], sum[u]);
        sum[0].store(result + h);
    }
}

template <class N> void largest(const Scalar<N> *x, int64_t units, Scalar<N> *top, Scalar<N> *sum) {
    for (int h = 0; h < N::width; h += N::lanes) {
        auto t = N::vec::load(top + h), s = N::vec::load(sum + h);
        for (int64_t at = h; at < units * N::size; at += N::size) {
            const auto size = rank(N::load(x + at));
            t = max(t, size);
            s = add(s, size);
        }
        t.store(top + h);
        s.store(sum + h);
    }
}

template <class N>
void error(const Scalar<N> *e, const Scalar<N> *x, const Scalar<N> *y, int64_t units,
           Scalar<N> atol, Scalar<N> rtol, Scalar<N> *top, Scalar<N> *sum) {
    using V = typename N::vec;
    for (int h = 0; h < N::width; h += N::lanes) {
        auto t = V::load(top + h), s = V::load(sum + h);
        for (int64_t at = h; at < units * N::size; at += N::size) {
            const auto scale = max(modulus(N::load(x + at)), modulus(N::load(y + at)));
            const auto size =
                div(modulus(N::load(e + at)), fma(V::set1(rtol), scale, V::set1(atol)));
            t = max(t, size);
            s = add(s, size);
        }
        t.store(top + h);
        s.store(sum + h);
    }
}

template <class N>
constexpr Kernels<Scalar<N>> table_of(void (*rows)(const Program &, const Step<Scalar<N>> &,
                                                   int64_t, int64_t)) {
    return {N::width, rows, combine<N>, dots<N>, largest<N>, error<N>};
}

} // namespace
