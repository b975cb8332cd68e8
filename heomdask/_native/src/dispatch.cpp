// Which instruction sets this build has and this processor runs.
#include "dispatch.hpp"

#include <stdexcept>

namespace heomdask {

static bool runs(const std::string &isa) {
#if defined(HEOMDASK_X86)
    if (isa == "avx512")
        return runs("avx2") && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw");
    if (isa == "avx2")
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return isa == "generic";
}

static std::vector<const KernelTable *> built() {
#if defined(HEOMDASK_X86)
    return {&kernels_avx512, &kernels_avx2, &kernels_generic};
#else
    return {&kernels_generic};
#endif
}

std::vector<std::pair<std::string, bool>> instruction_sets() {
    std::vector<std::pair<std::string, bool>> all;
    for (const KernelTable *table : built())
        all.emplace_back(table->isa, runs(table->isa));
    return all;
}

const KernelTable &kernel_table(const std::string &isa) {
    for (const KernelTable *table : built())
        if ((isa.empty() || isa == table->isa) && runs(table->isa))
            return *table;
    throw std::invalid_argument("the instruction set '" + isa + "' is not available here");
}

} // namespace heomdask
