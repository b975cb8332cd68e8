// AVX-512 on a processor without it: SIMDe's definitions of the intrinsics that vec.hpp names.
// Included before everything else in kernels_avx512.cpp, which is not changed for it. An intrinsic
// that is missing below does not compile: its instruction is not enabled.
#pragma once
#if defined(__AVX512F__)
#error "this is for builds without AVX-512"
#endif

#include <immintrin.h>
#include <simde/x86/avx512/add.h>
#include <simde/x86/avx512/andnot.h>
#include <simde/x86/avx512/blend.h>
#include <simde/x86/avx512/cmp.h>
#include <simde/x86/avx512/div.h>
#include <simde/x86/avx512/fmadd.h>
#include <simde/x86/avx512/fnmadd.h>
#include <simde/x86/avx512/load.h>
#include <simde/x86/avx512/max.h>
#include <simde/x86/avx512/set1.h>
#include <simde/x86/avx512/setzero.h>
#include <simde/x86/avx512/sqrt.h>
#include <simde/x86/avx512/store.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// SIMDe takes any address; such a processor faults where 64 bytes do not lie on a cache line.
template <class T> inline __attribute__((always_inline)) T *whole_line(T *p) {
    if (reinterpret_cast<std::uintptr_t>(p) % 64 != 0) {
        std::fprintf(stderr, "AVX-512: 64 bytes at %p are not aligned\n", static_cast<const void *>(p));
        std::abort();
    }
    return p;
}

// SIMDe's own absolute value of -0.0 is -0.0.
#define __m512d simde__m512d
#define _mm512_load_pd(p) simde_mm512_load_pd(whole_line(p))
#define _mm512_store_pd(p, a) simde_mm512_store_pd(whole_line(p), a)
#define _mm512_set1_pd simde_mm512_set1_pd
#define _mm512_setzero_pd simde_mm512_setzero_pd
#define _mm512_fmadd_pd simde_mm512_fmadd_pd
#define _mm512_fnmadd_pd simde_mm512_fnmadd_pd
#define _mm512_add_pd simde_mm512_add_pd
#define _mm512_div_pd simde_mm512_div_pd
#define _mm512_max_pd simde_mm512_max_pd
#define _mm512_sqrt_pd simde_mm512_sqrt_pd
#define _mm512_abs_pd(a) simde_mm512_andnot_pd(simde_mm512_set1_pd(-0.0), a)
#define _mm512_cmp_pd_mask simde_mm512_cmp_pd_mask
#define _mm512_mask_blend_pd simde_mm512_mask_blend_pd

#define __m512 simde__m512
#define _mm512_load_ps(p) simde_mm512_load_ps(whole_line(p))
#define _mm512_store_ps(p, a) simde_mm512_store_ps(whole_line(p), a)
#define _mm512_set1_ps simde_mm512_set1_ps
#define _mm512_setzero_ps simde_mm512_setzero_ps
#define _mm512_fmadd_ps simde_mm512_fmadd_ps
#define _mm512_fnmadd_ps simde_mm512_fnmadd_ps
#define _mm512_add_ps simde_mm512_add_ps
#define _mm512_div_ps simde_mm512_div_ps
#define _mm512_max_ps simde_mm512_max_ps
#define _mm512_sqrt_ps simde_mm512_sqrt_ps
#define _mm512_abs_ps(a) simde_mm512_andnot_ps(simde_mm512_set1_ps(-0.0f), a)
#define _mm512_cmp_ps_mask simde_mm512_cmp_ps_mask
#define _mm512_mask_blend_ps simde_mm512_mask_blend_ps

#define __AVX512F__ 1
