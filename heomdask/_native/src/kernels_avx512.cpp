// The kernels, compiled for avx512: see CMakeLists.txt for the flags.
#define HD_ISA avx512
#include "kernels_all.inl.hpp"
