// A polynomial segment: p_k = a G p_{k-1} + b p_{k-1} + c p_{k-2}, acc = sum_k w p_k (unless null),
// in one parallel region; or the terms from `first` on, after a call that ended just before. With as many blocks as threads, a block runs through all terms while it is in
// the cache; otherwise the threads share the rows of every term. Part of engine.cpp.
#pragma once
#include "engine.hpp"

namespace heomdask {

template <class T> struct Engine<T>::Segment {
    const T *x;
    T *acc, *work[2];
    const double *coeffs; // (terms - first, 4, members, planes)
    int64_t first, terms; // of the whole polynomial
    const Elements &probe;
    T *probed;     // as those below, from `first` on
    double *norms; // (terms - first, members)

    const T *term(int64_t k) const { return k == 0 ? x : work[(k - 1) & 1]; }
};

// The last term with a weight other than zero, or first - 1 (0 if nothing went before): a block whose
// members have all finished costs nothing.
template <class T> int64_t Engine<T>::last_term(const Segment &s, int64_t block) const {
    const int64_t members = source_.program.n_members;
    const int64_t first = block * kernels_.lanes, count = single_ ? 1 : members_of(block);
    const int64_t start = std::max<int64_t>(s.first, 1);
    for (int64_t k = s.terms - 1; k >= start; --k)
        for (int64_t row = 0; row < 4; ++row) {
            const double *w = s.coeffs + (((k - s.first) * 4 + row) * members + first) * planes_;
            if (std::any_of(w, w + count * planes_, [](double v) { return v != 0; }))
                return k;
        }
    return start - 1;
}

// acc takes two terms at every odd k, p_{k-1} and p_k, so that it is streamed half as often.
template <class T>
Step<T> Engine<T>::step(const Segment &s, int64_t block, int64_t k, T *lanes, T *top,
                        T *scratch) const {
    const Program &p = source_.program;
    const int64_t at = block * block_stride(), per_row = int64_t{planes_} * table_lanes_;
    Step<T> r{};
    r.x = s.term(k - 1) + at, r.out = s.work[(k - 1) & 1] + at, r.acc = s.acc ? s.acc + at : r.out;
    r.old = k == 1 ? r.x : s.term(k - 2) + at;
    r.table = table_.data() + block * p.n_table * per_row;
    r.diagonal = p.has_diagonal ? diagonal_.data() + block * p.n_rows * per_row : nullptr;
    r.top = top, r.sum = top + kernels_.lanes, r.scratch = scratch, r.weights = lanes;
    const auto row = [&](int64_t term, int i) {
        return s.coeffs + ((term - s.first) * 4 + i) * p.n_members * planes_;
    };
    r.mode[A] = spread(row(k, 0), block, lanes + A * unit());
    r.mode[B] = spread(row(k, 1), block, lanes + B * unit());
    r.mode[C] = spread(row(k, 2), block, lanes + C * unit());
    r.mode[WX] = k == s.first ? none : spread(row(k - 1, 3), block, lanes + WX * unit());
    r.mode[W] = spread(row(k, 3), block, lanes + W * unit());
    if (k == 1)
        r.mode[C] = none;
    const bool last = k == s.terms - 1;
    r.accumulate = !s.acc   ? Acc::off
                   : k == 1                     ? Acc::init_both
                   : k & 1 && k != s.first      ? Acc::add_both
                   : k & 1 || last              ? Acc::add
                                                : Acc::off;
    return r;
}

template <class T>
void Engine<T>::finish_term(const Segment &s, int64_t block, int64_t k, const T *p,
                            const T *top) const {
    const int64_t members = source_.program.n_members, lanes = kernels_.lanes;
    const int64_t first = single_ ? 0 : block * lanes;
    for (int64_t lane = 0; lane < (single_ ? 1 : members_of(block)); ++lane) {
        double size = 0;
        for (int64_t i = lane; i < (single_ ? lanes : lane + 1); ++i) {
            const double found = largest_of(top, top + lanes, i);
            size = std::isnan(size) || found <= size ? size : found;
        }
        s.norms[(k - s.first) * members + first + lane] = planes_ == 2 ? std::sqrt(size) : size;
    }
    copy_elements(p, block, s.probe, s.probed + (k - s.first) * s.probe.n * members * planes_);
}

// Term 0 (unless it went before), and the zeros of the terms that are not run.
template <class T> void Engine<T>::start_block(const Segment &s, int64_t block, T *memory) const {
    const int64_t members = source_.program.n_members, at = block * block_stride();
    if (s.first == 0) {
        std::fill_n(memory, 2 * kernels_.lanes, T(0));
        kernels_.largest(s.x + at, owned_units(), memory, memory + kernels_.lanes);
        finish_term(s, block, 0, s.x, memory);
    }
    const int64_t first = single_ ? 0 : block * kernels_.lanes,
                  count = single_ ? 1 : members_of(block);
    for (int64_t k = last_term(s, block) + 1 - s.first; k < s.terms - s.first; ++k) {
        std::fill_n(s.norms + k * members + first, count, 0.0);
        for (int64_t i = 0; i < s.probe.n; ++i)
            std::fill_n(s.probed + ((k * s.probe.n + i) * members + first) * planes_,
                        count * planes_, T(0));
    }
    if (s.acc && s.first == 0 && last_term(s, block) == 0) {
        T *lanes = memory + 2 * kernels_.lanes;
        const T *array = s.x + at;
        const Mode mode = spread(s.coeffs + 3 * members * planes_, block, lanes);
        kernels_.combine(s.acc + at, 1, &array, lanes, &mode, source_.program.n_cols * ado_units_);
    }
}

template <class T> void Engine<T>::whole_block(const Segment &s, int64_t block, T *memory) const {
    T *lanes = memory + 2 * kernels_.lanes, *scratch = lanes + n_weights * unit();
    start_block(s, block, memory);
    Segment mine = s;
    mine.terms = last_term(s, block) + 1;
    for (int64_t k = std::max<int64_t>(s.first, 1); k < mine.terms; ++k) {
        std::fill_n(memory, 2 * kernels_.lanes, T(0));
        const Step<T> step_k = step(mine, block, k, lanes, memory, scratch);
        kernels_.rows(source_.program, step_k, 0, source_.program.n_rows);
        finish_term(s, block, k, s.term(k), memory);
    }
}

template <class T>
void Engine<T>::recur(const T *x, T *acc, T *work0, T *work1, const double *coeffs, int64_t start,
                      int64_t terms, const Elements &probe, T *probed, double *norms) const {
    const Segment s{x, acc, {work0, work1}, coeffs, start, terms, probe, probed, norms};
    const int64_t lanes = kernels_.lanes, n_rows = source_.program.n_rows;
    const int64_t memory = 2 * lanes + n_weights * unit() + scratch_size();
    if (threads_ == 1 || blocks_ >= threads_) {
        team([&] {
            Buffer<T> mine(memory);
#pragma omp for schedule(runtime)
            for (int64_t b = 0; b < blocks_; ++b)
                whole_block(s, b, mine.data());
        });
        return;
    }
    const Tasks t = tasks(n_rows);
    const int64_t chunks = t.chunks, length = t.length;
    Buffer<T> tops(t.n * 2 * lanes);
    team([&] {
        Buffer<T> mine(memory);
        T *weights = mine.data() + 2 * lanes;
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks_; ++b)
            start_block(s, b, mine.data());
        for (int64_t k = std::max<int64_t>(start, 1); k < terms; ++k) {
#pragma omp for schedule(static)
            for (int64_t task = 0; task < t.n; ++task) {
                const int64_t b = task / chunks, first = std::min(n_rows, task % chunks * length);
                T *top = tops.data() + task * 2 * lanes;
                std::fill_n(top, 2 * lanes, T(0));
                Segment part = s;
                part.terms = last_term(s, b) + 1;
                if (k < part.terms)
                    kernels_.rows(source_.program,
                                  step(part, b, k, weights, top, weights + n_weights * unit()),
                                  first, std::min(n_rows, first + length));
            }
#pragma omp for schedule(static)
            for (int64_t b = 0; b < blocks_; ++b) {
                T *top = tops.data() + b * chunks * 2 * lanes;
                for (int64_t c = 1; c < chunks; ++c)
                    for (int64_t lane = 0; lane < lanes; ++lane) {
                        const T *other = top + c * 2 * lanes;
                        top[lane] = std::max(top[lane], other[lane]);
                        top[lanes + lane] += other[lanes + lane];
                    }
                if (k <= last_term(s, b))
                    finish_term(s, b, k, s.term(k), top);
            }
        }
    });
}

} // namespace heomdask
