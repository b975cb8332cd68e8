// The thin vector layer: one register of lanes, for whichever instruction set this file is
// compiled for. Everything is in an unnamed namespace and on raw pointers, so that no symbol
// with vector code is ever shared with a file compiled for another instruction set.
#pragma once
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#define HD_INLINE inline __attribute__((always_inline))
#define HD_LAMBDA __attribute__((always_inline))

// ---- 256 bits: AVX2 with FMA, or what the compiler makes of a generic vector -------------------
#if defined(__AVX2__)

struct F64x4 {
    using scalar = double;
    using mask = __m256d;
    static constexpr int lanes = 4;
    __m256d v;
    static HD_INLINE F64x4 load(const double *p) { return {_mm256_load_pd(p)}; }
    static HD_INLINE F64x4 set1(double s) { return {_mm256_set1_pd(s)}; }
    HD_INLINE void store(double *p) const { _mm256_store_pd(p, v); }
};
HD_INLINE F64x4 fma(F64x4 a, F64x4 b, F64x4 c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
HD_INLINE F64x4 fnma(F64x4 a, F64x4 b, F64x4 c) { return {_mm256_fnmadd_pd(a.v, b.v, c.v)}; }
HD_INLINE F64x4 add(F64x4 a, F64x4 b) { return {_mm256_add_pd(a.v, b.v)}; }
HD_INLINE F64x4 div(F64x4 a, F64x4 b) { return {_mm256_div_pd(a.v, b.v)}; }
HD_INLINE F64x4 max(F64x4 a, F64x4 b) { return {_mm256_max_pd(a.v, b.v)}; }
HD_INLINE F64x4 sqrt(F64x4 a) { return {_mm256_sqrt_pd(a.v)}; }
HD_INLINE F64x4 abs(F64x4 a) { return {_mm256_andnot_pd(_mm256_set1_pd(-0.0), a.v)}; }
HD_INLINE __m256d nonzero(F64x4 a) { return _mm256_cmp_pd(a.v, _mm256_setzero_pd(), _CMP_NEQ_UQ); }
HD_INLINE __m256d either(__m256d a, __m256d b) { return _mm256_or_pd(a, b); }
HD_INLINE F64x4 select(__m256d m, F64x4 a, F64x4 b) { return {_mm256_blendv_pd(b.v, a.v, m)}; }

HD_INLINE F64x4 of4(double a, double b, double c, double d) { return {_mm256_set_pd(d, c, b, a)}; }
// Element i from element i ^ P.
template <int P> HD_INLINE F64x4 exchanged(F64x4 a) {
    constexpr int order = (0 ^ P) | (1 ^ P) << 2 | (2 ^ P) << 4 | (3 ^ P) << 6;
    return {P ? _mm256_permute4x64_pd(a.v, order) : a.v};
}
HD_INLINE F64x4 middle_exchanged(F64x4 a) { return {_mm256_permute4x64_pd(a.v, 0b11011000)}; }
HD_INLINE void transpose(F64x4 &a, F64x4 &b, F64x4 &c, F64x4 &d) {
    const __m256d p = _mm256_unpacklo_pd(a.v, b.v), q = _mm256_unpackhi_pd(a.v, b.v);
    const __m256d r = _mm256_unpacklo_pd(c.v, d.v), s = _mm256_unpackhi_pd(c.v, d.v);
    a.v = _mm256_permute2f128_pd(p, r, 0x20), b.v = _mm256_permute2f128_pd(q, s, 0x20);
    c.v = _mm256_permute2f128_pd(p, r, 0x31), d.v = _mm256_permute2f128_pd(q, s, 0x31);
}

struct F32x8 {
    using scalar = float;
    using mask = __m256;
    static constexpr int lanes = 8;
    __m256 v;
    static HD_INLINE F32x8 load(const float *p) { return {_mm256_load_ps(p)}; }
    static HD_INLINE F32x8 set1(float s) { return {_mm256_set1_ps(s)}; }
    HD_INLINE void store(float *p) const { _mm256_store_ps(p, v); }
};
HD_INLINE F32x8 fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
HD_INLINE F32x8 fnma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
HD_INLINE F32x8 add(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
HD_INLINE F32x8 div(F32x8 a, F32x8 b) { return {_mm256_div_ps(a.v, b.v)}; }
HD_INLINE F32x8 max(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }
HD_INLINE F32x8 sqrt(F32x8 a) { return {_mm256_sqrt_ps(a.v)}; }
HD_INLINE F32x8 abs(F32x8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
HD_INLINE __m256 nonzero(F32x8 a) { return _mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_NEQ_UQ); }
HD_INLINE __m256 either(__m256 a, __m256 b) { return _mm256_or_ps(a, b); }
HD_INLINE F32x8 select(__m256 m, F32x8 a, F32x8 b) { return {_mm256_blendv_ps(b.v, a.v, m)}; }

#else

// No fused multiply-add here: it would be a library call. Products are rounded, then added.
template <class S, class I, int N> struct Generic {
    typedef S vector __attribute__((vector_size(N * sizeof(S))));
    typedef I mask __attribute__((vector_size(N * sizeof(S))));
    using scalar = S;
    static constexpr int lanes = N;
    vector v;
    static HD_INLINE Generic load(const S *p) { return {*reinterpret_cast<const vector *>(p)}; }
    static HD_INLINE Generic set1(S s) {
        vector zero = {};
        return {zero + s};
    }
    HD_INLINE void store(S *p) const { *reinterpret_cast<vector *>(p) = v; }
};
template <class S, class I, int N> using G = Generic<S, I, N>;
#define HD_GENERIC template <class S, class I, int N> HD_INLINE
HD_GENERIC G<S, I, N> fma(G<S, I, N> a, G<S, I, N> b, G<S, I, N> c) { return {a.v * b.v + c.v}; }
HD_GENERIC G<S, I, N> fnma(G<S, I, N> a, G<S, I, N> b, G<S, I, N> c) { return {c.v - a.v * b.v}; }
HD_GENERIC G<S, I, N> add(G<S, I, N> a, G<S, I, N> b) { return {a.v + b.v}; }
HD_GENERIC G<S, I, N> div(G<S, I, N> a, G<S, I, N> b) { return {a.v / b.v}; }
HD_GENERIC G<S, I, N> max(G<S, I, N> a, G<S, I, N> b) { return {a.v > b.v ? a.v : b.v}; }
HD_GENERIC G<S, I, N> abs(G<S, I, N> a) { return {a.v < 0 ? -a.v : a.v}; }
HD_GENERIC G<S, I, N> sqrt(G<S, I, N> a) {
    for (int k = 0; k < N; ++k)
        a.v[k] = sizeof(S) == 8 ? __builtin_sqrt(a.v[k]) : __builtin_sqrtf(a.v[k]);
    return a;
}
HD_GENERIC typename G<S, I, N>::mask nonzero(G<S, I, N> a) {
    return reinterpret_cast<typename G<S, I, N>::mask>(a.v != 0);
}
template <class M> HD_INLINE M either(M a, M b) { return a | b; }
HD_GENERIC G<S, I, N> select(typename G<S, I, N>::mask m, G<S, I, N> a, G<S, I, N> b) {
    return {m ? a.v : b.v};
}
#undef HD_GENERIC
using F64x4 = Generic<double, int64_t, 4>;
HD_INLINE F64x4 of4(double a, double b, double c, double d) { return {F64x4::vector{a, b, c, d}}; }
template <int P> HD_INLINE F64x4 exchanged(F64x4 a) {
    return of4(a.v[0 ^ P], a.v[1 ^ P], a.v[2 ^ P], a.v[3 ^ P]);
}
HD_INLINE F64x4 middle_exchanged(F64x4 a) { return of4(a.v[0], a.v[2], a.v[1], a.v[3]); }
HD_INLINE void transpose(F64x4 &a, F64x4 &b, F64x4 &c, F64x4 &d) {
    const F64x4 p = a, q = b, r = c, s = d;
    a = of4(p.v[0], q.v[0], r.v[0], s.v[0]), b = of4(p.v[1], q.v[1], r.v[1], s.v[1]);
    c = of4(p.v[2], q.v[2], r.v[2], s.v[2]), d = of4(p.v[3], q.v[3], r.v[3], s.v[3]);
}

#endif

// ---- 512 bits ----------------------------------------------------------------------------------
#if defined(__AVX512F__)

struct F64x8 {
    using scalar = double;
    using mask = __mmask8;
    static constexpr int lanes = 8;
    __m512d v;
    static HD_INLINE F64x8 load(const double *p) { return {_mm512_load_pd(p)}; }
    static HD_INLINE F64x8 set1(double s) { return {_mm512_set1_pd(s)}; }
    HD_INLINE void store(double *p) const { _mm512_store_pd(p, v); }
};
HD_INLINE F64x8 fma(F64x8 a, F64x8 b, F64x8 c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
HD_INLINE F64x8 fnma(F64x8 a, F64x8 b, F64x8 c) { return {_mm512_fnmadd_pd(a.v, b.v, c.v)}; }
HD_INLINE F64x8 add(F64x8 a, F64x8 b) { return {_mm512_add_pd(a.v, b.v)}; }
HD_INLINE F64x8 div(F64x8 a, F64x8 b) { return {_mm512_div_pd(a.v, b.v)}; }
HD_INLINE F64x8 max(F64x8 a, F64x8 b) { return {_mm512_max_pd(a.v, b.v)}; }
HD_INLINE F64x8 sqrt(F64x8 a) { return {_mm512_sqrt_pd(a.v)}; }
HD_INLINE F64x8 abs(F64x8 a) { return {_mm512_abs_pd(a.v)}; }
HD_INLINE __mmask8 nonzero(F64x8 a) {
    return _mm512_cmp_pd_mask(a.v, _mm512_setzero_pd(), _CMP_NEQ_UQ);
}
HD_INLINE __mmask8 either(__mmask8 a, __mmask8 b) { return static_cast<__mmask8>(a | b); }
HD_INLINE F64x8 select(__mmask8 m, F64x8 a, F64x8 b) { return {_mm512_mask_blend_pd(m, b.v, a.v)}; }

struct F32x16 {
    using scalar = float;
    using mask = __mmask16;
    static constexpr int lanes = 16;
    __m512 v;
    static HD_INLINE F32x16 load(const float *p) { return {_mm512_load_ps(p)}; }
    static HD_INLINE F32x16 set1(float s) { return {_mm512_set1_ps(s)}; }
    HD_INLINE void store(float *p) const { _mm512_store_ps(p, v); }
};
HD_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
HD_INLINE F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
HD_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
HD_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
HD_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
HD_INLINE F32x16 sqrt(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
HD_INLINE F32x16 abs(F32x16 a) { return {_mm512_abs_ps(a.v)}; }
HD_INLINE __mmask16 nonzero(F32x16 a) {
    return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
}
HD_INLINE __mmask16 either(__mmask16 a, __mmask16 b) { return static_cast<__mmask16>(a | b); }
HD_INLINE F32x16 select(__mmask16 m, F32x16 a, F32x16 b) {
    return {_mm512_mask_blend_ps(m, b.v, a.v)};
}

using F64 = F64x8;
using F32 = F32x16;
#elif defined(__AVX2__)
using F64 = F64x4;
using F32 = F32x8;
#else
using F64 = Generic<double, int64_t, 2>;
using F32 = Generic<float, int32_t, 4>;
#endif

} // namespace
