/* The machine that runs recorded programs; see instructions.c. */
#ifndef HIDDENARM_INSTRUCTIONS_H
#define HIDDENARM_INSTRUCTIONS_H

#include <stdint.h>

typedef struct {
    uint64_t *words;
    int64_t length;
} bank_t;

typedef struct {
    const uint8_t *bytes; /* NULL for our own place */
    int64_t length;
} message_t;

typedef struct {
    const bank_t *bank; /* bank 0 is written and read, the others are only read */
    int64_t banks;
    const message_t *received; /* by party */
    int64_t parties;
    uint8_t *sent;
    int64_t sent_length, sent_so_far;
} memory_t;

typedef enum { DONE, MALFORMED, NO_ORDER, NO_MEMORY } outcome_t;

extern const char *const OPERATION_NAMES[]; /* NULL-terminated; the position is the code */
extern const int OPERATION_ARGUMENTS[][2];  /* of each: how many, and how many more for every party; -1: see the .c */

outcome_t run_instructions(const int64_t *code, int64_t length, memory_t *memory);

#endif
