/* The machine that runs recorded programs: straight-line code on words of Z_2^64, no branches, no loops.
 *
 * An instruction is: operation, number of arguments, arguments. A place is an argument too: bank << 48 | first word.
 * Bank 0 is the run's own memory; the other banks (constants, dealt words, what the party brings along) are only read.
 * Every place is checked against its bank before it is touched, so no code can reach beyond what it was given.
 */
#include "instructions.h"
#include "contraction.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words travel as they lie in memory: this needs a little-endian machine"
#endif

#define MAX_CHUNK_BITS 12
#define MAX_CHUNKS 6
#define MAX_GROUP 511
#define PLACE_BITS 48

/* ---- Places */

static uint64_t *place(const memory_t *m, int64_t at, int64_t count)
{
    const int64_t bank = at >> PLACE_BITS, first = at & ((INT64_C(1) << PLACE_BITS) - 1);
    if (bank < 0 || bank >= m->banks || count < 0 || count > m->bank[bank].length - first) return NULL;
    return m->bank[bank].words + first;
}

static const uint64_t *source(const memory_t *m, int64_t at, int64_t count) { return place(m, at, count); }

static uint64_t *target(const memory_t *m, int64_t at, int64_t count)
{
    return at >> PLACE_BITS == 0 ? place(m, at, count) : NULL;
}

/* a * b, or -1 (which no place has room for) if either is negative or the product is no number of words. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

/* Whether no word belongs to both. What is checked first and read again later must lie apart from what is written. */
static int apart(const uint64_t *a, int64_t a_count, const uint64_t *b, int64_t b_count)
{
    return !a_count || !b_count || (uintptr_t)(a + a_count) <= (uintptr_t)b || (uintptr_t)(b + b_count) <= (uintptr_t)a;
}

/* ---- Word by word: out, x, y, count, where y is a place or a number */

#define WORD_BY_WORD(name, expression)                                                        \
    static outcome_t name(const int64_t *a, memory_t *m)                                      \
    {                                                                                         \
        const int64_t count = a[3];                                                           \
        uint64_t *out = target(m, a[0], count);                                               \
        const uint64_t *x = source(m, a[1], count), *y = source(m, a[2], count);              \
        if (!out || !x || !y) return MALFORMED;                                               \
        for (int64_t i = 0; i < count; i++) out[i] = (expression);                            \
        return DONE;                                                                          \
    }
#define WITH_NUMBER(name, expression)                                                         \
    static outcome_t name(const int64_t *a, memory_t *m)                                      \
    {                                                                                         \
        const int64_t count = a[3];                                                           \
        uint64_t *out = target(m, a[0], count);                                               \
        const uint64_t *x = source(m, a[1], count), y = (uint64_t)a[2];                       \
        if (!out || !x) return MALFORMED;                                                     \
        for (int64_t i = 0; i < count; i++) out[i] = (expression);                            \
        return DONE;                                                                          \
    }

WORD_BY_WORD(add, x[i] + y[i])
WORD_BY_WORD(subtract, x[i] - y[i])
WORD_BY_WORD(multiply, x[i] * y[i])
WORD_BY_WORD(exclusive_or, x[i] ^ y[i])
WORD_BY_WORD(both, x[i] & y[i])
WORD_BY_WORD(less_than, x[i] < y[i])
WITH_NUMBER(add_number, x[i] + y)
WITH_NUMBER(multiply_number, x[i] * y)
WITH_NUMBER(xor_number, x[i] ^ y)
WITH_NUMBER(and_number, x[i] & y)
WITH_NUMBER(shift_left, y < 64 ? x[i] << y : 0)
WITH_NUMBER(shift_right, y < 64 ? x[i] >> y : 0)

/* ---- Moving words */

/* out, number, count */
static outcome_t fill(const int64_t *a, memory_t *m)
{
    uint64_t *out = target(m, a[0], a[2]);
    if (!out) return MALFORMED;
    for (int64_t i = 0; i < a[2]; i++) out[i] = (uint64_t)a[1];
    return DONE;
}

/* out, its row length, first column there, x, its row length, first column there, rows, columns: copies a block. */
static outcome_t copy_block(const int64_t *a, memory_t *m)
{
    const int64_t out_row = a[1], out_first = a[2], x_row = a[4], x_first = a[5], rows = a[6], columns = a[7];
    uint64_t *out = target(m, a[0], times(rows, out_row));
    const uint64_t *x = source(m, a[3], times(rows, x_row));
    if (!out || !x || columns < 0 || out_first < 0 || x_first < 0 || out_first > out_row - columns ||
        x_first > x_row - columns)
        return MALFORMED;
    for (int64_t r = 0; r < rows && columns; r++)
        memmove(out + r * out_row + out_first, x + r * x_row + x_first, (size_t)columns * 8);
    return DONE;
}

/* out, x, indices, rows, row length of x, number of indices: the same indices in every row. */
static outcome_t take(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[3], length = a[4], taken = a[5];
    uint64_t *out = target(m, a[0], times(rows, taken));
    const uint64_t *x = source(m, a[1], times(rows, length)), *index = source(m, a[2], taken);
    if (!out || !x || !index || !apart(out, rows * taken, index, taken)) return MALFORMED;
    for (int64_t k = 0; k < taken; k++)
        if (index[k] >= (uint64_t)length) return MALFORMED;
    for (int64_t r = 0; r < rows && taken; r++, out += taken, x += length)
        for (int64_t k = 0; k < taken; k++) out[k] = x[index[k]];
    return DONE;
}

/* out, x, rows, columns of out, bits: the fields of packed words, each in the top bits of a word of its own. A row of x
 * has as few words as hold all fields; the first field of each comes first, then the second of each. */
static outcome_t unpack(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[2], count = a[3], bits = a[4];
    if (bits < 1 || bits > 64 || count < 0) return MALFORMED;
    const int64_t fields = 64 / bits, packed = count / fields + (count % fields != 0);
    uint64_t *out = target(m, a[0], times(rows, count));
    const uint64_t *x = source(m, a[1], times(rows, packed));
    if (!out || !x) return MALFORMED;
    for (int64_t r = 0; r < rows && count; r++, out += count, x += packed)
        for (int64_t first = 0, shift = 0; first < count; first += packed, shift += bits) {
            const int64_t here = count - first < packed ? count - first : packed;
            for (int64_t k = 0; k < here; k++) out[first + k] = x[k] >> shift << (64 - bits);
        }
    return DONE;
}

/* out, x, indices, rows, items a row of x, words an item, indices a row: each row has indices of its own. */
static outcome_t pick(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[3], items = a[4], width = a[5], picked = a[6];
    uint64_t *out = target(m, a[0], times(times(rows, picked), width));
    const uint64_t *x = source(m, a[1], times(times(rows, items), width)), *index = source(m, a[2], times(rows, picked));
    if (!out || !x || !index) return MALFORMED;
    for (int64_t r = 0; r < rows && picked; r++, x += items * width)
        for (int64_t k = 0; k < picked; k++, out += width) {
            const uint64_t item = *index++;
            if (item >= (uint64_t)items) return MALFORMED;
            memmove(out, x + (int64_t)item * width, (size_t)width * 8);
        }
    return DONE;
}

/* out, slots, rows, length: in each row a one at the slot, zeros elsewhere. */
static outcome_t unit(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[2], length = a[3];
    uint64_t *out = target(m, a[0], times(rows, length));
    const uint64_t *slot = source(m, a[1], rows);
    if (!out || !slot) return MALFORMED;
    memset(out, 0, (size_t)(rows * length) * 8);
    for (int64_t r = 0; r < rows; r++) {
        if (slot[r] >= (uint64_t)length) return MALFORMED;
        out[r * length + (int64_t)slot[r]] = 1;
    }
    return DONE;
}

typedef struct {
    uint64_t word, index;
} keyed_t;

static int by_word_then_index(const void *left, const void *right)
{
    const keyed_t *l = left, *r = right;
    if (l->word != r->word) return l->word < r->word ? -1 : 1;
    return l->index < r->index ? -1 : l->index > r->index;
}

/* out, x, rows, length: the stable order of the words of each row. */
static outcome_t sort_order(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[2], length = a[3];
    uint64_t *out = target(m, a[0], times(rows, length));
    const uint64_t *x = source(m, a[1], times(rows, length));
    if (!out || !x) return MALFORMED;
    if (!rows || !length) return DONE;
    keyed_t *keyed = malloc((size_t)length * sizeof *keyed);
    if (!keyed) return NO_MEMORY;
    for (int64_t r = 0; r < rows; r++, out += length, x += length) {
        for (int64_t i = 0; i < length; i++) keyed[i] = (keyed_t){x[i], (uint64_t)i};
        qsort(keyed, (size_t)length, sizeof *keyed, by_word_then_index);
        for (int64_t i = 0; i < length; i++) out[i] = keyed[i].index;
    }
    free(keyed);
    return DONE;
}

/* ---- Products: out, its length, plan, its length, batch, number of operands, then place and length of each */
static outcome_t contract(const int64_t *a, memory_t *m)
{
    operand_t operand[MAX_OPERANDS];
    const int64_t operands = a[5];
    uint64_t *out = target(m, a[0], a[1]);
    const uint64_t *plan = source(m, a[2], a[3]);
    if (!out || !plan || operands < 0 || operands > MAX_OPERANDS) return MALFORMED;
    for (int64_t k = 0; k < operands; k++) {
        operand[k] = (operand_t){source(m, a[6 + 2 * k], a[7 + 2 * k]), a[7 + 2 * k]};
        if (!operand[k].words) return MALFORMED;
    }
    memset(out, 0, (size_t)a[1] * 8);
    const int status =
        run_plan((const int64_t *)plan, a[3], a[4], out, a[1], operand, (int)operands, fastest_loops());
    return status ? MALFORMED : DONE;
}

/* ---- Truncation and comparison: what a party does with opened words; see mpc/truncation.py, mpc/comparison.py and
 * mpc/payloads.py */

/* delta, sign, opened, bits, count */
static outcome_t split_truncated(const int64_t *a, memory_t *m)
{
    const int64_t bits = a[3], count = a[4];
    uint64_t *delta = target(m, a[0], count), *sign = target(m, a[1], count);
    const uint64_t *opened = source(m, a[2], count);
    if (!delta || !sign || !opened || bits < 0 || bits > 62) return MALFORMED;
    for (int64_t i = 0; i < count; i++) {
        delta[i] = (opened[i] >> bits) - (UINT64_C(1) << (62 - bits));
        sign[i] = (opened[i] >> 63) - 1;
    }
    return DONE;
}

/* The words of a truth table with an entry for every value of so many bits. */
static int64_t table_words(uint64_t bits) { return bits <= 6 ? 1 : INT64_C(1) << (bits - 6); }

static uint64_t table_bit(const uint64_t *table, uint64_t entry) { return (table[entry >> 6] >> (entry & 63)) & 1; }

/* packed, opened, tables, widths, chunks, words of the tables of one comparison, constant, count: the low bits of an
 * opened word are cut into chunks of these widths, the lowest first, and each has a table "v < r". Bit j of packed is
 * the table's entry v at chunk j. Bit chunks + j - 1, for j >= 1, is "v = r": the entries v and v - 1 differ. At v = 0
 * there is no entry before; it would be 1, which one party adds as its `constant`. */
static outcome_t look_up_chunks(const int64_t *a, memory_t *m)
{
    const int64_t chunks = a[4], words = a[5], count = a[7];
    const uint64_t constant = a[6] != 0;
    if (chunks < 1 || chunks > MAX_CHUNKS) return MALFORMED;
    uint64_t *packed = target(m, a[0], count);
    const uint64_t *opened = source(m, a[1], count), *tables = source(m, a[2], times(count, words)),
                   *widths = source(m, a[3], chunks);
    if (!packed || !opened || !tables || !widths) return MALFORMED;
    uint64_t width[MAX_CHUNKS];
    int64_t needed = 0;
    for (int64_t j = 0; j < chunks; j++) {
        width[j] = widths[j];
        if (width[j] < 1 || width[j] > MAX_CHUNK_BITS) return MALFORMED;
        needed += table_words(width[j]);
    }
    if (needed != words) return MALFORMED;
    for (int64_t i = 0; i < count; i++) {
        uint64_t left = opened[i], word = 0;
        for (int64_t j = 0; j < chunks; j++) {
            const uint64_t chunk = left & ((UINT64_C(1) << width[j]) - 1), less = table_bit(tables, chunk);
            word |= less << j;
            if (j > 0) word |= (less ^ (chunk ? table_bit(tables, chunk - 1) : constant)) << (chunks + j - 1);
            left >>= width[j];
            tables += table_words(width[j]);
        }
        packed[i] = word;
    }
    return DONE;
}

/* The node of a heap that the opened equality bits above a chunk name; depth 0 is the highest chunk. */
static inline uint64_t node_at(uint64_t opened, int64_t chunks, int64_t depth)
{
    return (UINT64_C(1) << depth) + (opened >> (2 * chunks - 1 - depth));
}

/* For each depth, a node selects a bit of each of two heaps of bits: [all equal so far] and [the same times the mask of
 * the "less" bit]. Up to five chunks both lie in one word, the second in its upper half. */
static inline uint64_t combined(uint64_t opened, uint64_t equal, uint64_t masked, int64_t chunks)
{
    uint64_t result = 0;
    for (int64_t depth = 0; depth < chunks; depth++) {
        const uint64_t node = node_at(opened, chunks, depth) & 63, less = opened >> (chunks - 1 - depth);
        result ^= ((equal >> node) & less) ^ (masked >> node);
    }
    return result & 1;
}

/* bit, opened, products (one word for each, or two), chunks, count */
static outcome_t combine_chunks(const int64_t *a, memory_t *m)
{
    const int64_t chunks = a[3], count = a[4];
    if (chunks < 1 || chunks > MAX_CHUNKS) return MALFORMED;
    const int64_t words = chunks < MAX_CHUNKS ? 1 : 2;
    uint64_t *bit = target(m, a[0], count);
    const uint64_t *opened = source(m, a[1], count), *products = source(m, a[2], times(count, words));
    if (!bit || !opened || !products) return MALFORMED;
    if (words == 1)
        for (int64_t i = 0; i < count; i++) bit[i] = combined(opened[i], products[i], products[i] >> 32, chunks);
    else
        for (int64_t i = 0; i < count; i++) bit[i] = combined(opened[i], products[2 * i], products[2 * i + 1], chunks);
    return DONE;
}

/* out, opened bits, top bits, nodes, chunks, count: the same with a word in place of each bit; 2^chunks - 1 nodes of
 * the first heap, then as many of the second. Where the public top bit is set, the first root counts once more. */
static outcome_t look_up_payloads(const int64_t *a, memory_t *m)
{
    const int64_t chunks = a[4], count = a[5];
    if (chunks < 1 || chunks > MAX_CHUNKS) return MALFORMED;
    const int64_t nodes = (INT64_C(1) << chunks) - 1;
    uint64_t *out = target(m, a[0], count);
    const uint64_t *opened = source(m, a[1], count), *top = source(m, a[2], count),
                   *heaps = source(m, a[3], times(count, 2 * nodes));
    if (!out || !opened || !top || !heaps) return MALFORMED;
    for (int64_t i = 0; i < count; i++, heaps += 2 * nodes) {
        const uint64_t bits = opened[i] & ((UINT64_C(1) << (2 * chunks - 1)) - 1);
        uint64_t word = heaps[0] & (0 - (top[i] & 1));
        for (int64_t depth = 0; depth < chunks; depth++) {
            const uint64_t node = node_at(bits, chunks, depth) - 1, less = (bits >> (chunks - 1 - depth)) & 1;
            word ^= (heaps[node] & (0 - less)) ^ heaps[(uint64_t)nodes + node];
        }
        out[i] = word;
    }
    return DONE;
}

/* out, words, eligible, rows, items: a word for each pair i < j of items has a half for each of them, the lower one
 * for i. The halves of each item, exclusive-ored; of pairs of eligible items only (all bits set, or none). */
static outcome_t collect_payloads(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[3], items = a[4];
    if (items < 2 || items > INT32_MAX) return MALFORMED;
    const int64_t pairs = items * (items - 1) / 2;
    uint64_t *out = target(m, a[0], times(rows, items));
    const uint64_t *words = source(m, a[1], times(rows, pairs)), *eligible = source(m, a[2], times(rows, items));
    if (!out || !words || !eligible || !apart(out, rows * items, words, rows * pairs) ||
        !apart(out, rows * items, eligible, rows * items))
        return MALFORMED;
    memset(out, 0, (size_t)(rows * items) * 8);
    for (int64_t r = 0; r < rows; r++, out += items, eligible += items)
        for (int64_t i = 0; i < items; i++)
            for (int64_t j = i + 1; j < items; j++) {
                const uint64_t word = *words++ & eligible[i] & eligible[j];
                out[i] ^= word & UINT32_MAX;
                out[j] ^= word >> 32;
            }
    return DONE;
}

/* Of one group, from the bits "key i < key j" of all pairs i < j: the slot that wins most, or -1 if it is no order. */
static int64_t winner_of(const uint64_t *less, int64_t size)
{
    int64_t wins[MAX_GROUP], winner = 0;
    uint8_t seen[MAX_GROUP];
    for (int64_t i = 0; i < size; i++) wins[i] = seen[i] = 0;
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = i + 1; j < size; j++) wins[*less++ ? j : i]++;
    for (int64_t i = 0; i < size; i++) {
        if (seen[wins[i]]) return -1;
        seen[wins[i]] = 1;
        if (wins[i] == size - 1) winner = i;
    }
    return winner;
}

/* out, less, sizes of the groups, rows, number of groups, pairs a row: the winning slot of each group. */
static outcome_t winners(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[3], groups = a[4];
    uint64_t *out = target(m, a[0], times(rows, groups));
    const uint64_t *less = source(m, a[1], times(rows, a[5])), *sizes = source(m, a[2], groups);
    if (!out || !less || !sizes || !apart(out, rows * groups, sizes, groups)) return MALFORMED;
    int64_t pairs = 0;
    for (int64_t g = 0; g < groups; g++) {
        if (sizes[g] < 1 || sizes[g] > MAX_GROUP) return MALFORMED;
        pairs += (int64_t)(sizes[g] * (sizes[g] - 1) / 2);
    }
    if (pairs != a[5]) return MALFORMED;
    for (int64_t r = 0; r < rows && groups; r++) {
        int64_t slot = 0;
        for (int64_t g = 0; g < groups; g++) {
            const int64_t size = (int64_t)sizes[g], winner = winner_of(less, size);
            if (winner < 0) return NO_ORDER;
            *out++ = (uint64_t)(slot + winner);
            less += size * (size - 1) / 2;
            slot += size;
        }
    }
    return DONE;
}

/* ---- Rounds: words travel as narrow as they are, single bits eight a byte */

static int64_t narrow_bytes(int64_t bits, int64_t count)
{
    if (count < 0 || bits < 1 || bits > 64) return -1;
    if (bits == 1) return count / 8 + (count % 8 != 0);
    return times(count, bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8);
}

/* x, bits, count: append to what is sent. */
static outcome_t send_words(const int64_t *a, memory_t *m)
{
    const int64_t bits = a[1], count = a[2], bytes = narrow_bytes(bits, count);
    const uint64_t *x = source(m, a[0], count);
    if (!x || bytes < 0 || bytes > m->sent_length - m->sent_so_far) return MALFORMED;
    uint8_t *out = m->sent + m->sent_so_far;
    m->sent_so_far += bytes;
    if (bits == 1) {
        memset(out, 0, (size_t)bytes);
        for (int64_t i = 0; i < count; i++) out[i >> 3] |= (uint8_t)((x[i] & 1) << (7 - (i & 7)));
    } else if (bits <= 8) {
        for (int64_t i = 0; i < count; i++) out[i] = (uint8_t)x[i];
    } else if (bits <= 16) {
        for (int64_t i = 0; i < count; i++) memcpy(out + 2 * i, &x[i], 2);
    } else if (bits <= 32) {
        for (int64_t i = 0; i < count; i++) memcpy(out + 4 * i, &x[i], 4);
    } else {
        memcpy(out, x, (size_t)bytes);
    }
    return DONE;
}

#define ARRIVED(type, xor)                                                                    \
    for (int64_t i = 0; i < count; i++) {                                                     \
        type word;                                                                            \
        memcpy(&word, from + (size_t)i * sizeof word, sizeof word);                           \
        out[i] = xor ? out[i] ^ word : out[i] + word;                                         \
    }

static void add_arrived(uint64_t *out, const uint8_t *from, int64_t bits, int64_t count, int xor)
{
    if (bits == 1) {
        for (int64_t i = 0; i < count; i++) {
            const uint64_t bit = (from[i >> 3] >> (7 - (i & 7))) & 1;
            out[i] = xor ? out[i] ^ bit : out[i] + bit;
        }
    } else if (bits <= 8) {
        ARRIVED(uint8_t, xor)
    } else if (bits <= 16) {
        ARRIVED(uint16_t, xor)
    } else if (bits <= 32) {
        ARRIVED(uint32_t, xor)
    } else if (xor) {
        ARRIVED(uint64_t, 1)
    } else {
        ARRIVED(uint64_t, 0)
    }
}

/* The bytes of a message from `offset` on; NULL if it is too short. */
static const uint8_t *arrived(const memory_t *m, int64_t party, int64_t offset, int64_t bytes)
{
    const message_t *message = &m->received[party];
    if (!message->bytes || offset < 0 || bytes < 0 || offset > message->length - bytes) return NULL;
    return message->bytes + offset;
}

/* out, own words, bits, count, xor, our number, then for each party where in its message the words begin:
 * what everybody's words add up to. */
static outcome_t open_sum(const int64_t *a, memory_t *m)
{
    const int64_t bits = a[2], count = a[3], me = a[5], bytes = narrow_bytes(bits, count);
    uint64_t *out = target(m, a[0], count);
    const uint64_t *own = source(m, a[1], count);
    if (!out || !own || bytes < 0) return MALFORMED;
    memmove(out, own, (size_t)count * 8);
    for (int64_t party = 0; party < m->parties; party++) {
        if (party == me) continue;
        const uint8_t *from = arrived(m, party, a[6 + party], bytes);
        if (!from) return MALFORMED;
        add_arrived(out, from, bits, count, a[4] != 0);
    }
    return DONE;
}

/* out, own words, rows, our number, then for each party its columns and where in its message they begin:
 * everybody's columns side by side. */
static outcome_t open_columns(const int64_t *a, memory_t *m)
{
    const int64_t rows = a[2], me = a[3];
    int64_t width = 0, first = 0;
    for (int64_t party = 0; party < m->parties; party++) {
        if (a[4 + 2 * party] < 0 || __builtin_add_overflow(width, a[4 + 2 * party], &width)) return MALFORMED;
    }
    uint64_t *out = target(m, a[0], times(rows, width));
    if (!out) return MALFORMED;
    for (int64_t party = 0; party < m->parties; party++) {
        const int64_t columns = a[4 + 2 * party], words = times(rows, columns);
        const uint8_t *from = party == me ? (const uint8_t *)source(m, a[1], words)
                                          : arrived(m, party, a[5 + 2 * party], times(words, 8));
        if (!from) return MALFORMED;
        for (int64_t r = 0; r < rows && columns; r++)
            memmove(out + r * width + first, from + (size_t)(r * columns) * 8, (size_t)columns * 8);
        first += columns;
    }
    return DONE;
}

/* ---- All operations: how many arguments each takes, and how many more for every party; -1: two for every operand */

typedef outcome_t (*operation_t)(const int64_t *, memory_t *);

#define OPERATIONS(X)                                                                         \
    X(add, 4, 0) X(subtract, 4, 0) X(multiply, 4, 0) X(exclusive_or, 4, 0) X(both, 4, 0)      \
    X(less_than, 4, 0) X(add_number, 4, 0) X(multiply_number, 4, 0) X(xor_number, 4, 0)       \
    X(and_number, 4, 0) X(shift_left, 4, 0) X(shift_right, 4, 0)                              \
    X(fill, 3, 0) X(copy_block, 8, 0) X(take, 6, 0) X(unpack, 5, 0) X(pick, 7, 0) X(unit, 4, 0) \
    X(sort_order, 4, 0) X(contract, 6, -1) X(split_truncated, 5, 0) X(look_up_chunks, 8, 0)   \
    X(combine_chunks, 5, 0) X(look_up_payloads, 6, 0) X(collect_payloads, 5, 0)               \
    X(winners, 6, 0) X(send_words, 3, 0) X(open_sum, 6, 1) X(open_columns, 4, 2)

#define NAME(name, fixed, by_party) #name,
const char *const OPERATION_NAMES[] = {OPERATIONS(NAME) NULL};

#define ARGUMENTS(name, fixed, by_party) {fixed, by_party},
const int OPERATION_ARGUMENTS[][2] = {OPERATIONS(ARGUMENTS)};

static const struct {
    operation_t run;
    int64_t fixed, by_party; /* the number of operands is the last of the fixed ones */
} OPERATION[] = {
#define ENTRY(name, fixed, by_party) {name, fixed, by_party},
    OPERATIONS(ENTRY)};

#define OPERATION_COUNT ((int64_t)(sizeof OPERATION / sizeof OPERATION[0]))

outcome_t run_instructions(const int64_t *code, int64_t length, memory_t *memory)
{
    for (int64_t at = 0; at < length;) {
        if (length - at < 2) return MALFORMED;
        const int64_t operation = code[at], arguments = code[at + 1];
        if (operation < 0 || operation >= OPERATION_COUNT) return MALFORMED;
        if (arguments < OPERATION[operation].fixed || arguments > length - at - 2) return MALFORMED;
        const int64_t *a = code + at + 2, fixed = OPERATION[operation].fixed, more = OPERATION[operation].by_party;
        const int64_t extra = more < 0 ? times(2, a[fixed - 1]) : more * memory->parties;
        if (extra < 0 || arguments - fixed != extra) return MALFORMED;
        const outcome_t outcome = OPERATION[operation].run(a, memory);
        if (outcome != DONE) return outcome;
        at += 2 + arguments;
    }
    return DONE;
}
