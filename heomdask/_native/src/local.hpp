// The local solve (B_n - sigma) out = x, every ADO by itself, where one basis of eigenvectors
// serves all of them. ADOs are copied out of a state a few at a time, as double precision, so that
// one kernel serves every layout and precision, and a member's bits know no companions.
#pragma once
#include <cstdint>
#include <vector>

#include "engine.hpp"

namespace heomdask {

// One member's basis, as arrays in C order: real and imaginary parts of the modes side by side.
struct Basis {
    int64_t n, modes, rows;
    const double *into;   // (n, 2 modes); n: the numbers of an ADO
    const double *back;   // (2 modes, n)
    const double *values; // (modes, 2), complex
    const double *shifts; // (rows, 2), complex
};

class LocalSolve {
  public:
    LocalSolve(const KernelTable &isa, const std::vector<Basis> &members);
    LocalSolve(const LocalSolve &) = delete;
    LocalSolve &operator=(const LocalSolve &) = delete;

    // `out` may be `x`; ADOs of a halo become 0.
    template <class T> void operator()(const Engine<T> &engine, const T *x, T *out) const;

    // Whether its members are those of such a plan.
    bool fits(const Program &p) const;

  private:
    struct Member {
        LocalTables tables;
        Buffer<double> memory;
        std::vector<double> shifts;
    };

    const KernelTable &isa_;
    std::vector<Member> members_;
};

} // namespace heomdask
