// Local solves: the tables of a basis, the way of ADOs out of states and back, and the binding.
#include "local.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "dispatch.hpp"
#include "register.hpp"

namespace nb = nanobind;

namespace heomdask {

namespace {

constexpr double beyond = 1e100; // eigenvalue of a mode that only fills up: 1 / it is as good as 0

int64_t filled(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// (rows, columns) to panels; `row_of` and `column_of` say where a row or column goes.
template <class Row, class Column>
void to_panels(const double *matrix, int64_t rows, int64_t columns, int64_t rows_filled,
               Row row_of, Column column_of, double *panels) {
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
            const int64_t c = column_of(j), panel = c / local_line * rows_filled * local_line;
            panels[panel + row_of(i) * local_line + c % local_line] = matrix[i * columns + j];
        }
}

} // namespace

LocalSolve::LocalSolve(const KernelTable &isa, const std::vector<Basis> &members) : isa_(isa) {
    for (const Basis &b : members) {
        const int64_t modes = filled(b.modes, local_quad), columns = 2 * modes,
                      n_out = filled(b.n, local_line);
        Buffer<double> memory(columns * (b.n + n_out + 1));
        double *into = memory.data(), *back = into + columns * b.n;
        double *values = back + columns * n_out;
        std::fill_n(into, columns * (b.n + n_out), 0.0);
        std::fill_n(values, columns, beyond);
        const auto same = [](int64_t i) { return i; };
        const auto of_mode = [&](int64_t j) { return j < b.modes ? j : j - b.modes + modes; };
        to_panels(b.into, b.n, 2 * b.modes, b.n, same, of_mode, into);
        to_panels(b.back, 2 * b.modes, b.n, columns, of_mode, same, back);
        for (int64_t j = 0; j < b.modes; ++j)
            values[j] = b.values[2 * j], values[modes + j] = b.values[2 * j + 1];
        members_.push_back({{b.n, columns, n_out, into, back, values},
                            std::move(memory),
                            {b.shifts, b.shifts + 2 * b.rows}});
    }
}

bool LocalSolve::fits(const Program &p) const {
    const int64_t n = int64_t{p.d} * p.d * (p.is_complex ? 2 : 1);
    return static_cast<int64_t>(members_.size()) == p.n_members &&
           std::all_of(members_.begin(), members_.end(), [&](const Member &m) {
               return m.tables.n == n && static_cast<int64_t>(m.shifts.size()) == 2 * p.n_rows;
           });
}

template <class T>
void LocalSolve::operator()(const Engine<T> &engine, const T *x, T *out) const {
    const Program &p = engine.program();
    const int64_t stride = engine.ado_stride(), n = members_[0].tables.n;
    const int64_t tiles = (p.n_rows + local_tile - 1) / local_tile;
    std::vector<int64_t> places;
    int64_t columns = 0;
    for (int64_t m = 0; m < p.n_members; ++m) {
        const std::vector<int64_t> own = engine.places(m);
        places.insert(places.end(), own.begin(), own.end());
        columns = std::max(columns, members_[m].tables.columns);
    }
#pragma omp parallel num_threads(engine.threads())
    {
        Buffer<double> memory(local_tile * (columns + members_[0].tables.n_out + n + 2));
        LocalTile tile;
        tile.modes = memory.data(), tile.out = tile.modes + local_tile * columns;
        tile.x = tile.out + local_tile * members_[0].tables.n_out;
        tile.shifts = tile.x + local_tile * n;
        std::fill_n(tile.x, local_tile * (n + 2), 0.0);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < p.n_members * tiles; ++task) {
            const Member &member = members_[task / tiles];
            const int64_t *place = places.data() + task / tiles * n;
            const int64_t first = task % tiles * local_tile,
                          count = std::min<int64_t>(local_tile, p.n_rows - first);
            std::copy_n(member.shifts.data() + 2 * first, 2 * count, tile.shifts);
            for (int64_t r = 0; r < count; ++r)
                for (int64_t i = 0; i < n; ++i)
                    tile.x[r * n + i] = x[(first + r) * stride + place[i]];
            isa_.local(member.tables, tile);
            for (int64_t r = 0; r < count; ++r)
                for (int64_t i = 0; i < n; ++i)
                    out[(first + r) * stride + place[i]] =
                        static_cast<T>(tile.out[r * member.tables.n_out + i]);
        }
    }
    for (int64_t ado = p.n_rows; ado < p.n_cols; ++ado)
        for (const int64_t place : places)
            out[ado * stride + place] = T(0);
}

template void LocalSolve::operator()(const Engine<double> &, const double *, double *) const;
template void LocalSolve::operator()(const Engine<float> &, const float *, float *) const;

} // namespace heomdask

using namespace heomdask;

namespace {

using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using BasisArrays = std::tuple<Matrix, Matrix, Matrix, Matrix>; // into, back, values, shifts

void construct(LocalSolve *self, const std::string &isa, const std::vector<BasisArrays> &members) {
    std::vector<Basis> bases;
    for (const auto &[into, back, values, shifts] : members) {
        const size_t n = into.shape(0), modes = values.shape(0);
        if (into.shape(1) != 2 * modes || back.shape(0) != 2 * modes || back.shape(1) != n ||
            values.shape(1) != 2 || shifts.shape(1) != 2)
            throw std::invalid_argument("a basis: shapes that do not belong together");
        bases.push_back({static_cast<int64_t>(n), static_cast<int64_t>(modes),
                         static_cast<int64_t>(shifts.shape(0)), into.data(), back.data(),
                         values.data(), shifts.data()});
    }
    new (self) LocalSolve(kernel_table(isa), bases);
}

} // namespace

void register_local(nb::module_ &m) {
    nb::class_<LocalSolve>(m, "LocalSolve")
        .def("__init__", &construct, nb::arg("isa"), nb::arg("members"));
}
