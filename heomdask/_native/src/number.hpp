// Numbers that kernels are written over: a register of reals, or a pair of registers (real lanes,
// imaginary lanes), for some of the members of a block. A block is R registers wide: its members'
// numbers lie side by side in memory, in units of `size` scalars, and part h of R begins at h *
// lanes.
#pragma once
#include "vec.hpp"

namespace {

template <class V, int R> struct Re {
    using vec = V;
    using T = typename V::scalar;
    using mask = typename V::mask;
    static constexpr bool is_complex = false;
    static constexpr int parts = R, lanes = V::lanes, width = R * V::lanes, size = width;
    V re;
    static HD_INLINE Re load(const T *p) { return {V::load(p)}; }
    static HD_INLINE Re zero() { return {V::set1(0)}; }
    HD_INLINE void store(T *p) const { re.store(p); }
};

template <class V, int R> struct Cx {
    using vec = V;
    using T = typename V::scalar;
    using mask = typename V::mask;
    static constexpr bool is_complex = true;
    static constexpr int parts = R, lanes = V::lanes, width = R * V::lanes, size = 2 * width;
    V re, im;
    static HD_INLINE Cx load(const T *p) { return {V::load(p), V::load(p + width)}; }
    static HD_INLINE Cx zero() { return {V::set1(0), V::set1(0)}; }
    HD_INLINE void store(T *p) const {
        re.store(p);
        im.store(p + width);
    }
};

template <class N> using Scalar = typename N::T;

// a * b + c
template <class V, int R> HD_INLINE Re<V, R> fma(Re<V, R> a, Re<V, R> b, Re<V, R> c) {
    return {fma(a.re, b.re, c.re)};
}
template <class V, int R> HD_INLINE Cx<V, R> fma(Cx<V, R> a, Cx<V, R> b, Cx<V, R> c) {
    return {fnma(a.im, b.im, fma(a.re, b.re, c.re)), fma(a.im, b.re, fma(a.re, b.im, c.im))};
}
template <class V, int R> HD_INLINE Re<V, R> add(Re<V, R> a, Re<V, R> b) {
    return {add(a.re, b.re)};
}
template <class V, int R> HD_INLINE Cx<V, R> add(Cx<V, R> a, Cx<V, R> b) {
    return {add(a.re, b.re), add(a.im, b.im)};
}
// conj(a) * b + c
template <class V, int R> HD_INLINE Re<V, R> dot(Re<V, R> a, Re<V, R> b, Re<V, R> c) {
    return fma(a, b, c);
}
template <class V, int R> HD_INLINE Cx<V, R> dot(Cx<V, R> a, Cx<V, R> b, Cx<V, R> c) {
    return {fma(a.im, b.im, fma(a.re, b.re, c.re)), fnma(a.im, b.re, fma(a.re, b.im, c.im))};
}
// |a|, and its monotone stand-in for maxima: |a| itself if real, |a|^2 if complex
template <class V, int R> HD_INLINE V modulus(Re<V, R> a) { return abs(a.re); }
template <class V, int R> HD_INLINE V modulus(Cx<V, R> a) {
    return sqrt(fma(a.im, a.im, fma(a.re, a.re, V::set1(0))));
}
template <class V, int R> HD_INLINE V rank(Re<V, R> a) { return abs(a.re); }
template <class V, int R> HD_INLINE V rank(Cx<V, R> a) {
    return fma(a.im, a.im, fma(a.re, a.re, V::set1(0)));
}

template <class V, int R> HD_INLINE typename V::mask nonzero(Re<V, R> a) { return nonzero(a.re); }
template <class V, int R> HD_INLINE typename V::mask nonzero(Cx<V, R> a) {
    return either(nonzero(a.re), nonzero(a.im));
}
template <class V, int R> HD_INLINE Re<V, R> select(typename V::mask m, Re<V, R> a, Re<V, R> b) {
    return {select(m, a.re, b.re)};
}
template <class V, int R> HD_INLINE Cx<V, R> select(typename V::mask m, Cx<V, R> a, Cx<V, R> b) {
    return {select(m, a.re, b.re), select(m, a.im, b.im)};
}

} // namespace
