// Bindings of the engines: Python arrays in, pointers out, shapes checked, the GIL released.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "dispatch.hpp"
#include "engine.hpp"
#include "local.hpp"
#include "register.hpp"

namespace nb = nanobind;
using namespace heomdask;

namespace {

template <class S> using Array = nb::ndarray<S, nb::c_contig, nb::device::cpu>;
using Ints = Array<const int32_t>;
using Longs = Array<const int64_t>;
using Doubles = Array<const double>;
using Contribution = std::tuple<int, Ints, Doubles>; // name, rows of the table, values
// left, right, left_t, right_t, full, each; sandwiches (n, 3); entries: out, start, in, value
using SuperArrays = std::tuple<std::vector<int>, Ints, Ints, Ints, Ints, Ints>;
// start, links (n, 2), first coefficient, runs (n, 6), elements read, superoperator
using GroupArrays = std::tuple<Longs, Ints, int, Ints, Ints, SuperArrays>;
// start (3 n_rows + 1), links (n, 3), first coefficient
using CrossingArrays = std::tuple<Longs, Ints, int>;

void require(bool condition, const char *message) {
    if (!condition)
        throw std::invalid_argument(message);
}

// Keeps the arrays alive that an engine points into.
template <class T> struct Bound {
    std::vector<GroupArrays> groups;
    SuperArrays local;
    std::optional<CrossingArrays> crossings;
    std::vector<Contribution> named;
    std::optional<Engine<T>> engine;
    int64_t d, n_rows, n_cols, members, planes, names;

    int64_t host_size() const { return n_cols * d * d * members * planes; }
};

Super super_of(const SuperArrays &a, std::vector<Sandwich> &sandwiches) {
    const auto &[offsets, two_sided, out, start, in, value] = a;
    require(offsets.size() == 6, "a superoperator has six offsets");
    Super s;
    s.left = offsets[0], s.right = offsets[1], s.left_t = offsets[2], s.right_t = offsets[3];
    s.full = offsets[4], s.each = offsets[5];
    for (size_t i = 0; i < two_sided.size() / 3; ++i)
        sandwiches.push_back(
            {two_sided.data()[3 * i], two_sided.data()[3 * i + 1], two_sided.data()[3 * i + 2]});
    s.entries = {static_cast<int>(out.size()), out.data(), start.data(), in.data(), value.data()};
    return s;
}

Pair pair_of(const Group &g, int d) {
    if (d != 2 || g.n_run != 1 || g.run->n != 2)
        return Pair::other;
    const Run &r = *g.run;
    if (r.in == 0 && r.din == 3 && r.out == 0 && r.dout == 3)
        return Pair::diagonal;
    if (r.out != 1 || r.dout != 1)
        return Pair::other;
    return r.in == 1 && r.din == 1    ? Pair::across
           : r.in == 2 && r.din == -1 ? Pair::swapped
                                      : Pair::other;
}

void set_crossings(const CrossingArrays &arrays, Program &p) {
    const auto &[start, links, first] = arrays;
    require(static_cast<int64_t>(start.size()) == crossing_kinds * p.n_rows + 1,
            "crossings: wrong number of rows");
    require(static_cast<int64_t>(links.size()) == 3 * start.data()[start.size() - 1],
            "crossings: wrong links");
    p.cross_start = start.data(), p.cross_first = first;
    p.crossing = reinterpret_cast<const Crossing *>(links.data());
}

template <class T>
void construct(Bound<T> *self, std::tuple<int, int64_t, int64_t, int64_t, bool, int> shape,
               std::string isa, int threads, bool single, Places places, Doubles table,
               std::optional<Doubles> diagonal, SuperArrays local, bool has_local,
               std::optional<CrossingArrays> crossings, std::vector<GroupArrays> groups,
               std::vector<Contribution> named,
               std::vector<std::tuple<int, Doubles>> named_diagonal) {
    new (self) Bound<T>{std::move(groups), std::move(local), std::move(crossings),
                        std::move(named), {}, 0, 0, 0, 0, 1, 0};
    Source source;
    Program &p = source.program;
    std::tie(p.d, p.n_rows, p.n_cols, p.n_members, p.is_complex, source.n_names) = shape;
    self->d = p.d, self->n_rows = p.n_rows, self->n_cols = p.n_cols, self->members = p.n_members;
    self->planes = p.is_complex ? 2 : 1, self->names = source.n_names;
    const int64_t per_row = p.n_members * self->planes;
    p.n_table = static_cast<int64_t>(table.size()) / per_row;
    source.table = table.data();
    if (diagonal) {
        require(static_cast<int64_t>(diagonal->size()) == p.n_rows * per_row,
                "diagonal: wrong size");
        source.diagonal = diagonal->data();
    }
    source.sandwiches.resize(self->groups.size() + 1);
    p.local = super_of(self->local, source.sandwiches[0]);
    p.has_local = has_local;
    if (self->crossings)
        set_crossings(*self->crossings, p);
    for (size_t g = 0; g < self->groups.size(); ++g) {
        const auto &[start, links, first, runs, in, super] = self->groups[g];
        require(static_cast<int64_t>(start.size()) == p.n_rows + 1, "group: wrong number of rows");
        require(static_cast<int64_t>(links.size()) == 2 * start.data()[p.n_rows],
                "group: wrong links");
        Group group;
        source.links.push_back({start.data(), reinterpret_cast<const Link *>(links.data()), first});
        group.n_run = static_cast<int>(runs.size() / 6);
        group.run = reinterpret_cast<const Run *>(runs.data());
        group.pair = pair_of(group, p.d);
        group.n_in = static_cast<int>(in.size()), group.in = in.data();
        group.super = super_of(super, source.sandwiches[g + 1]);
        source.groups.push_back(group);
    }
    for (const auto &[name, rows, values] : self->named)
        source.named.push_back(
            {name, rows.data(), static_cast<int64_t>(rows.size()), values.data()});
    std::vector<Doubles> kept;
    for (const auto &[name, values] : named_diagonal) {
        source.named_diagonal.push_back({name, nullptr, p.n_rows, values.data()});
        kept.push_back(values);
    }
    for (const Doubles &values : kept) // alive as long as the others
        self->named.emplace_back(-1, Ints(), values);
    require(places.empty() || static_cast<int>(places.size()) == threads, "places: of each thread");
    self->engine.emplace(std::move(source), kernel_table(isa), threads, single,
                         std::move(places));
}

template <class T> T *state(const Bound<T> &b, const Array<T> &x) {
    require(static_cast<int64_t>(x.size()) == b.engine->state_size(), "a state of another plan");
    return x.data();
}

template <class T>
Elements elements(const Bound<T> &b, const Longs &ado, const Longs &row, const Longs &col) {
    require(ado.size() == row.size() && row.size() == col.size(), "selection: three equal lengths");
    for (size_t i = 0; i < ado.size(); ++i)
        require(ado.data()[i] >= 0 && ado.data()[i] < b.n_cols && row.data()[i] >= 0 &&
                    row.data()[i] < b.d && col.data()[i] >= 0 && col.data()[i] < b.d,
                "selection: an element outside the state");
    return {static_cast<int64_t>(ado.size()), ado.data(), row.data(), col.data()};
}

template <class T>
std::vector<const T *> states(const Bound<T> &b, const std::vector<Array<T>> &xs) {
    std::vector<const T *> result;
    for (const Array<T> &x : xs)
        result.push_back(state(b, x));
    return result;
}

template <class T>
void apply(const Bound<T> &b, Array<T> x, Array<T> out, std::optional<Array<T>> acc,
           Doubles weights, std::optional<Doubles> scalars, int64_t begin, int64_t end) {
    require(static_cast<int64_t>(weights.size()) == n_weights * b.members * b.planes,
            "weights: wrong size");
    require(b.names == 0 ||
                (scalars && static_cast<int64_t>(scalars->size()) == b.names * b.members),
            "scalars: wrong size");
    require(begin >= 0 && end <= b.n_rows, "rows: outside the plan");
    T *to = state(b, out), *sum = acc ? state(b, *acc) : nullptr;
    const T *from = state(b, x);
    const double *factors = scalars ? scalars->data() : nullptr;
    nb::gil_scoped_release release;
    b.engine->apply(from, to, sum, weights.data(), factors, begin, end);
}

template <class T>
void recur(const Bound<T> &b, Array<T> x, std::optional<Array<T>> acc, Array<T> work0,
           Array<T> work1, Doubles coeffs, int64_t start, Longs ado, Longs row, Longs col,
           Array<T> probed, Array<double> norms) {
    const int64_t terms = static_cast<int64_t>(norms.size()) / b.members;
    require(start >= 0 && start != 1, "start: 0 or at least 2");
    require(static_cast<int64_t>(coeffs.size()) == terms * 4 * b.members * b.planes,
            "coeffs: wrong size");
    const Elements probe = elements(b, ado, row, col);
    require(static_cast<int64_t>(probed.size()) == terms * probe.n * b.members * b.planes,
            "probed: wrong size");
    const T *from = state(b, x);
    T *sum = acc ? state(b, *acc) : nullptr, *w0 = state(b, work0), *w1 = state(b, work1);
    nb::gil_scoped_release release;
    b.engine->recur(from, sum, w0, w1, coeffs.data(), start, start + terms, probe, probed.data(),
                    norms.data());
}

template <class T>
void combine(const Bound<T> &b, Array<T> out, std::vector<Array<T>> arrays, Doubles weights) {
    require(arrays.size() <= 32, "combine: at most 32 arrays");
    require(weights.size() == arrays.size() * b.members * b.planes, "weights: wrong size");
    const std::vector<const T *> from = states(b, arrays);
    T *to = state(b, out);
    nb::gil_scoped_release release;
    b.engine->combine(to, from, weights.data());
}

template <class T>
void dots(const Bound<T> &b, std::vector<Array<T>> xs, Array<T> y, Array<double> result) {
    require(result.size() == xs.size() * b.members * b.planes, "result: wrong size");
    const std::vector<const T *> from = states(b, xs);
    const T *other = state(b, y);
    nb::gil_scoped_release release;
    b.engine->dots(from, other, result.data());
}

template <class T>
void error_norm(const Bound<T> &b, Array<T> e, Array<T> x, Array<T> y, double atol, double rtol,
                Array<double> result) {
    require(static_cast<int64_t>(result.size()) == b.members, "result: wrong size");
    const T *pe = state(b, e), *px = state(b, x), *py = state(b, y);
    nb::gil_scoped_release release;
    b.engine->error_norm(pe, px, py, atol, rtol, result.data());
}

template <class T> void clear(const Bound<T> &b, Array<T> x) {
    T *to = state(b, x);
    nb::gil_scoped_release release;
    b.engine->clear(to);
}

template <class T>
void solve_local(const Bound<T> &b, const LocalSolve &solve, Array<T> x, Array<T> out) {
    require(solve.fits(b.engine->program()), "a local solve of another plan");
    const T *from = state(b, x);
    T *to = state(b, out);
    nb::gil_scoped_release release;
    solve(*b.engine, from, to);
}

template <class T> void put(const Bound<T> &b, Array<const T> host, Array<T> x) {
    require(static_cast<int64_t>(host.size()) == b.host_size(), "host: wrong size");
    T *to = state(b, x);
    nb::gil_scoped_release release;
    b.engine->put(host.data(), to);
}

template <class T> void fetch(const Bound<T> &b, Array<T> x, Array<T> host) {
    require(static_cast<int64_t>(host.size()) == b.host_size(), "host: wrong size");
    const T *from = state(b, x);
    nb::gil_scoped_release release;
    b.engine->fetch(from, host.data());
}

template <class T>
void pack(const Bound<T> &b, Array<T> x, Longs ado, Longs row, Longs col, Array<T> host) {
    require(host.size() == ado.size() * b.members * b.planes, "host: wrong size");
    const T *from = state(b, x);
    const Elements chosen = elements(b, ado, row, col);
    nb::gil_scoped_release release;
    b.engine->pack(from, chosen, host.data());
}

template <class T>
void unpack(const Bound<T> &b, Array<const T> host, Longs ado, Longs row, Longs col, Array<T> x) {
    require(host.size() == ado.size() * b.members * b.planes, "host: wrong size");
    T *to = state(b, x);
    const Elements chosen = elements(b, ado, row, col);
    nb::gil_scoped_release release;
    b.engine->unpack(host.data(), chosen, to);
}

template <class T> void bind(nb::module_ &m, const char *name) {
    using B = Bound<T>;
    nb::class_<B>(m, name)
        .def("__init__", &construct<T>, nb::arg("shape"), nb::arg("isa"), nb::arg("threads"),
             nb::arg("single"), nb::arg("places"), nb::arg("table"), nb::arg("diagonal").none(),
             nb::arg("local"), nb::arg("has_local"), nb::arg("crossings").none(),
             nb::arg("groups"), nb::arg("named"), nb::arg("named_diagonal"))
        .def_prop_ro("state_size", [](const B &b) { return b.engine->state_size(); })
        .def_prop_ro("nbytes", [](const B &b) { return b.engine->nbytes(); })
        .def("clear", &clear<T>)
        .def("put", &put<T>)
        .def("fetch", &fetch<T>)
        .def("pack", &pack<T>)
        .def("unpack", &unpack<T>)
        .def("apply", &apply<T>, nb::arg("x"), nb::arg("out"), nb::arg("acc").none(),
             nb::arg("weights"), nb::arg("scalars").none(), nb::arg("begin"), nb::arg("end"))
        .def("recur", &recur<T>, nb::arg("x"), nb::arg("acc").none(), nb::arg("work0"),
             nb::arg("work1"), nb::arg("coeffs"), nb::arg("start"), nb::arg("ado"),
             nb::arg("row"), nb::arg("col"), nb::arg("probed"), nb::arg("norms"))
        .def("combine", &combine<T>)
        .def("dots", &dots<T>)
        .def("error_norm", &error_norm<T>)
        .def("solve_local", &solve_local<T>);
}

} // namespace

void register_engine(nb::module_ &m) {
    bind<double>(m, "Engine64");
    bind<float>(m, "Engine32");
}
