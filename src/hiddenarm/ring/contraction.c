/* Sums of products: a small Einstein-sum interpreter for many terms at once
 *
 *     run_plan(plan, batch, out, operands)
 *
 * adds every term of a plan to `out`. All arrays are contiguous words; each holds `batch` rows, and the plan speaks of
 * one row. The plan is a flat array of signed words:
 *
 *     row length of out, number of operands, row length of each operand, number of terms, then for each term
 *         sign (+1 or -1), number of indices n, number of factors f,
 *         size of each index [n],
 *         offset in out, stride of each index in out [n]
 *         f times: operand, offset, stride of each index [n]
 *
 * An index with stride 0 in `out` is summed over. The last index is the inner loop: factors that do not depend on it are
 * multiplied once, outside. Everything a plan could reach is checked against the row lengths before any word is read.
 */
#include "contraction.h"

#define MAX_INDICES 8
#define MAX_FACTORS 4

typedef struct {
    int64_t sign;
    int indices, factors;
    int64_t size[MAX_INDICES];
    int64_t out_offset, out_stride[MAX_INDICES];
    int64_t operand[MAX_FACTORS], offset[MAX_FACTORS], stride[MAX_FACTORS][MAX_INDICES];
} term_t;

/* The inner loop over `count` steps; `p[k]` advances by `s[k]`. */
static uint64_t sum_of_products(int factors, const uint64_t **p, const int64_t *s, int64_t count)
{
    uint64_t total = 0;
    switch (factors) {
    case 0: return (uint64_t)count;
    case 1:
        for (int64_t i = 0; i < count; i++) total += p[0][i * s[0]];
        return total;
    case 2:
        if (s[0] == 1 && s[1] == 1) {
            for (int64_t i = 0; i < count; i++) total += p[0][i] * p[1][i];
            return total;
        }
        for (int64_t i = 0; i < count; i++) total += p[0][i * s[0]] * p[1][i * s[1]];
        return total;
    case 3:
        for (int64_t i = 0; i < count; i++) total += p[0][i * s[0]] * p[1][i * s[1]] * p[2][i * s[2]];
        return total;
    default:
        for (int64_t i = 0; i < count; i++)
            total += p[0][i * s[0]] * p[1][i * s[1]] * p[2][i * s[2]] * p[3][i * s[3]];
        return total;
    }
}

static void add_products(uint64_t *out, int64_t out_stride, uint64_t scale, int factors, const uint64_t **p,
                         const int64_t *s, int64_t count)
{
    switch (factors) {
    case 0:
        for (int64_t i = 0; i < count; i++) out[i * out_stride] += scale;
        return;
    case 1:
        if (out_stride == 1 && s[0] == 1) {
            for (int64_t i = 0; i < count; i++) out[i] += scale * p[0][i];
            return;
        }
        for (int64_t i = 0; i < count; i++) out[i * out_stride] += scale * p[0][i * s[0]];
        return;
    case 2:
        if (out_stride == 1 && s[0] == 1 && s[1] == 1) { /* whole rows: the most words of a lesson */
            const uint64_t *restrict x = p[0], *restrict y = p[1];
            if (scale == 1)
                for (int64_t i = 0; i < count; i++) out[i] += x[i] * y[i];
            else if (scale == UINT64_MAX)
                for (int64_t i = 0; i < count; i++) out[i] -= x[i] * y[i];
            else
                for (int64_t i = 0; i < count; i++) out[i] += scale * x[i] * y[i];
            return;
        }
        for (int64_t i = 0; i < count; i++) out[i * out_stride] += scale * p[0][i * s[0]] * p[1][i * s[1]];
        return;
    case 3:
        for (int64_t i = 0; i < count; i++)
            out[i * out_stride] += scale * p[0][i * s[0]] * p[1][i * s[1]] * p[2][i * s[2]];
        return;
    default:
        for (int64_t i = 0; i < count; i++)
            out[i * out_stride] += scale * p[0][i * s[0]] * p[1][i * s[1]] * p[2][i * s[2]] * p[3][i * s[3]];
        return;
    }
}

/* One term on one row: an odometer over all indices but the last. */
static void add_term(const term_t *t, uint64_t *out, const uint64_t **rows)
{
    const int outer = t->indices - 1;
    const int last = outer;
    const int64_t count = t->size[last];
    int64_t at[MAX_INDICES] = {0};
    int64_t out_at = t->out_offset, position[MAX_FACTORS];
    for (int k = 0; k < t->factors; k++) position[k] = t->offset[k];
    for (int i = 0; i < t->indices; i++)
        if (t->size[i] == 0) return;
    for (;;) {
        uint64_t scale = (uint64_t)t->sign;
        const uint64_t *p[MAX_FACTORS];
        int64_t s[MAX_FACTORS];
        int inner = 0;
        for (int k = 0; k < t->factors; k++) {
            const uint64_t *word = rows[t->operand[k]] + position[k];
            if (t->stride[k][last] == 0) {
                scale *= *word;
            } else {
                p[inner] = word;
                s[inner++] = t->stride[k][last];
            }
        }
        if (t->out_stride[last] == 0)
            out[out_at] += scale * sum_of_products(inner, p, s, count);
        else
            add_products(out + out_at, t->out_stride[last], scale, inner, p, s, count);
        int i = outer - 1;
        for (; i >= 0; i--) {
            if (++at[i] < t->size[i]) {
                out_at += t->out_stride[i];
                for (int k = 0; k < t->factors; k++) position[k] += t->stride[k][i];
                break;
            }
            at[i] = 0; /* back by the furthest step, which was checked to be one */
            out_at -= t->out_stride[i] * (t->size[i] - 1);
            for (int k = 0; k < t->factors; k++) position[k] -= t->stride[k][i] * (t->size[i] - 1);
        }
        if (i < 0) return;
    }
}

/* Whether offset plus the furthest steps leaves a row. */
static int reaches_beyond(int64_t offset, const int64_t *stride, const int64_t *size, int indices, int64_t row)
{
    int64_t furthest = offset, step;
    for (int i = 0; i < indices; i++) {
        if (stride[i] < 0 || size[i] < 0) return 1;
        if (size[i] == 0) return 0;
        if (__builtin_mul_overflow(stride[i], size[i] - 1, &step)) return 1;
        if (__builtin_add_overflow(furthest, step, &furthest)) return 1;
    }
    return offset < 0 || furthest >= row;
}

/* Reads one term; returns the words consumed, or -1 if the plan is malformed. */
static int64_t read_term(const int64_t *plan, int64_t left, term_t *t, int64_t out_row, const int64_t *row, int operands)
{
    if (left < 3) return -1;
    t->sign = plan[0];
    if (plan[1] < 1 || plan[1] > MAX_INDICES || plan[2] < 1 || plan[2] > MAX_FACTORS) return -1;
    t->indices = (int)plan[1];
    t->factors = (int)plan[2];
    const int n = t->indices;
    const int64_t needed = 3 + n + 1 + n + (int64_t)t->factors * (2 + n);
    if (left < needed) return -1;
    const int64_t *p = plan + 3;
    for (int i = 0; i < n; i++) t->size[i] = *p++;
    t->out_offset = *p++;
    for (int i = 0; i < n; i++) t->out_stride[i] = *p++;
    if (reaches_beyond(t->out_offset, t->out_stride, t->size, n, out_row)) return -1;
    for (int k = 0; k < t->factors; k++) {
        t->operand[k] = *p++;
        t->offset[k] = *p++;
        for (int i = 0; i < n; i++) t->stride[k][i] = *p++;
        if (t->operand[k] < 0 || t->operand[k] >= operands) return -1;
        if (reaches_beyond(t->offset[k], t->stride[k], t->size, n, row[t->operand[k]])) return -1;
    }
    return needed;
}

static int holds(int64_t row, int64_t batch, int64_t length)
{
    int64_t words;
    return row >= 0 && batch >= 0 && !__builtin_mul_overflow(row, batch, &words) && words == length;
}

int run_plan(const int64_t *plan, int64_t length, int64_t batch, uint64_t *out, int64_t out_length,
             const operand_t *operand, int operands)
{
    int64_t row[MAX_OPERANDS];
    const int64_t *p = plan;
    if (operands > MAX_OPERANDS || length < 3 + operands || p[1] != operands) return -1;
    const int64_t out_row = *p++;
    p++;
    if (!holds(out_row, batch, out_length)) return -1;
    for (int k = 0; k < operands; k++) {
        row[k] = *p++;
        if (!holds(row[k], batch, operand[k].length)) return -1;
    }
    const int64_t terms = *p++;
    for (int64_t index = 0; index < terms; index++) {
        term_t term;
        const int64_t used = read_term(p, length - (p - plan), &term, out_row, row, operands);
        if (used < 0) return -1;
        p += used;
        for (int64_t b = 0; b < batch && out_row; b++) {
            const uint64_t *rows[MAX_OPERANDS];
            for (int k = 0; k < operands; k++) rows[k] = operand[k].words + b * row[k];
            add_term(&term, out + b * out_row, rows);
        }
    }
    return terms < 0 || p - plan != length ? -1 : 0;
}
