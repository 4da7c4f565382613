/* Sums of products of arrays of words; see contraction.c. */
#ifndef HIDDENARM_CONTRACTION_H
#define HIDDENARM_CONTRACTION_H

#include <stdint.h>

#include "loops.h"

#define MAX_OPERANDS 24

typedef struct {
    const uint64_t *words;
    int64_t length;
} operand_t;

/* Adds every term of a plan to `out`; returns 0, or -1 if the plan does not fit what it is given. */
int run_plan(const int64_t *plan, int64_t length, int64_t batch, uint64_t *out, int64_t out_length,
             const operand_t *operand, int operands, const loops_t *loops);

#endif
