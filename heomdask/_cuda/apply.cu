// The generator: out <- a G x + b x + c out, then acc += w out, in one pass over the rows.
//
// Macros: HD_LEVELS, the dimension d; HD_MIXES, whether any operator is more than diagonal;
// HD_NAMED, whether there are named scalars; HD_WIDE_SUM, whether acc is in double precision
// whatever x is.
//
// A state is [ADO][element][member]. A thread works on one element of one ADO of one member, above
// 16 levels on HD_PER of them. A block holds `ados` whole ADOs of `lanes` members side by side, so
// that operators act within a block: what they mix lies in shared memory.
#define HD_ELEMENTS (HD_LEVELS * HD_LEVELS)
#define HD_MOST 256  // threads of a block
#define HD_TILE (HD_ELEMENTS > HD_MOST ? HD_ELEMENTS : HD_MOST)
#define HD_PER ((HD_ELEMENTS + HD_MOST - 1) / HD_MOST)

#define HD_NO_ROW 0x7fffffff

enum { ABSENT, DIAGONAL, DENSE };

struct alignas(8) Link {  // reads the ADO `col`, times the coefficient in `row` of the table
    int col, row;
};
struct Term {  // L (sum of coefficient X) R, transposed or not; offsets are rows of the table
    int own, own_stop;  // coefficients of the ADO itself
    int links_stop;     // its links are those with smaller rows that no term before had
    int left, left_kind, left_site, right, right_kind, right_site;  // site of a projector, or -1
    int transposed;
};

#if HD_WIDE_SUM
typedef wide sum;
HD_INLINE sum summand(wide w, num value, sum before) { return mac(w, widen(value), before); }
#else
typedef num sum;
HD_INLINE sum summand(wide w, num value, sum before) { return mac(narrow(w), value, before); }
#endif

struct Member {  // what the threads of one member read
    const num *x, *table;
    const int *name_of;
    const double *named;
    hd_long members, m;
};

HD_INLINE num entry(const Member &s, hd_long row) { return s.table[row * s.members + s.m]; }

HD_INLINE num coefficient(const Member &s, int row) {
    num value = entry(s, row);
#if HD_NAMED
    if (s.name_of[row] >= 0)
        value = scaled((HD_REAL)s.named[s.name_of[row] * s.members + s.m], value);
#endif
    return value;
}

HD_INLINE num element(const Member &s, hd_long n, hd_long e) {
    return s.x[(n * HD_ELEMENTS + e) * s.members + s.m];
}

// One element of the sum over the shifts of a term.
HD_INLINE num mixed(const Member &s, const Term &t, hd_long n, const Link *link, const Link *stop,
                    hd_long e) {
    num w{};
    for (int row = t.own; row < t.own_stop; ++row)
        w = mac(coefficient(s, row), element(s, n, e), w);
    for (; link < stop; ++link)
        w = mac(coefficient(s, link->row), element(s, link->col, e), w);
    return w;
}

// The same between diagonal operators. It is 0 where one of them is: nothing is read there, and of a
// projector not even its own number.
HD_INLINE num between(const Member &s, const Term &t, hd_long n, const Link *link,
                      const Link *stop, hd_long i, hd_long j) {
    if ((t.left_site >= 0 && t.left_site != i) || (t.right_site >= 0 && t.right_site != j))
        return num{};
    num left{}, right{};
    if (t.left_kind == DIAGONAL && is_zero(left = entry(s, t.left + i))) return num{};
    if (t.right_kind == DIAGONAL && is_zero(right = entry(s, t.right + j))) return num{};
    num w = mixed(s, t, n, link, stop, i * HD_LEVELS + j);
    if (t.left_kind == DIAGONAL) w = times(left, w);
    if (t.right_kind == DIAGONAL) w = times(w, right);
    return w;
}

#if HD_MIXES
// Element (i, j) of L W and of W R; W is a tile with `lanes` members side by side.
HD_INLINE num from_left(const Member &s, int op, const num *w, hd_long lanes, hd_long i, hd_long j) {
    num v{};
    HD_UNROLL_BY_4 for (int a = 0; a < HD_LEVELS; ++a)
        v = mac(entry(s, op + i * HD_LEVELS + a), w[(a * HD_LEVELS + j) * lanes], v);
    return v;
}
HD_INLINE num from_right(const Member &s, int op, const num *w, hd_long lanes, hd_long i, hd_long j) {
    num v{};
    HD_UNROLL_BY_4 for (int b = 0; b < HD_LEVELS; ++b)
        v = mac(w[(i * HD_LEVELS + b) * lanes], entry(s, op + b * HD_LEVELS + j), v);
    return v;
}
#endif

HD_KERNEL void apply(const num *x, num *out, sum *acc, const wide *weights, const double *named,
                     const hd_long *start, const Link *links, const num *rates,
                     hd_long rate_members, const num *table, const int *name_of,
                     const Term *terms, hd_long n_terms, hd_long members, hd_long first,
                     hd_long stop, hd_long ados, hd_long lanes) {
    const hd_long tiles = (members + lanes - 1) / lanes, lane = HD_THREAD % lanes;
    const hd_long place = HD_THREAD / lanes, begin = place % HD_ELEMENTS;
    const hd_long n = first + HD_BLOCK / tiles * ados + place / HD_ELEMENTS;
    const hd_long m = HD_BLOCK % tiles * lanes + lane;
    const bool here = place < ados * HD_ELEMENTS && n < stop && m < members;
    const Member s = {x, table, name_of, named, members, m};
    const num a = here ? narrow(weights[m]) : num{};
    const bool works = here && !is_zero(a);
    num total[HD_PER];
    HD_UNROLL for (int r = 0; r < HD_PER; ++r) {
        const hd_long e = begin + r * HD_MOST;
        total[r] = num{};
        if (works && rates && e < HD_ELEMENTS)
            total[r] = times(rates[n * rate_members + (rate_members > 1 ? m : 0)], element(s, n, e));
    }
#if HD_MIXES
    HD_SHARED(num, tiles_of_block, 2 * HD_TILE);
    const hd_long corner = (place - begin) * lanes + lane;
    int turn = 0;
#endif
    const Link *link = works ? links + start[n] : links, *end = works ? links + start[n + 1] : links;
    int row = link < end ? link->row : HD_NO_ROW;  // of the next link
    for (hd_long k = 0; k < n_terms; ++k) {
        const Term t = terms[k];
        const Link *const mine = link;
        for (; row < t.links_stop; row = link < end ? link->row : HD_NO_ROW) ++link;
#if HD_MIXES
        if (t.left_kind == DENSE || t.right_kind == DENSE) {
            num *w = tiles_of_block + turn * HD_TILE + corner;
            HD_UNROLL for (int r = 0; r < HD_PER; ++r) {
                const hd_long e = begin + r * HD_MOST;
                if (!works || e >= HD_ELEMENTS) continue;
                const num value = mixed(s, t, n, mine, link, e);
                const bool turned = t.left_kind == DIAGONAL;
                w[e * lanes] = turned ? times(entry(s, t.left + e / HD_LEVELS), value) : value;
            }
            HD_BARRIER();
            turn = 1 - turn;
            if (t.left_kind == DENSE && t.right_kind == DENSE) {
                num *v = tiles_of_block + turn * HD_TILE + corner;
                HD_UNROLL for (int r = 0; r < HD_PER; ++r) {
                    const hd_long e = begin + r * HD_MOST;
                    if (works && e < HD_ELEMENTS)
                        v[e * lanes] =
                            from_left(s, t.left, w, lanes, e / HD_LEVELS, e % HD_LEVELS);
                }
                HD_BARRIER();
                turn = 1 - turn;
                w = v;
            }
            HD_UNROLL for (int r = 0; r < HD_PER; ++r) {
                const hd_long e = begin + r * HD_MOST;
                if (!works || e >= HD_ELEMENTS) continue;
                const hd_long i = t.transposed ? e % HD_LEVELS : e / HD_LEVELS;
                const hd_long j = t.transposed ? e / HD_LEVELS : e % HD_LEVELS;
                num v = t.right_kind == DENSE ? from_right(s, t.right, w, lanes, i, j)
                                              : from_left(s, t.left, w, lanes, i, j);
                if (t.right_kind == DIAGONAL) v = times(v, entry(s, t.right + j));
                total[r] = plus(total[r], v);
            }
            continue;
        }
#endif
        HD_UNROLL for (int r = 0; r < HD_PER; ++r) {
            const hd_long e = begin + r * HD_MOST;
            if (!works || e >= HD_ELEMENTS) continue;
            const hd_long i = t.transposed ? e % HD_LEVELS : e / HD_LEVELS;
            const hd_long j = t.transposed ? e / HD_LEVELS : e % HD_LEVELS;
            total[r] = plus(total[r], between(s, t, n, mine, link, i, j));
        }
    }
    if (!here) return;
    const num b = narrow(weights[members + m]), c = narrow(weights[2 * members + m]);
    const wide w = weights[3 * members + m];
    HD_UNROLL for (int r = 0; r < HD_PER; ++r) {
        const hd_long e = begin + r * HD_MOST, at = (n * HD_ELEMENTS + e) * members + m;
        if (e >= HD_ELEMENTS) continue;
        num value{};
        if (works) value = times(a, total[r]);
        if (!is_zero(b)) value = mac(b, x[at], value);
        if (!is_zero(c)) value = mac(c, out[at], value);
        out[at] = value;
        if (acc && !is_zero(w)) acc[at] = summand(w, value, acc[at]);
    }
}
