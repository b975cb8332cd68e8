// Layouts, transfers, reductions and single applications; segments are in recur.inl.hpp.
#include "engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <stdexcept>

namespace heomdask {

namespace {
constexpr int64_t reduced_units = 4096; // of a reduction: fixed, whatever the number of threads
}

template <class T> Buffer<T>::Buffer(int64_t n) : size_(n) {
    if (n > 0)
        data_.reset(static_cast<T *>(::operator new[](sizeof(T) * n, std::align_val_t{64})));
}
template <class T> void Buffer<T>::Free::operator()(T *p) const {
    ::operator delete[](p, std::align_val_t{64});
}
template class Buffer<double>;
template class Buffer<float>;

template <class T>
static const KernelPair<T> &family(const KernelTable &isa, const Program &p, bool single) {
    const bool wide = p.d <= wide_up_to;
    if constexpr (sizeof(T) == sizeof(float))
        return isa.f32[wide];
    else
        return single ? isa.single : isa.f64[wide];
}

template <class T>
Engine<T>::Engine(Source source, const KernelTable &isa, int threads, bool single, Places places)
    : source_(std::move(source)), threads_(threads), single_(single) {
    const bool bound = omp_get_proc_bind() != omp_proc_bind_false; // by the user's environment
    if (!bound)
        places_ = std::move(places);
    fixed_ = bound || !places_.empty();
    Program &p = source_.program;
    p.local.n_sandwich = static_cast<int>(source_.sandwiches[0].size());
    p.local.sandwich = source_.sandwiches[0].data();
    for (size_t g = 0; g < source_.groups.size(); ++g) {
        source_.groups[g].super.n_sandwich = static_cast<int>(source_.sandwiches[g + 1].size());
        source_.groups[g].super.sandwich = source_.sandwiches[g + 1].data();
    }
    p.n_group = static_cast<int>(source_.groups.size());
    p.group = source_.groups.data();
    p.has_diagonal = source_.diagonal != nullptr;
    planes_ = p.is_complex ? 2 : 1;
    join_links();
    count_links();
    join_strands();
    const KernelPair<T> &kernels = family<T>(isa, p, single);
    kernels_ = p.is_complex ? kernels.complex : kernels.real;
    blocks_ = single ? 1 : (p.n_members + kernels_.lanes - 1) / kernels_.lanes;
    ado_units_ =
        !single ? int64_t{p.d} * p.d
                : (p.d <= 2 ? 1 : int64_t{p.d} * ((p.d + kernels_.lanes - 1) / kernels_.lanes));
    table_lanes_ = single ? 1 : kernels_.lanes;
    table_ = Buffer<T>(blocks_ * p.n_table * planes_ * table_lanes_);
    layout(source_.table, p.n_table, table_.data());
    if (p.has_diagonal) {
        diagonal_ = Buffer<T>(blocks_ * p.n_rows * planes_ * table_lanes_);
        layout(source_.diagonal, p.n_rows, diagonal_.data());
    }
}

template <class T> int64_t Engine<T>::nbytes() const {
    const Program &p = source_.program;
    int64_t total = (table_.size() + diagonal_.size()) * static_cast<int64_t>(sizeof(T));
    total += static_cast<int64_t>(counts_.size() * sizeof(int32_t));
    total += static_cast<int64_t>(strands_.size() * sizeof(Link) +
                                  strand_start_.size() * sizeof(int64_t));
    total += static_cast<int64_t>((visit_start_.size() + link_start_.size()) * sizeof(int64_t));
    if (p.cross_start) {
        const int64_t starts = crossing_kinds * p.n_rows;
        total += static_cast<int64_t>((starts + 1) * sizeof(int64_t) +
                                      p.cross_start[starts] * sizeof(Crossing));
    }
    return total +
           static_cast<int64_t>(visits_.size() * sizeof(Visit) + links_.size() * sizeof(Link));
}

// The links of all groups row after row, as the kernels walk through them.
template <class T> void Engine<T>::join_links() {
    Program &p = source_.program;
    size_t total = 0;
    for (const GroupLinks &g : source_.links)
        total += g.start[p.n_rows];
    links_.reserve(total);
    for (int64_t r = 0; r < p.n_rows; ++r) {
        visit_start_.push_back(static_cast<int64_t>(visits_.size()));
        link_start_.push_back(static_cast<int64_t>(links_.size()));
        for (size_t g = 0; g < source_.links.size(); ++g) {
            const GroupLinks &own = source_.links[g];
            const int64_t n = own.start[r + 1] - own.start[r];
            if (n > 0)
                visits_.push_back({static_cast<int32_t>(g), static_cast<int32_t>(n)});
            for (const Link *l = own.link + own.start[r]; l != own.link + own.start[r + 1]; ++l)
                links_.push_back({l->col, l->coef + own.first});
        }
    }
    visit_start_.push_back(static_cast<int64_t>(visits_.size()));
    p.visit_start = visit_start_.data(), p.link_start = link_start_.data();
    p.visit = visits_.data(), p.link = links_.data();
}

// For the kernels of a two-level system, if all couplings are diagonal.
template <class T> void Engine<T>::count_links() {
    Program &p = source_.program;
    const auto own = [](const Group &g) { return g.pair != Pair::other; };
    if (p.d != 2 || !std::all_of(source_.groups.begin(), source_.groups.end(), own))
        return;
    for (int64_t r = 0; r < p.n_rows; ++r)
        for (const GroupLinks &g : source_.links)
            counts_.push_back(static_cast<int32_t>(g.start[r + 1] - g.start[r]));
    p.counts = counts_.data();
    p.two = p.has_local ? Local::plain : Local::none;
    const int64_t each = p.n_members * planes_;
    for (int e : {0, 1, 3, 4, 7, 12, 13, 15})
        for (int64_t i = 0; i < each && p.has_local; ++i)
            if (source_.table[(p.local.full + e) * each + i] != 0 || !source_.named.empty())
                p.two = Local::full;
}

// What one real two-level system takes from each neighbour, all groups together, as factors of its
// four elements.
template <class T> void Engine<T>::join_strands() {
    Program &p = source_.program;
    if (!single_ || !p.counts || p.is_complex || !source_.named.empty())
        return;
    using Factors = std::array<double, 8>;
    std::map<Factors, int32_t> known;
    std::vector<std::pair<int32_t, Factors>> row;
    for (int64_t r = 0; r < p.n_rows; ++r) {
        row.clear();
        const Link *link = p.link + p.link_start[r];
        for (int g = 0; g < p.n_group; ++g) {
            const Group &group = p.group[g];
            const double *value = source_.table + group.run->value;
            for (int n = counts_[r * p.n_group + g]; n > 0; --n, ++link) {
                const double c = source_.table[link->coef];
                auto own = std::find_if(row.begin(), row.end(),
                                        [&](const auto &s) { return s.first == link->col; });
                if (own == row.end())
                    own = row.insert(own, {link->col, Factors{}});
                Factors &f = own->second;
                if (group.pair == Pair::diagonal)
                    f[0] += c * value[0], f[3] += c * value[1];
                else if (group.pair == Pair::swapped)
                    f[2] += c * value[0], f[1] += c * value[1];
                else
                    f[5] += c * value[0], f[6] += c * value[1], p.has_across = true;
            }
        }
        strand_start_.push_back(static_cast<int64_t>(strands_.size()));
        for (const auto &[col, f] : row)
            strands_.push_back(
                {col, 8 * known.emplace(f, static_cast<int32_t>(known.size())).first->second});
    }
    strand_start_.push_back(static_cast<int64_t>(strands_.size()));
    factors_ = Buffer<double>(8 * static_cast<int64_t>(known.size()));
    for (const auto &[f, number] : known)
        std::copy(f.begin(), f.end(), factors_.data() + 8 * number);
    p.strand_start = strand_start_.data(), p.strand = strands_.data();
    p.factors = factors_.data();
}

template <class T> int Engine<T>::members_of(int64_t block) const {
    const int64_t left = source_.program.n_members - block * kernels_.lanes;
    return static_cast<int>(std::min<int64_t>(left, kernels_.lanes));
}

template <class T> int64_t Engine<T>::scratch_size() const {
    const Program &p = source_.program;
    int64_t operators = 0; // copies of which the kernels for one system make
    for (size_t g = 0; single_ && g < source_.sandwiches.size(); ++g)
        operators += single_operators + 2 * static_cast<int64_t>(source_.sandwiches[g].size());
    const int64_t ado = std::max<int64_t>(ado_units_, int64_t{p.d} * p.d);
    return (std::max<int64_t>(ado, chunk_units) + (3 + operators) * ado) * unit();
}

// ---- where things lie
// ----------------------------------------------------------------------------

template <class T>
int64_t Engine<T>::offset(int64_t ado, int64_t row, int64_t col, int64_t member) const {
    const int64_t d = source_.program.d, lanes = kernels_.lanes;
    if (!single_)
        return member / lanes * block_stride() + ((ado * d + row) * d + col) * unit() +
               member % lanes;
    if (d <= 2)
        return ado * unit() + row * d + col;
    return (ado * ado_units_ + row * (ado_units_ / d) + col / lanes) * unit() + col % lanes;
}

template <class T> std::vector<int64_t> Engine<T>::places(int64_t member) const {
    const int64_t d = source_.program.d;
    std::vector<int64_t> all;
    for (int64_t e = 0; e < d * d; ++e)
        for (int64_t c = 0; c < planes_; ++c)
            all.push_back(offset(0, e / d, e % d, member) + c * kernels_.lanes);
    return all;
}

// (rows, members, planes) to (blocks, rows, planes, lanes); lanes beyond the last member are 0.
template <class T> void Engine<T>::layout(const double *values, int64_t rows, T *result) const {
    const int64_t members = source_.program.n_members, lanes = table_lanes_;
    std::fill_n(result, blocks_ * rows * planes_ * lanes, T(0));
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t m = 0; m < members; ++m)
            for (int64_t c = 0; c < planes_; ++c)
                result[((m / lanes * rows + r) * planes_ + c) * lanes + m % lanes] =
                    static_cast<T>(values[(r * members + m) * planes_ + c]);
}

// table += named scalar * values
template <class T>
void Engine<T>::modulate(const std::vector<Named> &named, const double *scalars, int64_t rows,
                         Buffer<T> &table) const {
    const int64_t members = source_.program.n_members, lanes = table_lanes_;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t b = 0; b < blocks_; ++b)
        for (const Named &part : named)
            for (int64_t i = 0; i < part.n; ++i)
                for (int64_t m = b * lanes; m < std::min(members, (b + 1) * lanes); ++m)
                    for (int64_t c = 0; c < planes_; ++c) {
                        const int64_t r = part.row ? part.row[i] : i;
                        const double change = scalars[part.name * members + m] *
                                              part.values[(i * members + m) * planes_ + c];
                        table.data()[((b * rows + r) * planes_ + c) * lanes + m % lanes] +=
                            static_cast<T>(change);
                    }
}

// One weight per member, (members, planes), to the lanes of a block.
template <class T> Mode Engine<T>::spread(const double *weights, int64_t block, T *lanes) const {
    const int n = kernels_.lanes, members = single_ ? 1 : members_of(block);
    int nonzero = 0;
    for (int lane = 0; lane < n; ++lane) {
        const double *w = weights + (single_ ? 0 : block * n + lane) * planes_;
        bool on = false;
        for (int c = 0; c < planes_; ++c) {
            lanes[c * n + lane] = single_ || lane < members ? static_cast<T>(w[c]) : T(0);
            on = on || lanes[c * n + lane] != T(0);
        }
        nonzero += on;
    }
    const int every = single_ ? n : members;
    return nonzero == 0 ? none : nonzero == every ? all : mixed;
}

// As many blocks as threads: a block is a task. Fewer: so is a part of its rows.
template <class T> typename Engine<T>::Tasks Engine<T>::tasks(int64_t rows) const {
    const int64_t wanted = blocks_ >= threads_ ? 1 : 4 * threads_;
    const int64_t chunks = std::min(std::max<int64_t>(1, rows), wanted);
    return {blocks_ * chunks, chunks, (rows + chunks - 1) / chunks};
}

// ---- transfers
// -----------------------------------------------------------------------------------

template <class T> void Engine<T>::clear(T *state) const {
    const int64_t rows = source_.program.n_cols, row = ado_units_ * unit();
    const Tasks t = tasks(rows);
    team([&] {
#pragma omp for schedule(static)
        for (int64_t task = 0; task < t.n; ++task) {
            const int64_t first = std::min(rows, task % t.chunks * t.length);
            std::fill_n(state + task / t.chunks * block_stride() + first * row,
                        std::min(t.length, rows - first) * row, T(0));
        }
    });
}

template <class T> void Engine<T>::put(const T *host, T *state) const {
    const int64_t d = source_.program.d, members = source_.program.n_members,
                  n = source_.program.n_cols;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t ado = 0; ado < n; ++ado)
        for (int64_t e = 0; e < d * d; ++e)
            for (int64_t m = 0; m < members; ++m)
                for (int64_t c = 0; c < planes_; ++c)
                    state[offset(ado, e / d, e % d, m) + c * kernels_.lanes] =
                        host[((ado * d * d + e) * members + m) * planes_ + c];
}

template <class T> void Engine<T>::fetch(const T *state, T *host) const {
    const int64_t d = source_.program.d, members = source_.program.n_members,
                  n = source_.program.n_cols;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t ado = 0; ado < n; ++ado)
        for (int64_t e = 0; e < d * d; ++e)
            for (int64_t m = 0; m < members; ++m)
                for (int64_t c = 0; c < planes_; ++c)
                    host[((ado * d * d + e) * members + m) * planes_ + c] =
                        state[offset(ado, e / d, e % d, m) + c * kernels_.lanes];
}

// The chosen elements of one block's members; `host` is (elements, members).
template <class T>
void Engine<T>::copy_elements(const T *state, int64_t block, const Elements &chosen,
                              T *host) const {
    const int64_t members = source_.program.n_members, first = block * kernels_.lanes;
    const int64_t count = single_ ? 1 : members_of(block);
    for (int64_t i = 0; i < chosen.n; ++i)
        for (int64_t m = first; m < first + count; ++m)
            for (int64_t c = 0; c < planes_; ++c)
                host[(i * members + m) * planes_ + c] =
                    state[offset(chosen.ado[i], chosen.row[i], chosen.col[i], m) +
                          c * kernels_.lanes];
}

template <class T> void Engine<T>::pack(const T *state, const Elements &chosen, T *host) const {
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int64_t b = 0; b < blocks_; ++b)
        copy_elements(state, b, chosen, host);
}

template <class T> void Engine<T>::unpack(const T *host, const Elements &chosen, T *state) const {
    const int64_t members = source_.program.n_members;
    for (int64_t i = 0; i < chosen.n; ++i)
        for (int64_t m = 0; m < members; ++m)
            for (int64_t c = 0; c < planes_; ++c)
                state[offset(chosen.ado[i], chosen.row[i], chosen.col[i], m) + c * kernels_.lanes] =
                    host[(i * members + m) * planes_ + c];
}

// ---- one application
// -----------------------------------------------------------------------------

template <class T>
void Engine<T>::apply(const T *x, T *out, T *acc, const double *weights, const double *scalars,
                      int64_t begin, int64_t end) const {
    const Program &p = source_.program;
    Buffer<T> table, diagonal;
    const auto modulated = [&](const std::vector<Named> &named, const Buffer<T> &base, int64_t rows,
                               Buffer<T> &own) -> const T * {
        if (named.empty())
            return base.data();
        own = Buffer<T>(base.size());
        std::memcpy(own.data(), base.data(), base.size() * sizeof(T));
        modulate(named, scalars, rows, own);
        return own.data();
    };
    const T *tables = modulated(source_.named, table_, p.n_table, table);
    const T *diagonals = modulated(source_.named_diagonal, diagonal_, p.n_rows, diagonal);
    const Tasks t = tasks(end - begin);
    const int64_t per_row = int64_t{planes_} * table_lanes_;
    team([&] {
        Buffer<T> scratch(scratch_size()), lanes(n_weights * unit());
#pragma omp for schedule(runtime)
        for (int64_t task = 0; task < t.n; ++task) {
            const int64_t b = task / t.chunks, first = begin + task % t.chunks * t.length;
            Step<T> s{};
            const int64_t at = b * block_stride();
            s.x = x + at, s.out = out + at, s.old = s.out;
            s.acc = acc ? acc + at : s.out;
            s.accumulate = acc ? Acc::add : Acc::off;
            s.table = tables + b * p.n_table * per_row;
            s.diagonal = diagonals ? diagonals + b * p.n_rows * per_row : nullptr;
            for (int w = 0; w < n_weights; ++w)
                s.mode[w] =
                    spread(weights + w * p.n_members * planes_, b, lanes.data() + w * unit());
            s.weights = lanes.data();
            s.scratch = scratch.data();
            kernels_.rows(p, s, first, std::min(end, first + t.length));
        }
    });
}

// ---- reductions
// ----------------------------------------------------------------------------------

template <class T>
void Engine<T>::combine(T *out, const std::vector<const T *> &arrays, const double *weights) const {
    const int64_t n = static_cast<int64_t>(arrays.size()),
                  stride = source_.program.n_members * planes_;
    const int64_t units = source_.program.n_cols * ado_units_;
    const int64_t chunks = (units + reduced_units - 1) / reduced_units;
    team([&] {
        Buffer<T> lanes(std::max<int64_t>(1, n) * unit());
        std::vector<Mode> modes(n);
        std::vector<const T *> at(n);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < blocks_ * chunks; ++task) {
            const int64_t b = task / chunks, first = task % chunks * reduced_units;
            for (int64_t i = 0; i < n; ++i) {
                modes[i] = spread(weights + i * stride, b, lanes.data() + i * unit());
                at[i] = arrays[i] + b * block_stride() + first * unit();
            }
            kernels_.combine(out + b * block_stride() + first * unit(), static_cast<int>(n),
                             at.data(), lanes.data(), modes.data(),
                             std::min(reduced_units, units - first));
        }
    });
}

template <class T>
void Engine<T>::dots(const std::vector<const T *> &xs, const T *y, double *result) const {
    const int64_t chunks = (owned_units() + reduced_units - 1) / reduced_units, n = xs.size();
    const int64_t members = source_.program.n_members;
    Buffer<T> parts(std::max<int64_t>(1, n * blocks_ * chunks * unit()));
    team([&] {
#pragma omp for schedule(static)
        for (int64_t task = 0; task < blocks_ * chunks * n; ++task) {
            const int64_t part = task / n, i = task % n;
            const int64_t first = part % chunks * reduced_units,
                          at = part / chunks * block_stride() + first * unit();
            kernels_.dots(xs[i] + at, y + at, std::min(reduced_units, owned_units() - first),
                          parts.data() + (i * blocks_ * chunks + part) * unit());
        }
    });
    std::fill_n(result, n * members * planes_, 0.0);
    const int lanes = kernels_.lanes;
    for (int64_t task = 0; task < n * blocks_ * chunks; ++task) {
        const int64_t i = task / (blocks_ * chunks), b = task / chunks % blocks_;
        for (int c = 0; c < planes_; ++c)
            for (int lane = 0; lane < (single_ ? lanes : members_of(b)); ++lane)
                result[(i * members + (single_ ? 0 : b * lanes + lane)) * planes_ + c] +=
                    parts.data()[task * unit() + c * lanes + lane];
    }
}

// The largest element found by one lane; NaN where one was met.
template <class T> double Engine<T>::largest_of(const T *top, const T *sum, int64_t lane) const {
    return std::isnan(sum[lane]) ? std::numeric_limits<double>::quiet_NaN()
                                 : static_cast<double>(top[lane]);
}

template <class T>
void Engine<T>::error_norm(const T *e, const T *x, const T *y, double atol, double rtol,
                           double *result) const {
    const int64_t chunks = (owned_units() + reduced_units - 1) / reduced_units,
                  lanes = kernels_.lanes;
    Buffer<T> parts(std::max<int64_t>(1, blocks_ * chunks * 2 * lanes));
    std::fill_n(parts.data(), parts.size(), T(0));
    team([&] {
#pragma omp for schedule(static)
        for (int64_t task = 0; task < blocks_ * chunks; ++task) {
            const int64_t first = task % chunks * reduced_units;
            const int64_t at = task / chunks * block_stride() + first * unit();
            T *top = parts.data() + task * 2 * lanes;
            kernels_.error(e + at, x + at, y + at, std::min(reduced_units, owned_units() - first),
                           static_cast<T>(atol), static_cast<T>(rtol), top, top + lanes);
        }
    });
    std::fill_n(result, source_.program.n_members, 0.0);
    for (int64_t task = 0; task < blocks_ * chunks; ++task)
        for (int64_t lane = 0; lane < (single_ ? lanes : members_of(task / chunks)); ++lane) {
            const T *top = parts.data() + task * 2 * lanes;
            double &r = result[single_ ? 0 : task / chunks * lanes + lane];
            const double found = largest_of(top, top + lanes, lane);
            r = std::isnan(r) || found <= r ? r : found;
        }
}

} // namespace heomdask

#include "recur.inl.hpp"

namespace heomdask {
template class Engine<double>;
template class Engine<float>;
} // namespace heomdask
