/* The inner loops of sums of products, on words that lie side by side; see loops.c. */
#ifndef HIDDENARM_LOOPS_H
#define HIDDENARM_LOOPS_H

#include <stdint.h>

typedef struct {
    /* The sum of x[i] * y[i]. */
    uint64_t (*dot)(const uint64_t *x, const uint64_t *y, int64_t count);
    /* out[i] += scale * x[i] */
    void (*add_scaled)(uint64_t *out, uint64_t scale, const uint64_t *x, int64_t count);
    /* out[i] += scale * x[i] * y[i] */
    void (*add_products)(uint64_t *out, uint64_t scale, const uint64_t *x, const uint64_t *y, int64_t count);
    /* A vector by a matrix: out[k] += the sum over j of scale[j] * rows[j * stride + k], for k < width, j < count. */
    void (*add_rows)(uint64_t *out, int64_t width, const uint64_t *scale, const uint64_t *rows, int64_t stride,
                     int64_t count);
    /* A column by a row: out[j * stride + k] += scale[j] * x[k], for k < width, j < count. */
    void (*add_outer)(uint64_t *out, int64_t stride, const uint64_t *scale, int64_t count, const uint64_t *x,
                      int64_t width);
} loops_t;

/* Plain C, on every machine. */
extern const loops_t PORTABLE_LOOPS;

/* The fastest that this machine can run. */
const loops_t *fastest_loops(void);

#endif
