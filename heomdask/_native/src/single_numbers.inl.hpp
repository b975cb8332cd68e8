// What the kernels for one system need beyond those for batches: numbers in all lanes, and lanes that
// change places.
#pragma once
#include "number.hpp"

namespace {

using namespace heomdask;

// One number of a table (or of a state, whose imaginary parts lie `im` further) in all lanes.
template <class V, int R> HD_INLINE void broadcast(const double *p, int64_t, Re<V, R> &to) {
    to.re = V::set1(p[0]);
}
template <class V, int R> HD_INLINE void broadcast(const double *p, int64_t im, Cx<V, R> &to) {
    to.re = V::set1(p[0]), to.im = V::set1(p[im]);
}
template <class N> HD_INLINE N spread(const double *p, int64_t im = 1) {
    N all;
    broadcast(p, im, all);
    return all;
}

template <int P, class V, int R> HD_INLINE Re<V, R> exchanged(Re<V, R> a) {
    return {exchanged<P>(a.re)};
}
template <int P, class V, int R> HD_INLINE Cx<V, R> exchanged(Cx<V, R> a) {
    return {exchanged<P>(a.re), exchanged<P>(a.im)};
}
template <class V, int R> HD_INLINE void transpose(Re<V, R> *a) {
    transpose(a[0].re, a[1].re, a[2].re, a[3].re);
}
template <class V, int R> HD_INLINE void transpose(Cx<V, R> *a) {
    transpose(a[0].re, a[1].re, a[2].re, a[3].re);
    transpose(a[0].im, a[1].im, a[2].im, a[3].im);
}

constexpr int quad = 4; // elements of a register

template <class N> constexpr int planes = N::is_complex ? 2 : 1;

} // namespace
