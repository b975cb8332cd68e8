// The choice of an instruction set at run time.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "program.hpp"

namespace heomdask {

// Every instruction set of this build, the widest first, and whether this processor runs it.
std::vector<std::pair<std::string, bool>> instruction_sets();

// The kernels of the one named, or of the widest that runs here if the name is empty.
const KernelTable &kernel_table(const std::string &isa);

} // namespace heomdask
