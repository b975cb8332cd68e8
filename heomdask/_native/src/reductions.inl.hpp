// Passes over whole states, unit by unit and therefore for every layout: linear combinations, dot
// products, largest elements. Sums run in the order of the units: no thread count changes a bit.
#pragma once
#include "number.hpp"
#include "program.hpp"

namespace {

using namespace heomdask;

constexpr int max_arrays = 32; // of one combination

template <class N>
void combine(typename N::T *out, int n, const typename N::T *const *arrays,
             const typename N::T *weights, const Mode *modes, int64_t units) {
    N weight[max_arrays];
    for (int i = 0; i < n; ++i)
        weight[i] = N::load(weights + i * N::size);
    for (int64_t u = 0; u < units; ++u) {
        N t = N::zero();
        for (int i = 0; i < n; ++i) {
            if (modes[i] == none)
                continue;
            const N next = fma(weight[i], N::load(arrays[i] + u * N::size), t);
            t = modes[i] == all ? next : select(nonzero(weight[i]), next, t);
        }
        t.store(out + u * N::size);
    }
}

template <class N>
void dots(const typename N::T *x, const typename N::T *y, int64_t units, typename N::T *result) {
    N sum = N::zero();
    for (int64_t u = 0; u < units; ++u)
        sum = dot(N::load(x + u * N::size), N::load(y + u * N::size), sum);
    sum.store(result);
}

template <class N>
void largest(const typename N::T *x, int64_t units, typename N::T *top, typename N::T *sum) {
    auto t = N::vec::load(top), s = N::vec::load(sum);
    for (int64_t u = 0; u < units; ++u) {
        const auto size = rank(N::load(x + u * N::size));
        t = max(t, size);
        s = add(s, size);
    }
    t.store(top);
    s.store(sum);
}

template <class N>
void error(const typename N::T *e, const typename N::T *x, const typename N::T *y, int64_t units,
           typename N::T atol, typename N::T rtol, typename N::T *top, typename N::T *sum) {
    using V = typename N::vec;
    auto t = V::load(top), s = V::load(sum);
    for (int64_t u = 0; u < units; ++u) {
        const int64_t at = u * N::size;
        const auto scale = max(modulus(N::load(x + at)), modulus(N::load(y + at)));
        const auto size = div(modulus(N::load(e + at)), fma(V::set1(rtol), scale, V::set1(atol)));
        t = max(t, size);
        s = add(s, size);
    }
    t.store(top);
    s.store(sum);
}

template <class N>
constexpr Kernels<typename N::T>
table_of(void (*rows)(const Program &, const Step<typename N::T> &, int64_t, int64_t)) {
    return {N::vec::lanes, rows, combine<N>, dots<N>, largest<N>, error<N>};
}

} // namespace
