/* The compiled part of the package, for Python: sums of products, and the machine that runs recorded programs.
 *
 * Python decides what is computed; the C only does it without microseconds of overhead for each small array.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "contraction.h"
#include "instructions.h"

#define MAX_BANKS 16
#define MAX_PARTIES 256

/* Whether a buffer's items are integers of this machine. NumPy takes time to tell, so this is asked only of what is
 * written: no other bits may come where an array keeps floats, or pointers. */
static int holds_integers(const Py_buffer *buffer)
{
    const char *format = buffer->format ? buffer->format : "B";
    if (*format == '@' || *format == '=' || *format == '<') format++;
    return *format && strchr("lLqQ", *format) && !format[1];
}

/* Takes a contiguous buffer of 8-byte items; 0, or -1 with a Python error set. */
static int take_words(PyObject *object, Py_buffer *buffer, int writable)
{
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE | PyBUF_FORMAT : 0);
    if (PyObject_GetBuffer(object, buffer, flags) < 0) return -1;
    if (buffer->itemsize == 8 && (uintptr_t)buffer->buf % 8 == 0 && (!writable || holds_integers(buffer))) return 0;
    PyBuffer_Release(buffer);
    PyErr_SetString(PyExc_ValueError, "an array must hold aligned words of 8 bytes");
    return -1;
}

static void release(Py_buffer *buffer, Py_ssize_t count)
{
    while (count > 0) PyBuffer_Release(&buffer[--count]);
}

/* contract(plan, batch, out, operands), by some loops */
static PyObject *contract_by(const loops_t *loops, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer plan, out, buffer[MAX_OPERANDS];
    operand_t operand[MAX_OPERANDS];
    int held = 0, status = -1;
    if (count != 4 || !PyTuple_Check(args[3]) || PyTuple_GET_SIZE(args[3]) > MAX_OPERANDS) {
        PyErr_SetString(PyExc_TypeError, "contract(plan, batch, out, operands): at most 24 operands in a tuple");
        return NULL;
    }
    const int64_t batch = PyLong_AsLongLong(args[1]);
    if (batch == -1 && PyErr_Occurred()) return NULL;
    if (take_words(args[0], &plan, 0) < 0) return NULL;
    if (take_words(args[2], &out, 1) < 0) goto release_plan;
    const int operands = (int)PyTuple_GET_SIZE(args[3]);
    for (; held < operands; held++) {
        if (take_words(PyTuple_GET_ITEM(args[3], held), &buffer[held], 0) < 0) goto release;
        operand[held] = (operand_t){buffer[held].buf, buffer[held].len / 8};
    }
    status = run_plan(plan.buf, plan.len / 8, batch, out.buf, out.len / 8, operand, operands, loops);
    if (status < 0) PyErr_SetString(PyExc_ValueError, "the plan does not fit its operands");
release:
    release(buffer, held);
    PyBuffer_Release(&out);
release_plan:
    PyBuffer_Release(&plan);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *contract(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return contract_by(fastest_loops(), args, count);
}

static PyObject *contract_portably(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    return contract_by(&PORTABLE_LOOPS, args, count);
}

static PyObject *explain(outcome_t outcome, const memory_t *memory)
{
    if (outcome == NO_MEMORY) return PyErr_NoMemory();
    if (outcome == NO_ORDER)
        PyErr_SetString(PyExc_ArithmeticError, "the opened comparisons are no order");
    else if (outcome == MALFORMED || memory->sent_so_far != memory->sent_length)
        PyErr_SetString(PyExc_ValueError, "the instructions do not fit what they are given");
    return NULL;
}

/* Whether the code lies in memory that it writes. */
static int writes_itself(const Py_buffer *code, const Py_buffer *bank, int64_t banks)
{
    const uintptr_t first = (uintptr_t)code->buf, written = banks ? (uintptr_t)bank[0].buf : 0;
    return banks && first < written + (uintptr_t)bank[0].len && written < first + (uintptr_t)code->len;
}

/* Runs code on the banks and messages that were taken; returns the bytes to send. */
static PyObject *run_taken(const Py_buffer *code, int64_t first, int64_t last, const Py_buffer *bank, int64_t banks,
                           const Py_buffer *message, int64_t parties, int64_t sent_length)
{
    bank_t words[MAX_BANKS];
    message_t received[MAX_PARTIES];
    if (first < 0 || first > last || last > code->len / 8 || sent_length < 0 || writes_itself(code, bank, banks))
        return explain(MALFORMED, NULL);
    for (int64_t k = 0; k < banks; k++) words[k] = (bank_t){bank[k].buf, bank[k].len / 8};
    for (int64_t k = 0; k < parties; k++) received[k] = (message_t){message[k].buf, message[k].len};
    PyObject *sent = PyBytes_FromStringAndSize(NULL, sent_length);
    if (!sent) return NULL;
    memory_t memory = {words, banks, received, parties, (uint8_t *)PyBytes_AS_STRING(sent), sent_length, 0};
    const outcome_t outcome = run_instructions((const int64_t *)code->buf + first, last - first, &memory);
    if (outcome == DONE && memory.sent_so_far == sent_length) return sent;
    Py_DECREF(sent);
    return explain(outcome, &memory);
}

/* execute(code, first, last, banks, received, sent_length) -> bytes to send. Received messages are in order of parties,
 * None for our own; bank 0 is written. */
static PyObject *execute(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 6 || !PyTuple_Check(args[3]) || !PyTuple_Check(args[4]) || PyTuple_GET_SIZE(args[3]) > MAX_BANKS ||
        PyTuple_GET_SIZE(args[4]) > MAX_PARTIES) {
        PyErr_SetString(PyExc_TypeError,
                        "execute(code, first, last, banks, received, sent_length): at most 16 banks, 256 parties");
        return NULL;
    }
    const int64_t first = PyLong_AsLongLong(args[1]), last = PyLong_AsLongLong(args[2]),
                  sent_length = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    Py_buffer code, bank[MAX_BANKS], message[MAX_PARTIES];
    Py_ssize_t banks = 0, messages = 0;
    PyObject *result = NULL;
    if (take_words(args[0], &code, 0) < 0) return NULL;
    for (; banks < PyTuple_GET_SIZE(args[3]); banks++)
        if (take_words(PyTuple_GET_ITEM(args[3], banks), &bank[banks], banks == 0) < 0) goto done;
    for (; messages < PyTuple_GET_SIZE(args[4]); messages++) {
        PyObject *object = PyTuple_GET_ITEM(args[4], messages);
        if (object == Py_None)
            memset(&message[messages], 0, sizeof message[messages]);
        else if (PyObject_GetBuffer(object, &message[messages], PyBUF_C_CONTIGUOUS) < 0)
            goto done;
    }
    result = run_taken(&code, first, last, bank, banks, message, messages, sent_length);
done:
    release(message, messages);
    release(bank, banks);
    PyBuffer_Release(&code);
    return result;
}

static PyMethodDef methods[] = {
    {"contract", (PyCFunction)(void (*)(void))contract, METH_FASTCALL, "Add every term of a plan to `out`."},
    {"contract_portably", (PyCFunction)(void (*)(void))contract_portably, METH_FASTCALL,
     "The same by the loops in plain C, as on machines that have no others: for tests and benchmarks."},
    {"execute", (PyCFunction)(void (*)(void))execute, METH_FASTCALL, "Run recorded instructions; what to send."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernels", "Hot loops on words of Z_2^64.", -1, methods,
                                        NULL, NULL, NULL, NULL};

/* A tuple with an entry for every operation, in the order of their codes. */
static PyObject *operation_table(PyObject *(*entry)(int))
{
    PyObject *entries = PyList_New(0);
    for (int k = 0; entries && OPERATION_NAMES[k]; k++) {
        PyObject *made = entry(k);
        if (!made || PyList_Append(entries, made) < 0) Py_CLEAR(entries);
        Py_XDECREF(made);
    }
    PyObject *tuple = entries ? PyList_AsTuple(entries) : NULL;
    Py_XDECREF(entries);
    return tuple;
}

static PyObject *name_of(int k) { return PyUnicode_FromString(OPERATION_NAMES[k]); }

static PyObject *arguments_of(int k)
{
    return Py_BuildValue("(ii)", OPERATION_ARGUMENTS[k][0], OPERATION_ARGUMENTS[k][1]);
}

/* Adds an object to the module and gives up our reference; 0, or -1 with a Python error set. */
static int add_object(PyObject *module, const char *name, PyObject *object)
{
    const int status = object ? PyModule_AddObjectRef(module, name, object) : -1;
    Py_XDECREF(object);
    return status;
}

PyMODINIT_FUNC PyInit__kernels(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (add_object(module, "OPERATIONS", operation_table(name_of)) == 0 &&
        add_object(module, "OPERATION_ARGUMENTS", operation_table(arguments_of)) == 0)
        return module;
    Py_DECREF(module);
    return NULL;
}
