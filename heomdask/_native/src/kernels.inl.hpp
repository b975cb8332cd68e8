// The kernels for batches, members fastest: written once over a number type, compiled once for
// each instruction set. One ADO at a time: y = G x in scratch, then the epilogue. Every sum starts
// from +0 with a fused multiply-add, so that a zero coefficient changes no bit of any result.
#pragma once
#include "number.hpp"
#include "program.hpp"

namespace {

using namespace heomdask;

// ---- y += S x, for the parts of a superoperator --------------------------------------------------

template <class N> using Scalar = typename N::T;

// NI x NJ elements of A B (+ C D), added to y (element i, j at i * si + j * sj).
template <class N, int NI, int NJ>
HD_INLINE void tile(const Scalar<N> *a, const Scalar<N> *b, const Scalar<N> *c, const Scalar<N> *e,
                    int d, int i0, int j0, Scalar<N> *y, int si, int sj) {
    constexpr int S = N::size;
    N sum[NI][NJ];
    for (int i = 0; i < NI; ++i)
        for (int j = 0; j < NJ; ++j)
            sum[i][j] = N::load(y + ((i0 + i) * si + (j0 + j) * sj) * S);
    for (int pass = 0; pass < 2; ++pass) {
        const Scalar<N> *p = pass ? c : a, *q = pass ? e : b;
        if (!p)
            continue;
#pragma GCC unroll 1
        for (int k = 0; k < d; ++k) {
            N right[NJ];
            for (int j = 0; j < NJ; ++j)
                right[j] = N::load(q + (k * d + j0 + j) * S);
            for (int i = 0; i < NI; ++i) {
                const N left = N::load(p + ((i0 + i) * d + k) * S);
                for (int j = 0; j < NJ; ++j)
                    sum[i][j] = fma(left, right[j], sum[i][j]);
            }
        }
    }
    for (int i = 0; i < NI; ++i)
        for (int j = 0; j < NJ; ++j)
            sum[i][j].store(y + ((i0 + i) * si + (j0 + j) * sj) * S);
}

// y += L x + x R (a null operator is absent), transposed at the end if so flagged.
template <class N>
void one_sided(const Scalar<N> *left, const Scalar<N> *right, const Scalar<N> *x, int d,
               Scalar<N> *y, bool transposed) {
    constexpr int TI = N::is_complex ? 2 : 4, TJ = N::is_complex ? 2 : 3;
    const int si = transposed ? 1 : d, sj = transposed ? d : 1;
    const int ni = (d + TI - 1) / TI, nj = (d + TJ - 1) / TJ;
    const Scalar<N> *rx = right ? x : nullptr;
    for (int i0 = 0, ti = ni; ti > 0; --ti) {
        const int hi = (d - i0 + ti - 1) / ti;
        for (int j0 = 0, tj = nj; tj > 0; --tj) {
            const int hj = (d - j0 + tj - 1) / tj;
#define HD_TILE(I, J)                                                                              \
    case I * 4 + J:                                                                                \
        tile<N, I, J>(left, x, rx, right, d, i0, j0, y, si, sj);                                \
        break;
            switch (hi * 4 + hj) {
                HD_TILE(1, 1)
                HD_TILE(1, 2)
                HD_TILE(2, 1)
                HD_TILE(2, 2)
            default:
                if constexpr (!N::is_complex)
                    switch (hi * 4 + hj) {
                        HD_TILE(1, 3)
                        HD_TILE(2, 3)
                        HD_TILE(3, 1)
                        HD_TILE(3, 2)
                        HD_TILE(3, 3)
                        HD_TILE(4, 1)
                        HD_TILE(4, 2)
                        HD_TILE(4, 3)
                    }
            }
#undef HD_TILE
            j0 += hj;
        }
        i0 += hi;
    }
}

template <class N>
HD_INLINE void sparse(const Entries &s, const Scalar<N> *table, const Scalar<N> *x, Scalar<N> *y) {
    for (int o = 0; o < s.n_out; ++o) {
        Scalar<N> *target = y + s.out[o] * N::size;
        N sum = N::load(target);
        for (int e = s.start[o]; e < s.start[o + 1]; ++e)
            sum = fma(N::load(table + int64_t{s.value[e]} * N::size), N::load(x + s.in[e] * N::size), sum);
        sum.store(target);
    }
}

template <class N>
HD_INLINE void super(const Super &s, const Scalar<N> *table, const Scalar<N> *x, int d, Scalar<N> *y,
                     Scalar<N> *scratch) {
    const auto at = [table](int32_t row) { return row < 0 ? nullptr : table + int64_t{row} * N::size; };
    if (s.left >= 0 || s.right >= 0)
        one_sided<N>(at(s.left), at(s.right), x, d, y, false);
    if (s.left_t >= 0 || s.right_t >= 0)
        one_sided<N>(at(s.left_t), at(s.right_t), x, d, y, true);
    if (s.entries.n_out)
        sparse<N>(s.entries, table, x, y);
    if (s.full >= 0) {
        const int n = d * d;
        const Scalar<N> *m = at(s.full);
        for (int i = 0; i < n; ++i) {
            N sum = N::load(y + i * N::size);
            for (int j = 0; j < n; ++j)
                sum = fma(N::load(m + (i * n + j) * N::size), N::load(x + j * N::size), sum);
            sum.store(y + i * N::size);
        }
    }
    for (int k = 0; k < s.n_sandwich; ++k) {
        for (int e = 0; e < d * d; ++e)
            N::zero().store(scratch + e * N::size);
        one_sided<N>(at(s.sandwich[k].left), nullptr, x, d, scratch, false);
        one_sided<N>(nullptr, at(s.sandwich[k].right), scratch, d, y, s.sandwich[k].transposed != 0);
    }
}

// ---- W = sum over links of coef * X[col], on the elements that S reads ----------------------------

template <class N, int K>
HD_INLINE void gather_tile(const Link *link, const Link *end, const int32_t *in,
                           const Scalar<N> *table, const Scalar<N> *x, int64_t ado, Scalar<N> *w) {
    N sum[K];
    for (int k = 0; k < K; ++k)
        sum[k] = N::zero();
    for (; link != end; ++link) {
        const N coef = N::load(table + int64_t{link->coef} * N::size);
        const Scalar<N> *from = x + link->col * ado;
        for (int k = 0; k < K; ++k)
            sum[k] = fma(coef, N::load(from + in[k] * N::size), sum[k]);
    }
    for (int k = 0; k < K; ++k)
        sum[k].store(w + in[k] * N::size);
}

template <class N>
HD_INLINE void gather(const Group &g, const Link *link, const Link *end, const Scalar<N> *table,
                      const Scalar<N> *x, int64_t ado, Scalar<N> *w) {
    constexpr int K = N::is_complex ? 3 : 6;
    int k = 0;
    for (; k + K <= g.n_in; k += K)
        gather_tile<N, K>(link, end, g.in + k, table, x, ado, w);
    for (; k + 2 <= g.n_in; k += 2)
        gather_tile<N, 2>(link, end, g.in + k, table, x, ado, w);
    if (k < g.n_in)
        gather_tile<N, 1>(link, end, g.in + k, table, x, ado, w);
}

// ---- the epilogue --------------------------------------------------------------------------------

template <class N> struct Weights {
    N w[n_weights];
    typename N::mask on[n_weights];
};

// Any mixture of zero and other weights: a weight of zero leaves the member untouched.
template <class N>
void epilogue_masked(const Step<Scalar<N>> &s, const Weights<N> &k, const Scalar<N> *y,
                               const Scalar<N> *x, const Scalar<N> *old, Scalar<N> *out,
                               Scalar<N> *acc, int units, typename N::vec &top,
                               typename N::vec &sum) {
    for (int e = 0; e < units; ++e) {
        const int64_t at = int64_t{e} * N::size;
        N t = N::zero();
        if (s.mode[A] != none)
            t = select(k.on[A], fma(k.w[A], N::load(y + at), t), t);
        if (s.mode[B] != none)
            t = select(k.on[B], fma(k.w[B], N::load(x + at), t), t);
        if (s.mode[C] != none)
            t = select(k.on[C], fma(k.w[C], N::load(old + at), t), t);
        t.store(out + at);
        if (s.accumulate != Acc::off) {
            N total = s.accumulate == Acc::init_both ? N::zero() : N::load(acc + at);
            if (s.accumulate != Acc::add && s.mode[WX] != none)
                total = select(k.on[WX], fma(k.w[WX], N::load(x + at), total), total);
            if (s.mode[W] != none)
                total = select(k.on[W], fma(k.w[W], t, total), total);
            total.store(acc + at);
        }
        const auto size = rank(t);
        top = max(top, size);
        sum = add(sum, size);
    }
}

// The common case: every weight of every member in use is other than zero.
template <class N, bool HasB, bool HasC, int ACC>
void epilogue(const Step<Scalar<N>> &, const Weights<N> &k, const Scalar<N> *y,
                        const Scalar<N> *x, const Scalar<N> *old, Scalar<N> *out, Scalar<N> *acc,
                        int units, typename N::vec &top, typename N::vec &sum) {
    for (int e = 0; e < units; ++e) {
        const int64_t at = int64_t{e} * N::size;
        const N own = N::load(x + at);
        N t = fma(k.w[A], N::load(y + at), N::zero());
        if constexpr (HasB)
            t = fma(k.w[B], own, t);
        if constexpr (HasC)
            t = fma(k.w[C], N::load(old + at), t);
        t.store(out + at);
        if constexpr (ACC != 0) {
            N total = ACC == 3 ? N::zero() : N::load(acc + at);
            if constexpr (ACC >= 2)
                total = fma(k.w[WX], own, total);
            fma(k.w[W], t, total).store(acc + at);
        }
        const auto size = rank(t);
        top = max(top, size);
        sum = add(sum, size);
    }
}

// ---- rows ----------------------------------------------------------------------------------------

template <class N> Weights<N> unpack(const Scalar<N> *raw) {
    Weights<N> k;
    for (int i = 0; i < n_weights; ++i) {
        k.w[i] = N::load(raw + i * N::size);
        k.on[i] = nonzero(k.w[i]);
    }
    return k;
}

template <class N>
void image(const Program &p, const Step<Scalar<N>> &s, int64_t r, int64_t ado, Scalar<N> *y) {
    const int d = p.d, units = d * d;
    const Scalar<N> *x = s.x + r * ado;
    Scalar<N> *w = y + ado, *scratch = w + ado;
    if (p.has_diagonal) {
        const N rate = N::load(s.diagonal + r * N::size);
        for (int e = 0; e < units; ++e)
            fma(rate, N::load(x + e * N::size), N::zero()).store(y + e * N::size);
    } else {
        for (int e = 0; e < units; ++e)
            N::zero().store(y + e * N::size);
    }
    if (p.has_local)
        super<N>(p.local, s.table, x, d, y, scratch);
    for (int g = 0; g < p.n_group; ++g) {
        const Group &group = p.group[g];
        const Link *link = group.link + group.start[r], *end = group.link + group.start[r + 1];
        if (link == end)
            continue;
        gather<N>(group, link, end, s.table, s.x, ado, w);
        super<N>(group.super, s.table, w, d, y, scratch);
    }
}

template <class N> using Epilogue = decltype(&epilogue_masked<N>);

template <class N, bool HasB, bool HasC> Epilogue<N> epilogue_for(Acc accumulate) {
    switch (accumulate) {
    case Acc::add: return epilogue<N, HasB, HasC, 1>;
    case Acc::add_both: return epilogue<N, HasB, HasC, 2>;
    case Acc::init_both: return epilogue<N, HasB, HasC, 3>;
    default: return epilogue<N, HasB, HasC, 0>;
    }
}

template <class N> Epilogue<N> epilogue_for(const Step<Scalar<N>> &s) {
    const bool add = s.accumulate != Acc::off, both = add && s.accumulate != Acc::add;
    const bool plain = s.mode[A] == all && s.mode[B] != mixed && s.mode[C] != mixed &&
                       (!add || s.mode[W] == all) && (!both || s.mode[WX] == all);
    if (!plain)
        return epilogue_masked<N>;
    if (s.mode[B] == all)
        return s.mode[C] == all ? epilogue_for<N, true, true>(s.accumulate)
                                : epilogue_for<N, true, false>(s.accumulate);
    return s.mode[C] == all ? epilogue_for<N, false, true>(s.accumulate)
                            : epilogue_for<N, false, false>(s.accumulate);
}

template <class N>
void rows(const Program &p, const Step<Scalar<N>> &s, int64_t begin, int64_t end) {
    const Weights<N> k = unpack<N>(s.weights);
    const Epilogue<N> finish = epilogue_for<N>(s);
    const int units = p.d * p.d;
    const int64_t ado = int64_t{units} * N::size;
    auto top = N::vec::load(s.top), sum = N::vec::load(s.sum);
    for (int64_t r = begin; r < end; ++r) {
        if (s.mode[A] != none)
            image<N>(p, s, r, ado, s.scratch);
        finish(s, k, s.scratch, s.x + r * ado, s.old + r * ado, s.out + r * ado, s.acc + r * ado,
               units, top, sum);
    }
    top.store(s.top);
    sum.store(s.sum);
}

} // namespace
