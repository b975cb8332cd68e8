// What kernels read: a compiled plan as raw pointers, the arguments of one step, and the table of
// kernels of one instruction set. It knows no vectors, so every file may include it.
#pragma once
#include <cstdint>

namespace heomdask {

// A sparse map on the d*d elements of an ADO, by output element; values are rows of the table.
struct Entries {
    int n_out = 0;
    const int32_t *out = nullptr, *start = nullptr, *in = nullptr, *value = nullptr;
};

// X -> L X R, both dense, rows of the table; transposed if so flagged.
struct Sandwich {
    int32_t left, right, transposed;
};

// A superoperator on one ADO: the sum of its parts. An offset of -1 means that a part is absent.
struct Super {
    int32_t left = -1, right = -1;     // L X + X R
    int32_t left_t = -1, right_t = -1; // (L X + X R)^T
    int32_t full = -1;                 // a dense (d*d, d*d) matrix
    int32_t each = -1;                 // d*d factors, of each element for itself
    int n_sandwich = 0;
    const Sandwich *sandwich = nullptr;
    Entries entries;
};

// Elements in0, in0 + din, ... go to out0, out0 + dout, ... times consecutive rows of the table.
struct Run {
    int32_t in, din, out, dout, value, n;
};

struct Link {
    int32_t col, coef; // the ADO read, the row of the table with its coefficient
};

// The S of a two-level system with a diagonal coupling: populations to themselves, coherences to
// themselves, or to each other.
enum class Pair : uint8_t { other, diagonal, across, swapped };

// A link of a coupling to one site, which takes row and column `site` of the ADO read; `coef`: the
// first of its coefficients, whose number depends on the kind: to themselves (rr, cc), to each
// other (rc, cr: from row to column, and back), or both; then that of the common element.
struct Crossing {
    int32_t col, coef, site;
};
constexpr int crossing_kinds = 3;

// Terms that share their shifts: W = sum of coef * X[col], then y += S W.
struct Group {
    int n_run = 0;
    const Run *run = nullptr; // if S has one entry per element
    Pair pair = Pair::other;  // which of the runs with a kernel of its own, if d = 2
    int n_in = 0;
    const int32_t *in = nullptr; // else the elements of W that S reads
    Super super;
};

// The next n links of a row belong to a group.
struct Visit {
    int32_t group, n;
};

// What a two-level system does without its neighbours: nothing; what a real Hamiltonian and pure
// dephasing do; anything.
enum class Local : uint8_t { none, plain, full };

struct Program {
    int d = 0;
    bool is_complex = false, has_diagonal = false, has_local = false;
    int64_t n_rows = 0, n_cols = 0, n_members = 0, n_table = 0;
    Super local;
    // Kind k of row r: crossings cross_start[3 r + k] up to cross_start[3 r + k + 1]; or null.
    const int64_t *cross_start = nullptr;
    const Crossing *crossing = nullptr;
    int32_t cross_first = 0; // row of the table from which they count coefficients
    int n_group = 0;
    const Group *group = nullptr;
    // Row r: visits visit_start[r] up to visit_start[r + 1], links from link_start[r] on.
    const int64_t *visit_start = nullptr, *link_start = nullptr;
    const Visit *visit = nullptr;
    const Link *link = nullptr;
    // Two levels whose groups all have a kernel of their own: links of each row and group; or null.
    const int32_t *counts = nullptr;
    Local two = Local::full; // and the part of such a system by itself
    // One such system, real: the neighbours of row r, each once, from strand_start[r] on; `coef` is
    // where its factors begin: four that go to the other coherence, four that stay.
    const int64_t *strand_start = nullptr;
    const Link *strand = nullptr;
    const double *factors = nullptr;
    bool has_across = false; // whether any stays
};

constexpr int single_operators = 7; // of a superoperator, at most, see single.inl.hpp
constexpr int chunk_units = 64; // numbers that stay in the first cache between G x and the epilogue

enum Weight { A, B, C, WX, W, n_weights };
enum Mode : uint8_t { none, all, mixed }; // how many members have a weight other than zero
enum class Acc : uint8_t { off, add, add_both, init_both };

// One pass: out = a G x + b x + c old; acc (+)= wx x + w out; running largest elements of out.
template <class T> struct Step {
    const T *x, *old;
    T *out, *acc;
    const T *table, *diagonal;
    const T *weights; // [n_weights] numbers
    Mode mode[n_weights];
    Acc accumulate;
    T *top, *sum; // a register of lanes each: running max and sum of |out|; or null
    T *scratch;   // what Engine::scratch_size says
};

template <class T> struct Kernels {
    int lanes;
    void (*rows)(const Program &, const Step<T> &, int64_t begin, int64_t end);
    void (*combine)(T *out, int n, const T *const *arrays, const T *weights, const Mode *modes,
                    int64_t units);
    void (*dots)(const T *x, const T *y, int64_t units, T *result);
    void (*largest)(const T *x, int64_t units, T *top, T *sum);
    void (*error)(const T *e, const T *x, const T *y, int64_t units, T atol, T rtol, T *top,
                  T *sum);
};

template <class T> struct KernelPair {
    Kernels<T> real, complex;
};

struct MultiplyAdds { // a loop at the processor's peak, and what it does in a round
    double (*run)(int64_t rounds);
    int flops;
};

// A local solve: n numbers of an ADO to its modes and back, matrices in panels of columns, (columns
// / local_line, rows, local_line).
constexpr int local_tile = 12; // ADOs at a time
constexpr int local_line = 8;  // columns of a panel: a cache line
constexpr int local_quad = 4;  // modes are filled up to a multiple of it
struct LocalTables {
    int64_t n, columns, n_out; // columns: twice the modes; n_out: n; both filled up
    const double *into, *back;
    const double *values; // (2, columns / 2)
};

// Scratch of one thread.
struct LocalTile {
    double *x;      // (local_tile, n)
    double *shifts; // (local_tile, 2)
    double *modes;  // (local_tile, columns)
    double *out;    // (local_tile, n_out)
};

struct KernelTable {
    const char *isa;
    KernelPair<double> f64[2]; // blocks of one register, and wide ones
    KernelPair<float> f32[2];
    KernelPair<double> single; // one member, vectorised inside the ADO
    void (*local)(const LocalTables &, const LocalTile &);
    MultiplyAdds adds64, adds32;
    void (*triad)(double *a, const double *b, const double *c, int64_t n);
};

constexpr int wide_up_to = 2; // levels

extern const KernelTable kernels_generic, kernels_avx2, kernels_avx512;

} // namespace heomdask
