// The limits of the processor, to compare the kernels with: threads around the loops of
// ceilings.inl.hpp, to be timed by the caller.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "register.hpp"

namespace nb = nanobind;
using namespace heomdask;

namespace {

template <class S> using Line = nb::ndarray<S, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
constexpr int64_t cache_line = 8; // numbers

double multiply_adds(const std::string &isa, bool single_precision, int threads, int64_t rounds) {
    nb::gil_scoped_release release;
    const KernelTable &table = kernel_table(isa);
    const MultiplyAdds &loop = single_precision ? table.adds32 : table.adds64;
    double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    sum += loop.run(rounds);
    if (!(sum > 0)) // never, but so the loops cannot be left out
        throw std::logic_error("multiply-adds of positive numbers are positive");
    return static_cast<double>(loop.flops) * static_cast<double>(rounds) * threads;
}

// Each thread goes through its own part as often as it is told, and waits for no other.
void triads(const std::string &isa, int threads, Line<double> a, Line<const double> b,
            Line<const double> c, int64_t repeats) {
    const int64_t n = static_cast<int64_t>(a.size());
    if (b.size() != a.size() || c.size() != a.size() || n % cache_line != 0)
        throw std::invalid_argument("triads: three equal lengths, whole cache lines");
    double *to = a.data();
    const double *first = b.data(), *second = c.data();
    nb::gil_scoped_release release;
    const KernelTable &table = kernel_table(isa);
    const int64_t part = (n / cache_line + threads - 1) / threads * cache_line;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread) {
        const int64_t at = std::min(n, thread * part), own = std::min(n - at, part);
        for (int64_t k = 0; k < repeats; ++k)
            table.triad(to + at, first + at, second + at, own);
    }
}

} // namespace

void register_ceilings(nb::module_ &m) {
    m.def("multiply_adds", &multiply_adds, nb::arg("isa"), nb::arg("single_precision"),
          nb::arg("threads"), nb::arg("rounds"),
          "Do multiply-adds in registers on every thread; the floating-point operations done.");
    m.def("triads", &triads, nb::arg("isa"), nb::arg("threads"), nb::arg("a"), nb::arg("b"),
          nb::arg("c"), nb::arg("repeats"), "a = b + s c, many times, in 64-byte aligned memory.");
}
