/* The inner loops of sums of products: in plain C, and with AVX2 where the processor has it, which is found out when the
 * program runs. `benchmarks/contraction.py` has both; with AVX-512 they were not faster.
 *
 * AVX2 has no product of 64-bit words. With x = x1 2^32 + x0, and y alike, modulo 2^64
 *
 *     x y = x0 y0 + 2^32 (x1 y0 + x0 y1)
 *
 * and a sum of products adds up both parts on their own and shifts once, at the end.
 */
#include "loops.h"

/* ---- Plain C */

static uint64_t dot(const uint64_t *x, const uint64_t *y, int64_t count)
{
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += x[i] * y[i];
    return total;
}

static void add_scaled(uint64_t *out, uint64_t scale, const uint64_t *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] += scale * x[i];
}

static void add_products(uint64_t *out, uint64_t scale, const uint64_t *x, const uint64_t *y, int64_t count)
{
    if (scale == 1)
        for (int64_t i = 0; i < count; i++) out[i] += x[i] * y[i];
    else if (scale == UINT64_MAX)
        for (int64_t i = 0; i < count; i++) out[i] -= x[i] * y[i];
    else
        for (int64_t i = 0; i < count; i++) out[i] += scale * x[i] * y[i];
}

static void add_rows(uint64_t *out, int64_t width, const uint64_t *scale, const uint64_t *rows, int64_t stride,
                     int64_t count)
{
    for (int64_t j = 0; j < count; j++) add_scaled(out, scale[j], rows + j * stride, width);
}

static void add_outer(uint64_t *out, int64_t stride, const uint64_t *scale, int64_t count, const uint64_t *x,
                      int64_t width)
{
    for (int64_t j = 0; j < count; j++) add_scaled(out + j * stride, scale[j], x, width);
}

const loops_t PORTABLE_LOOPS = {dot, add_scaled, add_products, add_rows, add_outer};

/* ---- AVX2 */

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#define WITH_AVX2 __attribute__((target("avx2")))
#define LANES 4
#define TILE 4 /* vectors of a row whose sums stay in registers */
#define KEPT 5 /* vectors of a row that stay in registers themselves */

typedef __m256i four_t;

WITH_AVX2 static inline four_t load(const uint64_t *x) { return _mm256_loadu_si256((const four_t *)x); }

WITH_AVX2 static inline void store(uint64_t *out, four_t x) { _mm256_storeu_si256((four_t *)out, x); }

WITH_AVX2 static inline four_t high(four_t x) { return _mm256_srli_epi64(x, 32); }

/* A sum of products: of the low halves, and of the halves that cross. */
typedef struct {
    four_t low, cross;
} sum_t;

WITH_AVX2 static inline sum_t nothing(void) { return (sum_t){_mm256_setzero_si256(), _mm256_setzero_si256()}; }

/* sum + x * y, with the upper half of y given too. */
WITH_AVX2 static inline sum_t plus(sum_t sum, four_t x, four_t y, four_t y_high)
{
    const four_t crossed = _mm256_add_epi64(_mm256_mul_epu32(high(x), y), _mm256_mul_epu32(x, y_high));
    return (sum_t){_mm256_add_epi64(sum.low, _mm256_mul_epu32(x, y)), _mm256_add_epi64(sum.cross, crossed)};
}

WITH_AVX2 static inline four_t whole(sum_t sum)
{
    return _mm256_add_epi64(sum.low, _mm256_slli_epi64(sum.cross, 32));
}

WITH_AVX2 static inline four_t times(four_t x, four_t y) { return whole(plus(nothing(), x, y, high(y))); }

WITH_AVX2 static uint64_t dot_avx2(const uint64_t *x, const uint64_t *y, int64_t count)
{
    sum_t sum = nothing();
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const four_t ys = load(y + i);
        sum = plus(sum, load(x + i), ys, high(ys));
    }
    uint64_t part[LANES];
    store(part, whole(sum));
    return part[0] + part[1] + part[2] + part[3] + dot(x + i, y + i, count - i);
}

WITH_AVX2 static void add_scaled_avx2(uint64_t *out, uint64_t scale, const uint64_t *x, int64_t count)
{
    const four_t by = _mm256_set1_epi64x((int64_t)scale);
    int64_t i = 0;
    if (scale == 1)
        for (; i + LANES <= count; i += LANES) store(out + i, _mm256_add_epi64(load(out + i), load(x + i)));
    else if (scale == UINT64_MAX)
        for (; i + LANES <= count; i += LANES) store(out + i, _mm256_sub_epi64(load(out + i), load(x + i)));
    else
        for (; i + LANES <= count; i += LANES) store(out + i, _mm256_add_epi64(load(out + i), times(load(x + i), by)));
    add_scaled(out + i, scale, x + i, count - i);
}

WITH_AVX2 static void add_products_avx2(uint64_t *out, uint64_t scale, const uint64_t *x, const uint64_t *y,
                                        int64_t count)
{
    const four_t by = _mm256_set1_epi64x((int64_t)scale);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const four_t before = load(out + i), product = times(load(x + i), load(y + i));
        if (scale == 1)
            store(out + i, _mm256_add_epi64(before, product));
        else if (scale == UINT64_MAX)
            store(out + i, _mm256_sub_epi64(before, product));
        else
            store(out + i, _mm256_add_epi64(before, times(product, by)));
    }
    _mm256_zeroupper(); /* gcc leaves it out before a call that ends a function: what follows would run at a fifth */
    add_products(out + i, scale, x + i, y + i, count - i);
}

/* The columns of `vectors` vectors: their sums stay in registers while all rows go by. */
WITH_AVX2 static inline __attribute__((always_inline)) void add_tile(uint64_t *out, int vectors, const uint64_t *scale,
                                                                     const uint64_t *rows, int64_t stride, int64_t count)
{
    sum_t sum[TILE];
    for (int v = 0; v < vectors; v++) sum[v] = nothing();
    for (int64_t j = 0; j < count; j++) {
        const four_t by = _mm256_set1_epi64x((int64_t)scale[j]), by_high = high(by);
        for (int v = 0; v < vectors; v++) sum[v] = plus(sum[v], load(rows + j * stride + v * LANES), by, by_high);
    }
    for (int v = 0; v < vectors; v++)
        store(out + v * LANES, _mm256_add_epi64(load(out + v * LANES), whole(sum[v])));
}

WITH_AVX2 static void add_rows_avx2(uint64_t *out, int64_t width, const uint64_t *scale, const uint64_t *rows,
                                    int64_t stride, int64_t count)
{
    int64_t k = 0;
    for (; k + TILE * LANES <= width; k += TILE * LANES) add_tile(out + k, TILE, scale, rows + k, stride, count);
    for (; k + LANES <= width; k += LANES) add_tile(out + k, 1, scale, rows + k, stride, count);
    if (k < width) add_rows(out + k, width - k, scale, rows + k, stride, count);
}

/* The columns of `vectors` vectors: those of the row stay in registers while the scales go by. */
WITH_AVX2 static inline __attribute__((always_inline)) void add_outer_tile(uint64_t *out, int64_t stride,
                                                                           const uint64_t *scale, int64_t count,
                                                                           const uint64_t *x, int vectors)
{
    four_t row[KEPT], row_high[KEPT];
    for (int v = 0; v < vectors; v++) {
        row[v] = load(x + v * LANES);
        row_high[v] = high(row[v]);
    }
    for (int64_t j = 0; j < count; j++, out += stride) {
        const four_t by = _mm256_set1_epi64x((int64_t)scale[j]);
        for (int v = 0; v < vectors; v++) {
            const four_t product = whole(plus(nothing(), by, row[v], row_high[v]));
            store(out + v * LANES, _mm256_add_epi64(load(out + v * LANES), product));
        }
    }
}

WITH_AVX2 static void add_outer_avx2(uint64_t *out, int64_t stride, const uint64_t *scale, int64_t count,
                                     const uint64_t *x, int64_t width)
{
    int64_t k = 0;
    for (; k + KEPT * LANES <= width; k += KEPT * LANES) add_outer_tile(out + k, stride, scale, count, x + k, KEPT);
    for (; k + LANES <= width; k += LANES) add_outer_tile(out + k, stride, scale, count, x + k, 1);
    if (k < width) add_outer(out + k, stride, scale, count, x + k, width - k);
}

static const loops_t AVX2_LOOPS = {dot_avx2, add_scaled_avx2, add_products_avx2, add_rows_avx2, add_outer_avx2};

const loops_t *fastest_loops(void) { return __builtin_cpu_supports("avx2") ? &AVX2_LOOPS : &PORTABLE_LOOPS; }

#else

const loops_t *fastest_loops(void) { return &PORTABLE_LOOPS; }

#endif
