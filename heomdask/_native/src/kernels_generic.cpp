// The kernels, compiled for generic: see CMakeLists.txt for the flags.
#define HD_ISA generic
#include "kernels_all.inl.hpp"
