// A compiled plan and everything that is done with it: states in blocks of members, OpenMP over
// blocks, a polynomial segment resident block by block. Fixed after construction; every method is
// const and may run on several threads at once.
#pragma once
#include <omp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "program.hpp"
#include "team.hpp"

namespace heomdask {

// 64-byte aligned memory for vector code.
template <class T> class Buffer {
  public:
    explicit Buffer(int64_t n = 0);
    T *data() const { return data_.get(); }
    int64_t size() const { return size_; }

  private:
    struct Free {
        void operator()(T *p) const;
    };
    std::unique_ptr<T[], Free> data_;
    int64_t size_ = 0;
};

// Rows of the coefficient table that are multiplied by a named scalar, (n, members, planes).
struct Named {
    int name;
    const int32_t *row; // null: every row, in order
    int64_t n;
    const double *values;
};

// The links of one group by row, coefficients counted from a row of the table.
struct GroupLinks {
    const int64_t *start; // (n_rows + 1)
    const Link *link;
    int32_t first;
};

// What a plan consists of, as the arrays that the caller keeps alive.
struct Source {
    Program program;
    std::vector<Group> groups;
    std::vector<GroupLinks> links;
    std::vector<std::vector<Sandwich>> sandwiches; // of the local part, then of each group
    const double *table = nullptr;                 // (n_table, members, planes)
    const double *diagonal = nullptr;              // (n_rows, members, planes) or null
    std::vector<Named> named, named_diagonal;
    int n_names = 0;
};

struct Elements { // chosen elements of a state
    int64_t n;
    const int64_t *ado, *row, *col;
};

template <class T> class Engine {
  public:
    // `places`: of each of the threads, or none.
    Engine(Source source, const KernelTable &isa, int threads, bool single, Places places);

    int64_t state_size() const { return blocks_ * block_stride(); }
    int64_t nbytes() const;
    int lanes() const { return kernels_.lanes; }
    int threads() const { return threads_; }
    const Program &program() const { return source_.program; }

    // Where the numbers of a member's first ADO lie, (d, d, planes), and how far to the next ADO.
    std::vector<int64_t> places(int64_t member) const;
    int64_t ado_stride() const { return ado_units_ * unit(); }

    // Zeros, written by the threads that work on them later: so they are in memory near them.
    void clear(T *state) const;
    // Host arrays are (n, d, d, members) resp. (elements, members), complex ones interleaved.
    void put(const T *host, T *state) const;
    void fetch(const T *state, T *host) const;
    void pack(const T *state, const Elements &chosen, T *host) const;
    void unpack(const T *host, const Elements &chosen, T *state) const;

    // Weights are (n, members, planes); scalars (names, members).
    void apply(const T *x, T *out, T *acc, const double *weights, const double *scalars,
               int64_t begin, int64_t end) const;
    void recur(const T *x, T *acc, T *work0, T *work1, const double *coeffs, int64_t start,
               int64_t terms, const Elements &probe, T *probed, double *norms) const;
    void combine(T *out, const std::vector<const T *> &arrays, const double *weights) const;
    void dots(const std::vector<const T *> &xs, const T *y, double *result) const;
    void error_norm(const T *e, const T *x, const T *y, double atol, double rtol,
                    double *result) const;

  private:
    struct Segment; // the arguments of one `recur`
    struct Tasks {  // parts of rows, block after block
        int64_t n, chunks, length;
    };

    // One parallel region. Tasks go to whichever thread is free, or always to the same one where
    // threads are kept to nodes: near what it works on.
    template <class F> void team(const F &body) const {
#pragma omp parallel num_threads(threads_)
        {
            const Placed here(places_, omp_get_thread_num());
            omp_set_schedule(fixed_ ? omp_sched_static : omp_sched_dynamic, 0);
            body();
        }
    }
    Tasks tasks(int64_t rows) const;

    int64_t unit() const { return int64_t{kernels_.lanes} * planes_; }
    int64_t block_stride() const { return source_.program.n_cols * ado_stride(); }
    int64_t owned_units() const { return source_.program.n_rows * ado_units_; }
    int members_of(int64_t block) const;
    int64_t offset(int64_t ado, int64_t row, int64_t col, int64_t member) const;
    Mode spread(const double *weights, int64_t block, T *lanes) const;
    int64_t scratch_size() const;
    void layout(const double *values, int64_t rows, T *result) const;
    void modulate(const std::vector<Named> &named, const double *scalars, int64_t rows,
                  Buffer<T> &table) const;
    double largest_of(const T *top, const T *sum, int64_t lane) const;
    void copy_elements(const T *state, int64_t block, const Elements &chosen, T *host) const;

    void join_links();
    void count_links();
    void join_strands();

    Step<T> step(const Segment &s, int64_t block, int64_t k, T *lanes, T *top, T *scratch) const;
    void whole_block(const Segment &s, int64_t block, T *memory) const;
    void start_block(const Segment &s, int64_t block, T *memory) const;
    void finish_term(const Segment &s, int64_t block, int64_t k, const T *p, const T *top) const;
    int64_t last_term(const Segment &s, int64_t block) const;

    Source source_;
    std::vector<int64_t> visit_start_, link_start_;
    std::vector<Visit> visits_;
    std::vector<Link> links_;
    std::vector<int32_t> counts_;
    std::vector<int64_t> strand_start_;
    std::vector<Link> strands_;
    Buffer<double> factors_;
    Kernels<T> kernels_;
    int threads_, planes_;
    bool single_, fixed_;
    Places places_;
    int64_t blocks_, ado_units_;
    int table_lanes_;
    Buffer<T> table_, diagonal_;
};

extern template class Engine<double>;
extern template class Engine<float>;

} // namespace heomdask
