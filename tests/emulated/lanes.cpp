// The vector layer, lane by lane, against the definition of each operation on single numbers.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "vec.hpp"

namespace {

int wrong = 0;

template <class T> bool same(T a, T b) {
    return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

// Numbers at which operations differ from their neighbours, numbers of any bits, ordinary ones.
template <class T, class Bits> std::vector<T> numbers(std::mt19937_64 &random) {
    using L = std::numeric_limits<T>;
    std::vector<T> all{T(0),         T(1),           T(3),          L::infinity(), L::quiet_NaN(),
                       L::max(),     L::min(),       L::min() / 3,  L::denorm_min(),
                       L::epsilon(), 1 + L::epsilon(), 1 - L::epsilon()};
    for (int i = 0; i < 60; ++i) {
        const Bits bits = static_cast<Bits>(random());
        T any;
        std::memcpy(&any, &bits, sizeof any);
        all.push_back(any);
        all.push_back(std::uniform_real_distribution<T>(T(0.5), T(2))(random));
    }
    for (size_t i = all.size(); i-- > 0;)
        all.push_back(-all[i]);
    return all;
}

template <class V> struct Lanes {
    using T = typename V::scalar;
    alignas(64) T a[V::lanes], b[V::lanes], c[V::lanes];

    template <class Wanted> void check(const char *name, V got, Wanted wanted) const {
        alignas(64) T lanes[V::lanes];
        got.store(lanes);
        for (int i = 0; i < V::lanes; ++i)
            if (const T want = wanted(a[i], b[i], c[i]); !same(lanes[i], want) && ++wrong < 20)
                std::printf("%s, lane %d of %d: (%a, %a, %a) gives %a, not %a\n", name, i, V::lanes,
                            double(a[i]), double(b[i]), double(c[i]), double(lanes[i]),
                            double(want));
    }

    void check_all() const {
        const V x = V::load(a), y = V::load(b), z = V::load(c);
        check("load", x, [](T p, T, T) { return p; });
        check("set1", V::set1(a[0]), [&](T, T, T) { return a[0]; });
        check("fma", fma(x, y, z), [](T p, T q, T r) { return std::fma(p, q, r); });
        check("fnma", fnma(x, y, z), [](T p, T q, T r) { return std::fma(-p, q, r); });
        check("add", add(x, y), [](T p, T q, T) { return p + q; });
        check("div", div(x, y), [](T p, T q, T) { return p / q; });
        check("max", max(x, y), [](T p, T q, T) { return p > q ? p : q; });
        check("sqrt", sqrt(x), [](T p, T, T) { return std::sqrt(p); });
        check("abs", abs(x), [](T p, T, T) { return std::fabs(p); });
        check("select", select(nonzero(x), y, z), [](T p, T q, T r) { return p != 0 ? q : r; });
        check("either", select(either(nonzero(x), nonzero(y)), z, x),
              [](T p, T q, T r) { return p != 0 || q != 0 ? r : p; });
    }
};

template <class V, class Bits> void check_register() {
    std::mt19937_64 random(20);
    const auto all = numbers<typename V::scalar, Bits>(random);
    Lanes<V> lanes;
    for (int trial = 0; trial < 20000; ++trial) {
        for (int i = 0; i < V::lanes; ++i) {
            lanes.a[i] = all[random() % all.size()], lanes.b[i] = all[random() % all.size()];
            lanes.c[i] = all[random() % all.size()];
        }
        lanes.check_all();
    }
}

} // namespace

int main(int count, char **arguments) {
    if (count > 1) { // bytes by which an address is off
        alignas(64) static double memory[16] = {};
        F64::load(memory + std::atoi(arguments[1]) / 8).store(memory);
        return 0;
    }
    check_register<F64, uint64_t>();
    check_register<F32, uint32_t>();
    std::printf("%d and %d lanes, %d wrong\n", F64::lanes, F32::lanes, wrong);
    return wrong != 0;
}
