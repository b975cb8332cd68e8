// Everything that needs no generator: linear combinations, reductions, chosen elements.
//
// Arrays are [element][column], a column being a member, and threads take columns side by side, so
// neighbours in a warp are neighbours in memory. What a column gives depends on no other one.
//
// A reduction sums chunks of HD_CHUNK elements, each by HD_LEAVES threads and then a tree, and
// afterwards the sums of chunks in the same way: one order, whatever the card and the company.
#define HD_COMBINED 8   // arrays in one pass
#define HD_LEAVES 32    // threads of a column
#define HD_CHUNK 2048   // elements of a column in a block
#define HD_MOST 256     // threads of a block

HD_KERNEL void combine(num *out, const num *x0, const num *x1, const num *x2, const num *x3,
                       const num *x4, const num *x5, const num *x6, const num *x7,
                       const wide *weights, hd_long count, hd_long length, hd_long members) {
    const hd_long at = HD_BLOCK * HD_THREADS + HD_THREAD;
    if (at >= length * members) return;
    const num *const arrays[HD_COMBINED] = {x0, x1, x2, x3, x4, x5, x6, x7};
    num total{};
    for (int k = 0; k < HD_COMBINED; ++k) {
        if (k >= count) break;
        const num weight = narrow(weights[k * members + at % members]);
        if (!is_zero(weight)) total = mac(weight, arrays[k][at], total);
    }
    out[at] = total;
}

// Which elements of which column a thread of a reduction takes.
struct Share {
    hd_long column, chunk, leaf, begin, end;
};
HD_INLINE Share share_of(hd_long length, hd_long columns, hd_long lanes) {
    const hd_long tiles = (columns + lanes - 1) / lanes, chunk = HD_BLOCK / tiles;
    const hd_long leaf = HD_THREAD / lanes, stop = (chunk + 1) * HD_CHUNK;
    const hd_long column = HD_BLOCK % tiles * lanes + HD_THREAD % lanes;
    const hd_long end = column < columns ? (stop < length ? stop : length) : 0;
    return {column, chunk, leaf, chunk * HD_CHUNK + leaf, end};
}

// The sum of what the leaves of each column hold, at leaf 0.
template <class T> HD_INLINE T tree(T own, T *tile, hd_long leaf, hd_long lanes) {
    tile[HD_THREAD] = own;
    for (hd_long half = HD_LEAVES / 2; half > 0; half /= 2) {
        HD_BARRIER();
        if (leaf < half)
            tile[HD_THREAD] = plus(tile[HD_THREAD], tile[HD_THREAD + half * lanes]);
    }
    return tile[HD_THREAD];
}

HD_KERNEL void dot(const num *x, const num *y, wide *sums, hd_long length, hd_long members,
                   hd_long lanes, hd_long columns, hd_long shift) {
    HD_SHARED(wide, tile, HD_MOST);
    const Share s = share_of(length, members, lanes);
    wide own{};
    for (hd_long e = s.begin; e < s.end; e += HD_LEAVES) {
        const hd_long at = e * members + s.column;
        own = mac(conjugate(widen(x[at])), widen(y[at]), own);
    }
    own = tree(own, tile, s.leaf, lanes);
    if (s.leaf == 0 && s.column < members) sums[s.chunk * columns + shift + s.column] = own;
}

HD_KERNEL void add_up(const wide *parts, wide *sums, hd_long length, hd_long columns, hd_long lanes) {
    HD_SHARED(wide, tile, HD_MOST);
    const Share s = share_of(length, columns, lanes);
    wide own{};
    for (hd_long e = s.begin; e < s.end; e += HD_LEAVES)
        own = plus(own, parts[e * columns + s.column]);
    own = tree(own, tile, s.leaf, lanes);
    if (s.leaf == 0 && s.column < columns) sums[s.chunk * columns + s.column] = own;
}

// The largest |error| / (atol + rtol max(|x|, |y|)) of each chunk; x and y are read if rtol is not 0.
HD_KERNEL void largest(const num *error, const num *x, const num *y, Peak *peaks, double atol,
                       double rtol, hd_long length, hd_long members, hd_long lanes) {
    HD_SHARED(Peak, tile, HD_MOST);
    const Share s = share_of(length, members, lanes);
    Peak own{};
    for (hd_long e = s.begin; e < s.end; e += HD_LEAVES) {
        const hd_long at = e * members + s.column;
        double allowed = atol;
        if (rtol != 0) {
            const Peak first = {size_of(widen(x[at]))}, second = {size_of(widen(y[at]))};
            allowed = mac(rtol, plus(first, second).value, atol);
        }
        own = plus(Peak{size_of(widen(error[at])) / allowed}, own);
    }
    own = tree(own, tile, s.leaf, lanes);
    if (s.leaf == 0 && s.column < members) peaks[s.chunk * members + s.column] = own;
}

HD_KERNEL void top(const Peak *parts, Peak *peaks, hd_long length, hd_long columns, hd_long lanes) {
    HD_SHARED(Peak, tile, HD_MOST);
    const Share s = share_of(length, columns, lanes);
    Peak own{};
    for (hd_long e = s.begin; e < s.end; e += HD_LEAVES)
        own = plus(parts[e * columns + s.column], own);
    own = tree(own, tile, s.leaf, lanes);
    if (s.leaf == 0 && s.column < columns) peaks[s.chunk * columns + s.column] = own;
}

HD_KERNEL void gather(const num *x, const hd_long *elements, num *buffer, hd_long count,
                      hd_long members) {
    const hd_long at = HD_BLOCK * HD_THREADS + HD_THREAD;
    if (at < count * members) buffer[at] = x[elements[at / members] * members + at % members];
}

HD_KERNEL void scatter(num *x, const hd_long *elements, const num *buffer, hd_long count,
                       hd_long members) {
    const hd_long at = HD_BLOCK * HD_THREADS + HD_THREAD;
    if (at < count * members) x[elements[at / members] * members + at % members] = buffer[at];
}
