// What this processor does at most: multiply-adds that wait for nothing, and the triad of STREAM,
// a = b + s c. Written on the same vectors as the kernels, so that these are their own limits.
#pragma once
#include "program.hpp"
#include "vec.hpp"

namespace {

using namespace heomdask;

constexpr int chains = 12; // independent: two units, each with a latency of four to six cycles

// Returns a sum that depends on every operation.
template <class V> double multiply_adds(int64_t rounds) {
    using T = typename V::scalar;
    const V factor = V::set1(T(0.5)), term = V::set1(T(1));
    V sum[chains];
    for (int k = 0; k < chains; ++k)
        sum[k] = V::set1(T(k));
    for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int k = 0; k < chains; ++k)
            sum[k] = fma(sum[k], factor, term);
    }
    for (int k = 1; k < chains; ++k)
        sum[0] = add(sum[0], sum[k]);
    alignas(64) T lanes[V::lanes];
    sum[0].store(lanes);
    return static_cast<double>(lanes[0]);
}

// n is a multiple of a cache line.
void triad(double *a, const double *b, const double *c, int64_t n) {
    const F64 s = F64::set1(0.5);
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i += F64::lanes)
        fma(s, F64::load(c + i), F64::load(b + i)).store(a + i);
}

} // namespace
