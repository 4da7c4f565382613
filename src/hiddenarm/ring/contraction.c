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
 * multiplied once, outside. A term that ends in a vector by a matrix, or in a column by a row (`kind_of`), has its last
 * two indices for an inner loop, so that sums, or the row, stay in registers. Where words lie side by side, `loops` does
 * the work. Everything that a plan could reach is checked against the row lengths before any word is read.
 */
#include "contraction.h"

#define MAX_INDICES 8
#define MAX_FACTORS 4
#define SCALES 64 /* of a vector by a matrix, at a time */

typedef struct {
    int64_t sign;
    int indices, factors;
    int64_t size[MAX_INDICES];
    int64_t out_offset, out_stride[MAX_INDICES];
    int64_t operand[MAX_FACTORS], offset[MAX_FACTORS], stride[MAX_FACTORS][MAX_INDICES];
} term_t;

/* Where the factors of a term stand: their words, and how far each step of the innermost loop takes them. Those that it
 * does not move are multiplied into `scale`. */
typedef struct {
    uint64_t scale;
    int factors;
    const uint64_t *at[MAX_FACTORS];
    int64_t stride[MAX_FACTORS];
} row_t;

static uint64_t product_at(const row_t *r, int64_t i)
{
    uint64_t product = 1;
    for (int k = 0; k < r->factors; k++) product *= r->at[k][i * r->stride[k]];
    return product;
}

static int side_by_side(const row_t *r)
{
    for (int k = 0; k < r->factors; k++)
        if (r->stride[k] != 1) return 0;
    return 1;
}

/* The innermost loop, where it is summed over. */
static uint64_t sum_of_products(const row_t *r, int64_t count, const loops_t *loops)
{
    uint64_t total = 0;
    if (r->factors == 0) return (uint64_t)count;
    if (r->factors == 2 && side_by_side(r)) return loops->dot(r->at[0], r->at[1], count);
    for (int64_t i = 0; i < count; i++) total += product_at(r, i);
    return total;
}

/* The innermost loop, where it goes along `out`. */
static void add_products(uint64_t *out, int64_t out_stride, const row_t *r, int64_t count, const loops_t *loops)
{
    if (out_stride == 1 && r->factors == 1 && side_by_side(r))
        loops->add_scaled(out, r->scale, r->at[0], count);
    else if (out_stride == 1 && r->factors == 2 && side_by_side(r))
        loops->add_products(out, r->scale, r->at[0], r->at[1], count);
    else
        for (int64_t i = 0; i < count; i++) out[i * out_stride] += r->scale * product_at(r, i);
}

static void add_row(const term_t *t, uint64_t *out, const uint64_t *const *word, const loops_t *loops)
{
    const int last = t->indices - 1;
    row_t row = {.scale = (uint64_t)t->sign, .factors = 0};
    for (int k = 0; k < t->factors; k++) {
        if (t->stride[k][last] == 0) {
            row.scale *= *word[k];
        } else {
            row.at[row.factors] = word[k];
            row.stride[row.factors++] = t->stride[k][last];
        }
    }
    if (t->out_stride[last] == 0)
        *out += row.scale * sum_of_products(&row, t->size[last], loops);
    else
        add_products(out, t->out_stride[last], &row, t->size[last], loops);
}

/* How a term is added: by its last index alone, or by the last two. */
typedef enum { ROW_BY_ROW, VECTOR_BY_MATRIX, COLUMN_BY_ROW } kind_t;

/* Which kind a term is; `moved` is the only factor that the last index moves, if it is of the last two kinds. There the
 * last index goes along both a row of that factor and `out`. The last index but one is summed over in VECTOR_BY_MATRIX,
 * and in COLUMN_BY_ROW it moves all but that factor. */
static kind_t kind_of(const term_t *t, int *moved)
{
    const int last = t->indices - 1;
    *moved = -1;
    if (last < 1 || t->out_stride[last] != 1) return ROW_BY_ROW;
    for (int k = 0; k < t->factors; k++) {
        if (t->stride[k][last] == 0) continue;
        if (*moved >= 0 || t->stride[k][last] != 1) return ROW_BY_ROW;
        *moved = k;
    }
    if (*moved < 0) return ROW_BY_ROW;
    if (t->out_stride[last - 1] == 0) return VECTOR_BY_MATRIX;
    return t->stride[*moved][last - 1] == 0 ? COLUMN_BY_ROW : ROW_BY_ROW;
}

/* The two innermost loops of a term of the last two kinds. */
static void add_two_loops(const term_t *t, kind_t kind, int moved, uint64_t *out, const uint64_t *const *word,
                          const loops_t *loops)
{
    const int last = t->indices - 1;
    const int64_t count = t->size[last - 1], out_stride = t->out_stride[last - 1], stride = t->stride[moved][last - 1];
    uint64_t scale[SCALES];
    for (int64_t first = 0; first < count; first += SCALES) {
        const int64_t taken = count - first < SCALES ? count - first : SCALES;
        for (int64_t j = 0; j < taken; j++) {
            scale[j] = (uint64_t)t->sign;
            for (int k = 0; k < t->factors; k++)
                if (k != moved) scale[j] *= word[k][(first + j) * t->stride[k][last - 1]];
        }
        if (kind == VECTOR_BY_MATRIX)
            loops->add_rows(out, t->size[last], scale, word[moved] + first * stride, stride, taken);
        else
            loops->add_outer(out + first * out_stride, out_stride, scale, taken, word[moved], t->size[last]);
    }
}

/* One term on one row: an odometer over all indices but the innermost one or two. */
static void add_term(const term_t *t, uint64_t *out, const uint64_t *const *rows, const loops_t *loops)
{
    int moved;
    const kind_t kind = kind_of(t, &moved);
    const int outer = t->indices - (kind == ROW_BY_ROW ? 1 : 2);
    int64_t at[MAX_INDICES] = {0};
    const uint64_t *word[MAX_FACTORS];
    for (int i = 0; i < t->indices; i++)
        if (t->size[i] == 0) return;
    out += t->out_offset;
    for (int k = 0; k < t->factors; k++) word[k] = rows[t->operand[k]] + t->offset[k];
    for (;;) {
        if (kind == ROW_BY_ROW)
            add_row(t, out, word, loops);
        else
            add_two_loops(t, kind, moved, out, word, loops);
        int i = outer - 1;
        for (; i >= 0; i--) {
            if (++at[i] < t->size[i]) {
                out += t->out_stride[i];
                for (int k = 0; k < t->factors; k++) word[k] += t->stride[k][i];
                break;
            }
            at[i] = 0; /* back by the furthest step, which was checked to be one */
            out -= t->out_stride[i] * (t->size[i] - 1);
            for (int k = 0; k < t->factors; k++) word[k] -= t->stride[k][i] * (t->size[i] - 1);
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
             const operand_t *operand, int operands, const loops_t *loops)
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
            add_term(&term, out + b * out_row, rows, loops);
        }
    }
    return terms < 0 || p - plan != length ? -1 : 0;
}
