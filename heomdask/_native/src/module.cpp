// The Python module heomdask._native._core.
#include "dispatch.hpp"
#include "register.hpp"
#include "team.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

NB_MODULE(_core, m) {
    m.doc() = "Fused kernels for plans: batches of members, and single systems.";
    m.def("instruction_sets", &heomdask::instruction_sets,
          "Every instruction set of this build, the widest first, and whether it runs here.");
    m.def("current_cpu", &heomdask::current_cpu,
          "The CPU that the calling thread runs on, or -1 where that is not told.");
    register_engine(m);
    register_local(m);
    register_ceilings(m);
}
