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
    int n_sandwich = 0;
    const Sandwich *sandwich = nullptr;
    Entries entries;
};

struct Link {
    int32_t col, coef; // the ADO read, the row of the table with its coefficient
};

// Terms that share their shifts: W = sum of coef * X[col], then y += S W.
struct Group {
    const int64_t *start = nullptr; // (n_rows + 1)
    const Link *link = nullptr;
    int n_in = 0;
    const int32_t *in = nullptr; // the elements of W that S reads
    Super super;
};

struct Program {
    int d = 0;
    bool is_complex = false, has_diagonal = false, has_local = false;
    int64_t n_rows = 0, n_cols = 0, n_members = 0, n_table = 0;
    Super local;
    int n_group = 0;
    const Group *group = nullptr;
};

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
    T *top, *sum; // one register of lanes each: running max and sum of |out|
    T *scratch;   // 3 d*d numbers
};

template <class T> struct Kernels {
    int lanes;
    void (*rows)(const Program &, const Step<T> &, int64_t begin, int64_t end);
    void (*combine)(T *out, int n, const T *const *arrays, const T *weights, const Mode *modes,
                    int64_t units);
    void (*dots)(const T *x, const T *y, int64_t units, T *result);
    void (*largest)(const T *x, int64_t units, T *top, T *sum);
    void (*error)(const T *e, const T *x, const T *y, int64_t units, T atol, T rtol, T *top, T *sum);
};

struct KernelTable {
    const char *isa;
    Kernels<double> f64[2]; // real, complex
    Kernels<float> f32[2];
    Kernels<double> single[2]; // one member, vectorised inside the ADO
};

template <class T> const Kernels<T> *members_fastest(const KernelTable &table);
template <> inline const Kernels<double> *members_fastest<double>(const KernelTable &table) {
    return table.f64;
}
template <> inline const Kernels<float> *members_fastest<float>(const KernelTable &table) {
    return table.f32;
}

extern const KernelTable kernels_generic, kernels_avx2, kernels_avx512;

} // namespace heomdask
