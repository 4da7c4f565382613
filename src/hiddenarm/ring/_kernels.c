/* The hot loops on words of Z_2^64, compiled: sums of products, the look-ups of a comparison, the end of a truncation.
 *
 * Python decides what is computed; this file only does it without a microsecond of overhead for each small array.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* ---- Sums of products: a small Einstein-sum interpreter for many terms at once
 *
 *     contract(plan, batch, out, operands)
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
#define MAX_INDICES 8
#define MAX_FACTORS 4
#define MAX_OPERANDS 24

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
            out_at += t->out_stride[i];
            for (int k = 0; k < t->factors; k++) position[k] += t->stride[k][i];
            if (++at[i] < t->size[i]) break;
            out_at -= t->out_stride[i] * t->size[i];
            for (int k = 0; k < t->factors; k++) position[k] -= t->stride[k][i] * t->size[i];
            at[i] = 0;
        }
        if (i < 0) return;
    }
}

/* Whether offset plus the furthest steps stays inside a row. */
static int reaches_beyond(int64_t offset, const int64_t *stride, const int64_t *size, int indices, int64_t row)
{
    int64_t furthest = offset;
    for (int i = 0; i < indices; i++) {
        if (stride[i] < 0 || size[i] < 0) return 1;
        if (size[i] == 0) return 0;
        furthest += stride[i] * (size[i] - 1);
    }
    return offset < 0 || furthest >= row;
}

/* Reads one term; returns the words consumed, or -1 if the plan is malformed. */
static int64_t read_term(const int64_t *plan, int64_t left, term_t *t, int64_t out_row, const int64_t *row, int operands)
{
    if (left < 3) return -1;
    t->sign = plan[0];
    t->indices = (int)plan[1];
    t->factors = (int)plan[2];
    if (t->indices < 1 || t->indices > MAX_INDICES || t->factors < 1 || t->factors > MAX_FACTORS) return -1;
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

/* Runs a plan over checked buffers; returns 0, or -1 with a Python error set. */
static int run_plan(const int64_t *plan, int64_t length, int64_t batch, const Py_buffer *out, const Py_buffer *operand,
                    int operands)
{
    int64_t row[MAX_OPERANDS];
    const int64_t *p = plan;
    if (length < 2 || p[1] != operands || length < 3 + operands) goto malformed;
    const int64_t out_row = *p++;
    p++;
    if (batch < 0 || out_row < 0 || out->len / 8 != out_row * batch) goto malformed;
    for (int k = 0; k < operands; k++) {
        row[k] = *p++;
        if (row[k] < 0 || operand[k].len / 8 != row[k] * batch) goto malformed;
    }
    const int64_t terms = *p++;
    if (terms < 0) goto malformed;
    for (int64_t index = 0; index < terms; index++) {
        term_t term;
        const int64_t used = read_term(p, length - (p - plan), &term, out_row, row, operands);
        if (used < 0) goto malformed;
        p += used;
        for (int64_t b = 0; b < batch; b++) {
            const uint64_t *rows[MAX_OPERANDS];
            for (int k = 0; k < operands; k++) rows[k] = (const uint64_t *)operand[k].buf + b * row[k];
            add_term(&term, (uint64_t *)out->buf + b * out_row, rows);
        }
    }
    if (p - plan != length) goto malformed;
    return 0;
malformed:
    PyErr_SetString(PyExc_ValueError, "the plan does not fit its operands");
    return -1;
}

static PyObject *contract(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer plan, out, operand[MAX_OPERANDS];
    int held = 0, status = -1;
    if (count != 4 || !PyTuple_Check(args[3]) || PyTuple_GET_SIZE(args[3]) > MAX_OPERANDS) {
        PyErr_SetString(PyExc_TypeError, "contract(plan, batch, out, operands): at most 24 operands in a tuple");
        return NULL;
    }
    const int64_t batch = PyLong_AsLongLong(args[1]);
    if (batch == -1 && PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(args[0], &plan, PyBUF_C_CONTIGUOUS) < 0) return NULL;
    if (PyObject_GetBuffer(args[2], &out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) goto release_plan;
    const int operands = (int)PyTuple_GET_SIZE(args[3]);
    for (; held < operands; held++)
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(args[3], held), &operand[held], PyBUF_C_CONTIGUOUS) < 0) goto release;
    status = run_plan(plan.buf, plan.len / 8, batch, &out, operand, operands);
release:
    while (held > 0) PyBuffer_Release(&operand[--held]);
    PyBuffer_Release(&out);
release_plan:
    PyBuffer_Release(&plan);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---- Comparison and truncation: what a party does with opened words
 *
 * Each function takes arrays of contiguous words and whole numbers; lengths are checked first.
 */
#define CHUNK_BITS 6
#define MAX_CHUNKS 6

/* Takes `arrays` buffers from args, the last `writable` of them for writing; 0, or -1 with a Python error set. */
static int take_arrays(PyObject *const *args, Py_buffer *buffer, int arrays, int writable)
{
    for (int k = 0; k < arrays; k++) {
        const int flags = PyBUF_C_CONTIGUOUS | (k >= arrays - writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(args[k], &buffer[k], flags) < 0) {
            while (k > 0) PyBuffer_Release(&buffer[--k]);
            return -1;
        }
    }
    return 0;
}

static PyObject *give_back(Py_buffer *buffer, int arrays, int fits)
{
    while (arrays > 0) PyBuffer_Release(&buffer[--arrays]);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "array lengths do not fit together");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* look_up_chunks(opened, less, equal, packed, bits): bit j of packed is table less[j] at chunk j of the opened word, and
 * bit chunks + j - 1 is table equal[j] at chunk j, for j >= 1. */
static PyObject *look_up_chunks(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer array[4];
    if (count != 5) return PyErr_Format(PyExc_TypeError, "look_up_chunks takes 5 arguments");
    const long bits = PyLong_AsLong(args[4]);
    if (PyErr_Occurred() || take_arrays(args, array, 4, 1) < 0) return NULL;
    const int64_t n = array[0].len / 8, chunks = (bits - 1 + CHUNK_BITS - 1) / CHUNK_BITS;
    const int fits = bits >= 2 && chunks <= MAX_CHUNKS && array[1].len / 8 == n * chunks &&
                     array[2].len / 8 == n * (chunks - 1) && array[3].len / 8 == n;
    const uint64_t *opened = array[0].buf, *less = array[1].buf, *equal = array[2].buf;
    uint64_t *packed = array[3].buf;
    for (int64_t i = 0; fits && i < n; i++) {
        const uint64_t low = opened[i] & ((UINT64_C(1) << (bits - 1)) - 1);
        uint64_t word = 0;
        for (int64_t j = 0; j < chunks; j++) {
            const uint64_t chunk = (low >> (CHUNK_BITS * j)) & 63;
            word |= ((less[i * chunks + j] >> chunk) & 1) << j;
            if (j > 0) word |= ((equal[i * (chunks - 1) + j - 1] >> chunk) & 1) << (chunks + j - 1);
        }
        packed[i] = word;
    }
    return give_back(array, 4, fits);
}

/* combine_chunks(opened, products, bit, chunks): for each depth d from the top, the heap node of the equality bits above
 * it selects a bit of each product word: [all equal so far] and [the same times the mask of the "less" bit]. */
static PyObject *combine_chunks(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer array[3];
    if (count != 4) return PyErr_Format(PyExc_TypeError, "combine_chunks takes 4 arguments");
    const long chunks = PyLong_AsLong(args[3]);
    if (PyErr_Occurred() || take_arrays(args, array, 3, 1) < 0) return NULL;
    const int64_t n = array[0].len / 8;
    const int fits = chunks >= 1 && chunks <= MAX_CHUNKS && array[1].len / 8 == 2 * n && array[2].len / 8 == n;
    const uint64_t *opened = array[0].buf, *products = array[1].buf;
    uint64_t *bit = array[2].buf;
    for (int64_t i = 0; fits && i < n; i++) {
        uint64_t result = 0;
        for (long depth = 0; depth < chunks; depth++) {
            const uint64_t node = ((UINT64_C(1) << depth) + (opened[i] >> (2 * chunks - 1 - depth))) & 63;
            const uint64_t less = opened[i] >> (chunks - 1 - depth);
            result ^= ((products[2 * i] >> node) & less) ^ (products[2 * i + 1] >> node);
        }
        bit[i] = result & 1;
    }
    return give_back(array, 3, fits);
}

/* split_truncated(opened, delta, sign, bits): the public part of a truncation by `bits`, see mpc/truncation.py. */
static PyObject *split_truncated(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    Py_buffer array[3];
    if (count != 4) return PyErr_Format(PyExc_TypeError, "split_truncated takes 4 arguments");
    const long bits = PyLong_AsLong(args[3]);
    if (PyErr_Occurred() || take_arrays(args, array, 3, 2) < 0) return NULL;
    const int64_t n = array[0].len / 8;
    const int fits = bits >= 0 && bits <= 62 && array[1].len == array[0].len && array[2].len == array[0].len;
    const uint64_t *opened = array[0].buf;
    uint64_t *delta = array[1].buf, *sign = array[2].buf;
    for (int64_t i = 0; fits && i < n; i++) {
        const uint64_t top = opened[i] >> 63, low = opened[i] & (UINT64_MAX >> 1);
        delta[i] = (low >> bits) + (top << (63 - bits)) - (UINT64_C(1) << (62 - bits));
        sign[i] = (top << 1) - 1;
    }
    return give_back(array, 3, fits);
}

static PyMethodDef methods[] = {
    {"contract", (PyCFunction)(void (*)(void))contract, METH_FASTCALL, "Add every term of a plan to `out`."},
    {"look_up_chunks", (PyCFunction)(void (*)(void))look_up_chunks, METH_FASTCALL, "Look truth tables up at chunks."},
    {"combine_chunks", (PyCFunction)(void (*)(void))combine_chunks, METH_FASTCALL, "Combine masked chunk results."},
    {"split_truncated", (PyCFunction)(void (*)(void))split_truncated, METH_FASTCALL, "Public part of a truncation."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", "Hot loops on words of Z_2^64.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&definition); }
