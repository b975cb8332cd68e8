// The kernels, compiled for avx2: see CMakeLists.txt for the flags.
#define HD_ISA avx2
#include "kernels_all.inl.hpp"
