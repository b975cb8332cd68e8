// Numbers that kernels are written over: a register of reals, or a pair of registers (real
// lanes, imaginary lanes). A number lies in memory as one unit of `size` scalars.
#pragma once
#include "vec.hpp"

namespace {

template <class V> struct Re {
    using vec = V;
    using T = typename V::scalar;
    using mask = typename V::mask;
    static constexpr bool is_complex = false;
    static constexpr int size = V::lanes;
    V re;
    static HD_INLINE Re load(const T *p) { return {V::load(p)}; }
    static HD_INLINE Re zero() { return {V::set1(0)}; }
    HD_INLINE void store(T *p) const { re.store(p); }
};

template <class V> struct Cx {
    using vec = V;
    using T = typename V::scalar;
    using mask = typename V::mask;
    static constexpr bool is_complex = true;
    static constexpr int size = 2 * V::lanes;
    V re, im;
    static HD_INLINE Cx load(const T *p) { return {V::load(p), V::load(p + V::lanes)}; }
    static HD_INLINE Cx zero() { return {V::set1(0), V::set1(0)}; }
    HD_INLINE void store(T *p) const {
        re.store(p);
        im.store(p + V::lanes);
    }
};

// a * b + c
template <class V> HD_INLINE Re<V> fma(Re<V> a, Re<V> b, Re<V> c) { return {fma(a.re, b.re, c.re)}; }
template <class V> HD_INLINE Cx<V> fma(Cx<V> a, Cx<V> b, Cx<V> c) {
    return {fnma(a.im, b.im, fma(a.re, b.re, c.re)), fma(a.im, b.re, fma(a.re, b.im, c.im))};
}
// conj(a) * b + c
template <class V> HD_INLINE Re<V> dot(Re<V> a, Re<V> b, Re<V> c) { return fma(a, b, c); }
template <class V> HD_INLINE Cx<V> dot(Cx<V> a, Cx<V> b, Cx<V> c) {
    return {fma(a.im, b.im, fma(a.re, b.re, c.re)), fnma(a.im, b.re, fma(a.re, b.im, c.im))};
}
// |a|, and its monotone stand-in for maxima: |a| itself if real, |a|^2 if complex
template <class V> HD_INLINE V modulus(Re<V> a) { return abs(a.re); }
template <class V> HD_INLINE V modulus(Cx<V> a) {
    return sqrt(fma(a.im, a.im, fma(a.re, a.re, V::set1(0))));
}
template <class V> HD_INLINE V rank(Re<V> a) { return abs(a.re); }
template <class V> HD_INLINE V rank(Cx<V> a) { return fma(a.im, a.im, fma(a.re, a.re, V::set1(0))); }

template <class V> HD_INLINE typename V::mask nonzero(Re<V> a) { return nonzero(a.re); }
template <class V> HD_INLINE typename V::mask nonzero(Cx<V> a) {
    return either(nonzero(a.re), nonzero(a.im));
}
template <class V> HD_INLINE Re<V> select(typename V::mask m, Re<V> a, Re<V> b) {
    return {select(m, a.re, b.re)};
}
template <class V> HD_INLINE Cx<V> select(typename V::mask m, Cx<V> a, Cx<V> b) {
    return {select(m, a.re, b.re), select(m, a.im, b.im)};
}

} // namespace
