// What becomes of y = G x: out = a y + b x + c old, acc (+)= wx x + w out, largest elements of out.
#pragma once
#include "number.hpp"
#include "program.hpp"

namespace {

using namespace heomdask;

template <class N> HD_INLINE N weight(const Step<Scalar<N>> &s, Weight which, int h) {
    return N::load(s.weights + which * N::size + h);
}

// Any mixture of zero and other weights: a weight of zero leaves the member untouched. Part h of
// the block, n units; pointers are to that part.
template <class N>
void epilogue_masked(const Step<Scalar<N>> &s, int h, const Scalar<N> *y, const Scalar<N> *x,
                     const Scalar<N> *old, Scalar<N> *out, Scalar<N> *acc, int n) {
    auto top = s.top ? N::vec::load(s.top + h) : N::zero().re,
         sum = s.top ? N::vec::load(s.sum + h) : top;
    const auto add_weighted = [&](Weight which, const Scalar<N> *from, N to) HD_LAMBDA {
        if (s.mode[which] == none)
            return to;
        const N w = weight<N>(s, which, h);
        return select(nonzero(w), fma(w, N::load(from), to), to);
    };
    for (int e = 0; e < n; ++e) {
        const int64_t at = int64_t{e} * N::size;
        N t = add_weighted(A, y + at, N::zero());
        t = add_weighted(B, x + at, t);
        t = add_weighted(C, old + at, t);
        if (s.accumulate != Acc::off) {
            N total = s.accumulate == Acc::init_both ? N::zero() : N::load(acc + at);
            if (s.accumulate != Acc::add)
                total = add_weighted(WX, x + at, total);
            t.store(out + at);
            add_weighted(W, out + at, total).store(acc + at);
        } else {
            t.store(out + at);
        }
        top = max(top, rank(t));
        sum = add(sum, rank(t));
    }
    if (s.top)
        top.store(s.top + h), sum.store(s.sum + h);
}

// Whether it goes without masks: no weight is zero for some members only, and acc takes something.
template <class T> HD_INLINE bool is_plain(const Step<T> &s) {
    const bool add = s.accumulate != Acc::off, both = add && s.accumulate != Acc::add;
    return s.mode[A] == all && s.mode[B] != mixed && s.mode[C] != mixed &&
           (!add || s.mode[W] == all) && (!both || s.mode[WX] == all);
}

// The common case: every weight of every member in use is other than zero. The largest element is
// always found: it costs less than what is waited for, and half the variants less to compile.
template <class N, bool HasB, bool HasC, Acc ACC>
void epilogue(const Step<Scalar<N>> &s, int h, const Scalar<N> *y, const Scalar<N> *x,
              const Scalar<N> *old, Scalar<N> *out, Scalar<N> *acc, int n) {
    using V = typename N::vec;
    const N a = weight<N>(s, A, h), b = weight<N>(s, B, h), c = weight<N>(s, C, h);
    const N wx = weight<N>(s, WX, h), w = weight<N>(s, W, h);
    const auto one = [&](int e, V &highest, V &total) HD_LAMBDA {
        const int64_t at = int64_t{e} * N::size;
        const N own = N::load(x + at); // once: the compiler must assume that out overlaps
        N t = fma(a, N::load(y + at), N::zero());
        if constexpr (HasB)
            t = fma(b, own, t);
        if constexpr (HasC)
            t = fma(c, N::load(old + at), t);
        t.store(out + at);
        if constexpr (ACC != Acc::off) {
            N more = ACC == Acc::init_both ? N::zero() : N::load(acc + at);
            if constexpr (ACC != Acc::add)
                more = fma(wx, own, more);
            fma(w, t, more).store(acc + at);
        }
        const V size = rank(t);
        highest = max(highest, size);
        total = add(total, size);
    };
    const V zero = V::set1(0);
    V top0 = s.top ? V::load(s.top + h) : zero, sum0 = s.top ? V::load(s.sum + h) : zero;
    V top1 = top0, top2 = top0, sum1 = zero, sum2 = zero; // three chains
    int e = 0;
    for (; e + 3 <= n; e += 3)
        one(e, top0, sum0), one(e + 1, top1, sum1), one(e + 2, top2, sum2);
    for (; e < n; ++e)
        one(e, top0, sum0);
    if (s.top) {
        max(top0, max(top1, top2)).store(s.top + h);
        add(sum0, add(sum1, sum2)).store(s.sum + h);
    }
}

// The same for one member, register by register as y comes: it need not be stored. A b or c of 0
// needs no variant of its own: with x in the place of old, what is not finite is not so in y.
template <class N> struct Ending {
    using T = Scalar<N>;
    N a, b, c, wx, w;
    Acc accumulate;
    typename N::vec highest, total;

    explicit Ending(const Step<T> &s)
        : a(of(s, A)), b(of(s, B)), c(of(s, C)), wx(of(s, WX)), w(of(s, W)),
          accumulate(s.accumulate), highest(N::zero().re), total(N::zero().re) {}

    static N of(const Step<T> &s, Weight which) {
        return s.mode[which] == none ? N::zero() : weight<N>(s, which, 0);
    }
    HD_INLINE void operator()(N y, const T *x, const T *old, T *out, T *acc) {
        const N own = N::load(x);
        const N t = fma(c, N::load(old), fma(b, own, fma(a, y, N::zero())));
        t.store(out);
        if (accumulate != Acc::off) {
            N more = accumulate == Acc::init_both ? N::zero() : N::load(acc);
            if (accumulate != Acc::add)
                more = fma(wx, own, more);
            fma(w, t, more).store(acc);
        }
        highest = max(highest, rank(t));
        total = add(total, rank(t));
    }
    void report(const Step<T> &s) const {
        using V = typename N::vec;
        if (s.top)
            max(V::load(s.top), highest).store(s.top), add(V::load(s.sum), total).store(s.sum);
    }
};

} // namespace
