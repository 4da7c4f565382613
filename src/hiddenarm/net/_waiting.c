/* Waiting for bytes at a socket without sleeping, for Python: one call, however often it has to look.
 *
 * To look from Python costs an exception each time there is nothing. Here a look is two system calls.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

/* After so many looks a signal that has come meanwhile is seen to: some hundreds of microseconds. */
#define LOOKS_AT_A_STRETCH 512
#define NOTHING_YET (-1)
#define FAILED (-2)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* One look. */
static Py_ssize_t look(int number, const Py_buffer *buffer)
{
    const ssize_t count = recv(number, buffer->buf, (size_t)buffer->len, MSG_DONTWAIT);
    if (count >= 0) return count;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? NOTHING_YET : FAILED;
}

/* Looks until something is there, the time is over or a stretch is; between two looks the core is left to others. */
static Py_ssize_t look_for_a_while(int number, const Py_buffer *buffer, double end)
{
    Py_ssize_t count = look(number, buffer);
    for (int looks = 1; count == NOTHING_YET && looks < LOOKS_AT_A_STRETCH && now() < end; looks++) {
        sched_yield();
        count = look(number, buffer);
    }
    return count;
}

/* receive(number, buffer, seconds) -> bytes received, 0 at the end of the stream, -1 if nothing came in time. Other
 * threads run meanwhile. */
static PyObject *receive(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "receive(number, buffer, seconds)");
        return NULL;
    }
    const long number = PyLong_AsLong(args[0]);
    if (number == -1 && PyErr_Occurred()) return NULL;
    const double seconds = PyFloat_AsDouble(args[2]);
    if (seconds == -1.0 && PyErr_Occurred()) return NULL;
    if (number > INT_MAX || number < INT_MIN) {
        PyErr_SetString(PyExc_OverflowError, "no descriptor has this number");
        return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(args[1], &buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) return NULL;
    Py_ssize_t received = FAILED;
    if (buffer.len == 0) {
        PyErr_SetString(PyExc_ValueError, "no room in the buffer: that would look like the end of the stream");
        goto done;
    }
    const double end = seconds > 0 ? now() + seconds : 0;
    do {
        int error;
        Py_BEGIN_ALLOW_THREADS
        received = look_for_a_while((int)number, &buffer, end);
        error = errno;
        Py_END_ALLOW_THREADS
        errno = error;
        if (received == FAILED)
            PyErr_SetFromErrno(PyExc_OSError);
        else if (received == NOTHING_YET && PyErr_CheckSignals() < 0)
            received = FAILED;
    } while (received == NOTHING_YET && now() < end);
done:
    PyBuffer_Release(&buffer);
    return received == FAILED ? NULL : PyLong_FromSsize_t(received);
}

static PyMethodDef methods[] = {
    {"receive", (PyCFunction)(void (*)(void))receive, METH_FASTCALL, "Wait for bytes at a socket, awake."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_waiting", "Waiting without sleeping.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__waiting(void) { return PyModule_Create(&definition); }
