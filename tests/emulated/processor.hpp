// A processor that has AVX-512 beside what it has: included before everything else in dispatch.cpp
// where the kernels for AVX-512 are emulated.
#pragma once
#include <cstring>

#define __builtin_cpu_supports(feature)                                                            \
    (std::strncmp(feature, "avx512", 6) == 0 || __builtin_cpu_supports(feature))
