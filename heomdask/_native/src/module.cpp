// The Python module heomdask._native._core.
#include <nanobind/nanobind.h>

NB_MODULE(_core, m) { m.doc() = "Fused HEOM kernels."; }
