// The kernels for one system of three levels or more, vectorised inside the ADO, four elements to a
// register: rows of d elements, padded with zeros to whole registers; what is to be transposed is
// summed as rows of u, and added to y at the end. Operators are copied to that form first. What
// becomes of y is decided register by register, while it is at hand.
#pragma once
#include "single_two.inl.hpp"

namespace {

using namespace heomdask;

// ---- operators in the form of ADOs
// ---------------------------------------------------------------

// Where element (i, j) lies in an ADO of rows of R registers; its imaginary part, `quad` further.
template <class N> HD_INLINE int64_t place(int i, int j, int R) {
    return (int64_t{i} * R + j / quad) * N::size + j % quad;
}

template <class N> HD_INLINE void set(double *to, const double *from, bool sum) {
    to[0] = sum ? to[0] + from[0] : from[0];
    if constexpr (N::is_complex)
        to[quad] = sum ? to[quad] + from[1] : from[1];
}

template <class N> void clear(double *a, int64_t units) {
    for (int64_t u = 0; u < units; ++u)
        N::zero().store(a + u * N::size);
}

template <class N> struct Matrix { // (d, d): padded rows, and the table's scalars for broadcasts
    const double *rows = nullptr, *scalars = nullptr;
};

template <class N>
Matrix<N> copied(const double *table, int32_t offset, int d, int R, double *&memory) {
    if (offset < 0)
        return {};
    Matrix<N> m{memory, table + int64_t{offset} * planes<N>};
    clear<N>(memory, int64_t{d} * R);
    for (int i = 0; i < d; ++i)
        for (int j = 0; j < d; ++j)
            set<N>(memory + place<N>(i, j, R), m.scalars + (i * d + j) * planes<N>, false);
    memory += int64_t{d} * R * N::size;
    return m;
}

// y += L x + x R on M registers of B rows.
template <class N, int B, int M>
HD_INLINE void rows_of_products(const Matrix<N> &left, const Matrix<N> &right, const double *x,
                                int d, int R, int i0, int c0, double *y) {
    N sum[B][M];
    for (int i = 0; i < B; ++i)
        for (int c = 0; c < M; ++c)
            sum[i][c] = N::load(y + ((i0 + i) * R + c0 + c) * N::size);
    const auto add_row = [&](int i, N factor, const double *row) HD_LAMBDA {
        for (int c = 0; c < M; ++c)
            sum[i][c] = fma(factor, N::load(row + c * N::size), sum[i][c]);
    };
    if (left.scalars)
        for (int k = 0; k < d; ++k)
            for (int i = 0; i < B; ++i)
                add_row(i, spread<N>(left.scalars + ((i0 + i) * d + k) * planes<N>),
                        x + (k * R + c0) * N::size);
    if (right.rows)
        for (int k = 0; k < d; ++k)
            for (int i = 0; i < B; ++i)
                add_row(i, spread<N>(x + place<N>(i0 + i, k, R), quad),
                        right.rows + (k * R + c0) * N::size);
    for (int i = 0; i < B; ++i)
        for (int c = 0; c < M; ++c)
            sum[i][c].store(y + ((i0 + i) * R + c0 + c) * N::size);
}

// Blocks of rows of a size known to the compiler, as even as they can be.
template <class N, int D, int I = 0>
HD_INLINE void blocks(const Matrix<N> &left, const Matrix<N> &right, const double *x, double *y) {
    constexpr int R = (D + quad - 1) / quad, n = (D + 3) / 4, i0 = D * I / n, i1 = D * (I + 1) / n;
    rows_of_products<N, i1 - i0, R>(left, right, x, D, R, i0, 0, y);
    if constexpr (I + 1 < n)
        blocks<N, D, I + 1>(left, right, x, y);
}

// All rows of M registers; eight sums at a time hide how long an addition takes.
template <class N, int M>
HD_INLINE void columns_of_products(const Matrix<N> &left, const Matrix<N> &right, const double *x,
                                   int d, int R, int c, double *y) {
    int i = 0;
    for (; i + 4 <= d; i += 4)
        rows_of_products<N, 4, M>(left, right, x, d, R, i, c, y);
    for (; i < d; ++i)
        rows_of_products<N, 1, M>(left, right, x, d, R, i, c, y);
}

template <class N, int D>
void products(const Matrix<N> &left, const Matrix<N> &right, const double *x, int d, int R,
              double *y) {
    if (!left.scalars && !right.rows)
        return;
    if constexpr (D != 0)
        return blocks<N, D>(left, right, x, y);
    int c = 0;
    if constexpr (!N::is_complex) {
        for (; R - c == 2 || R - c > 3; c += 2)
            columns_of_products<N, 2>(left, right, x, d, R, c, y);
        for (; R - c == 3; c += 3)
            columns_of_products<N, 3>(left, right, x, d, R, c, y);
    }
    for (; c < R; ++c)
        columns_of_products<N, 1>(left, right, x, d, R, c, y);
}

// A superoperator: products, element by element (v: to y, w: to u), and scattered entries.
template <class N> struct Prepared {
    Matrix<N> left, right, left_t, right_t;
    const double *v = nullptr, *w = nullptr;
    const Super *scattered = nullptr; // if there are entries of another kind
};

template <class N>
Prepared<N> prepare(const Super &s, const double *table, int d, int R, double *&memory) {
    Prepared<N> p;
    p.left = copied<N>(table, s.left, d, R, memory),
    p.right = copied<N>(table, s.right, d, R, memory);
    p.left_t = copied<N>(table, s.left_t, d, R, memory);
    p.right_t = copied<N>(table, s.right_t, d, R, memory);
    const int64_t ado = int64_t{d} * R * N::size;
    double *v = memory, *w = memory + ado;
    clear<N>(v, 2 * int64_t{d} * R);
    memory += 2 * ado;
    for (int o = 0; o < s.entries.n_out; ++o)
        for (int e = s.entries.start[o]; e < s.entries.start[o + 1]; ++e) {
            const int out = s.entries.out[o], in = s.entries.in[e];
            const double *value = table + int64_t{s.entries.value[e]} * planes<N>;
            if (in == out)
                set<N>(v + place<N>(in / d, in % d, R), value, true), p.v = v;
            else if (in == out % d * d + out / d)
                set<N>(w + place<N>(in / d, in % d, R), value, true), p.w = w;
            else
                p.scattered = &s;
        }
    for (int e = 0; e < d * d && s.each >= 0; ++e)
        set<N>(v + place<N>(e / d, e % d, R), table + int64_t{s.each + e} * planes<N>, true),
            p.v = v;
    return p;
}

template <class N>
void scatter(const Super &s, const double *table, const double *x, int d, int R, double *y) {
    for (int o = 0; o < s.entries.n_out; ++o)
        for (int e = s.entries.start[o]; e < s.entries.start[o + 1]; ++e) {
            const int out = s.entries.out[o], in = s.entries.in[e];
            if (in == out || in == out % d * d + out / d)
                continue;
            const double *v = table + int64_t{s.entries.value[e]} * planes<N>;
            const double *from = x + place<N>(in / d, in % d, R);
            double *to = y + place<N>(out / d, out % d, R);
            if constexpr (N::is_complex) {
                to[0] += v[0] * from[0] - v[1] * from[quad];
                to[quad] += v[0] * from[quad] + v[1] * from[0];
            } else {
                to[0] += v[0] * from[0];
            }
        }
}

template <class N, int D>
void act(const Prepared<N> &p, const double *table, const double *x, int d, int R, double *y,
         double *u) {
    products<N, D>(p.left, p.right, x, d, R, y);
    products<N, D>(p.left_t, p.right_t, x, d, R, u);
    const int64_t ado = int64_t{d} * R * N::size;
    for (int64_t at = 0; p.v && at < ado; at += N::size)
        fma(N::load(p.v + at), N::load(x + at), N::load(y + at)).store(y + at);
    for (int64_t at = 0; p.w && at < ado; at += N::size)
        fma(N::load(p.w + at), N::load(x + at), N::load(u + at)).store(u + at);
    if (p.scattered)
        scatter<N>(*p.scattered, table, x, d, R, y);
}

// Hands y + u^T on, register by register, in squares of 4 x 4; rows beyond d are none.
template <class N, class Then>
HD_INLINE void add_transposed(const double *u, const double *y, int d, int R, Then &&then) {
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) {
            N square[quad];
            for (int k = 0; k < quad; ++k) {
                const int row = j * quad + k;
                square[k] = row < d ? N::load(u + (int64_t{row} * R + i) * N::size) : N::zero();
            }
            transpose(square);
            for (int k = 0; k < quad && i * quad + k < d; ++k) {
                const int64_t at = (int64_t{i * quad + k} * R + j) * N::size;
                then(add(square[k], N::load(y + at)), at);
            }
        }
}

// ---- rows
// ----------------------------------------------------------------------------------------

// Column `col` of an ADO as R registers of elements; n of the last are there.
template <class N> HD_INLINE N column(const double *x, int first, int d, int R) {
    const auto at = [&](int k, int plane) HD_LAMBDA {
        return first + k < d ? x[int64_t{first + k} * R * N::size + plane * quad] : 0.0;
    };
    N c;
    c.re = of4(at(0, 0), at(1, 0), at(2, 0), at(3, 0));
    if constexpr (N::is_complex)
        c.im = of4(at(0, 1), at(1, 1), at(2, 1), at(3, 1));
    return c;
}

// A coupling to one site, link by link, see `cross` in links.inl.hpp; `unit` holds ones on the
// diagonal.
template <class N, int D, bool Straight, bool Swapped>
HD_INLINE void single_cross(const Crossing *link, const Crossing *end, const double *unit,
                            const double *table, const double *x, int runtime_d, double *y,
                            double *u) {
    constexpr int own = 2 * (Straight + Swapped);
    const int d = D ? D : runtime_d, R = (d + quad - 1) / quad;
    for (; link != end; ++link) {
        const int64_t row = int64_t{link->site} * R * N::size, col = place<N>(0, link->site, R);
        const double *from = x + int64_t{link->col} * d * R * N::size;
        const auto coef = [&](int k) HD_LAMBDA {
            return spread<N>(table + (int64_t{link->coef} + k) * planes<N>);
        };
        for (int k = 0; k < R; ++k) {
            const int64_t at = row + k * N::size;
            const auto common = nonzero(N::load(unit + at));
            N r = N::load(from + at), c = column<N>(from + col, k * quad, d, R);
            N to_y = fma(coef(own), select(common, r, N::zero()), N::load(y + at));
            N to_u = N::load(u + at);
            r = select(common, N::zero(), r), c = select(common, N::zero(), c);
            if constexpr (Straight)
                to_y = fma(coef(0), r, to_y), to_u = fma(coef(1), c, to_u);
            if constexpr (Swapped)
                to_y = fma(coef(own - 1), c, to_y), to_u = fma(coef(own - 2), r, to_u);
            to_y.store(y + at), to_u.store(u + at);
        }
    }
}

template <class N, int D>
HD_INLINE void single_crossings(const Program &p, int64_t r, const double *unit,
                                const double *table, const double *x, double *y, double *u) {
    const int64_t *start = p.cross_start + crossing_kinds * r;
    const auto at = [&](int kind) HD_LAMBDA { return p.crossing + start[kind]; };
    table += int64_t{p.cross_first} * planes<N>;
    single_cross<N, D, true, false>(at(0), at(1), unit, table, x, p.d, y, u);
    single_cross<N, D, false, true>(at(1), at(2), unit, table, x, p.d, y, u);
    single_cross<N, D, true, true>(at(2), at(3), unit, table, x, p.d, y, u);
}

constexpr int64_t far = 1 << 19; // numbers of a state whose rows are worth asking for in advance

// What couplings to one site will read for row r, brought near while other work is done: a sixth of
// the time where neighbours lie beyond the second cache, and a loss of a twentieth where they do not.
template <class N>
HD_INLINE void fetch_crossings(const Program &p, int64_t r, const double *x, int d, int R) {
    const int64_t *start = p.cross_start + crossing_kinds * r;
    for (const Crossing *l = p.crossing + start[0]; l != p.crossing + start[crossing_kinds]; ++l) {
        const double *from = x + int64_t{l->col} * d * R * N::size;
        for (int k = 0; k < R; k += 8 / N::size)
            __builtin_prefetch(from + (int64_t{l->site} * R + k) * N::size);
        for (int k = 0; k < d; ++k)
            __builtin_prefetch(from + place<N>(k, l->site, R));
    }
}

// The operators of every group, each in its own part of the memory.
template <class N>
const Prepared<N> *prepare_groups(const Program &p, const double *table, int R, double *memory) {
    const int64_t ado = int64_t{p.d} * R * N::size;
    auto *all = reinterpret_cast<Prepared<N> *>(memory + p.n_group * (single_operators - 1) * ado);
    for (int g = 0; g < p.n_group; ++g) {
        const Group &group = p.group[g];
        double *own = memory + g * (single_operators - 1) * ado;
        all[g] = prepare<N>(group.super, table, p.d, R, own);
    }
    return all;
}

template <class N, int D>
void single_many(const Program &p, const Step<double> &s, int64_t begin, int64_t end) {
    const int d = D ? D : p.d, R = (d + quad - 1) / quad;
    const int64_t ado = int64_t{d} * R * N::size;
    double *y = s.scratch, *u = y + ado, *w = u + ado, *unit = w + ado, *memory = unit + ado;
    clear<N>(unit, int64_t{d} * R);
    for (int i = 0; i < d; ++i)
        unit[place<N>(i, i, R)] = 1;
    Prepared<N> local = prepare<N>(p.local, s.table, d, R, memory);
    const double *each = local.v; // with the rate, where y begins
    local.v = nullptr;
    const double *sandwiches = memory;
    for (int k = 0; k < p.local.n_sandwich; ++k)
        copied<N>(s.table, p.local.sandwich[k].right, d, R, memory);
    const Prepared<N> *prepared = prepare_groups<N>(p, s.table, R, memory);
    const bool plain = is_plain(s), fetches = p.cross_start && p.n_cols * ado > far;
    Ending<N> finish(s);
    for (int64_t r = begin; r < end; ++r) {
        const int64_t at = r * ado;
        if (s.mode[A] != none) {
            const N rate = p.has_diagonal ? spread<N>(s.diagonal + r * planes<N>) : N::zero();
            for (int64_t e = 0; e < ado; e += N::size) {
                const N factor = each ? add(rate, N::load(each + e)) : rate;
                fma(factor, N::load(s.x + at + e), N::zero()).store(y + e);
                N::zero().store(u + e);
            }
            if (fetches && r + 1 < end)
                fetch_crossings<N>(p, r + 1, s.x, d, R);
            if (p.has_local)
                act<N, D>(local, s.table, s.x + at, d, R, y, u);
            for (int k = 0; k < p.local.n_sandwich; ++k) {
                const Sandwich &both = p.local.sandwich[k];
                clear<N>(w, int64_t{d} * R);
                products<N, D>({w, s.table + int64_t{both.left} * planes<N>}, {}, s.x + at, d, R,
                               w);
                products<N, D>({}, {sandwiches + k * ado, nullptr}, w, d, R,
                               both.transposed ? u : y);
            }
            if (p.cross_start)
                single_crossings<N, D>(p, r, unit, s.table, s.x, y, u);
            const Link *link = p.link + p.link_start[r], *last = link;
            for (const Visit *v = p.visit + p.visit_start[r]; v != p.visit + p.visit_start[r + 1];
                 ++v, link = last) {
                const Prepared<N> &own = prepared[v->group];
                last = link + v->n;
                for (int64_t e = 0; e < ado; e += N::size) {
                    N sum = N::zero();
                    for (const Link *l = link; l != last; ++l)
                        sum = fma(spread<N>(s.table + int64_t{l->coef} * planes<N>),
                                  N::load(s.x + l->col * ado + e), sum);
                    sum.store(w + e);
                }
                act<N, D>(own, s.table, w, d, R, y, u);
            }
            const double *x = s.x + at, *old = s.mode[C] == none ? x : s.old + at;
            double *out = s.out + at, *acc = s.acc + at;
            if (plain)
                add_transposed<N>(u, y, d, R, [&](N sum, int64_t e) HD_LAMBDA {
                    finish(sum, x + e, old + e, out + e, acc + e);
                });
            else
                add_transposed<N>(u, y, d, R,
                                  [&](N sum, int64_t e) HD_LAMBDA { sum.store(y + e); });
        }
        if (!plain)
            epilogue_masked<N>(s, 0, y, s.x + at, s.old + at, s.out + at, s.acc + at, d * R);
    }
    if (plain)
        finish.report(s);
}

template <class N>
void single_rows(const Program &p, const Step<double> &s, int64_t begin, int64_t end) {
    if (p.d <= 2)
        return single_two<N>(p, s, begin, end);
#if defined(__AVX2__)
    if constexpr (!N::is_complex)
        switch (p.d) {
        case 3: return single_many<N, 3>(p, s, begin, end);
        case 4: return single_many<N, 4>(p, s, begin, end);
        case 5: return single_many<N, 5>(p, s, begin, end);
        case 6: return single_many<N, 6>(p, s, begin, end);
        case 7: return single_many<N, 7>(p, s, begin, end);
        case 8: return single_many<N, 8>(p, s, begin, end);
        }
#endif
    single_many<N, 0>(p, s, begin, end);
}

} // namespace
