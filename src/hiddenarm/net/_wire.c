/* The lowest part of a link, for Python: waiting for bytes at a socket without sleeping, and frames that go out and come
 * in through TLS in one call each.
 *
 * To look from Python costs an exception each time there is nothing. Here a look is two system calls. TLS itself is
 * Python's: a Wire calls the methods of the objects that it was given.
 *
 * Of frames a Wire knows their header alone: what two frames have in common if they are the same round of the same run,
 * and where the length of the payload stands (net/frames.py).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* After so many looks a signal that has come meanwhile is seen to: some hundreds of microseconds. */
#define LOOKS_AT_A_STRETCH 512
#define NOTHING_YET (-1)
#define FAILED (-2)

#define RECORD_BYTES 16384 /* the most that one TLS record carries */
#define SPARE_BYTES (RECORD_BYTES + 1024) /* of a buffer: what an incomplete record of before may add */
#define ALIKE_BYTES 16 /* of a header: all but the length */
#define HEADER_BYTES 20

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* One look. */
static Py_ssize_t look(int number, char *bytes, Py_ssize_t most)
{
    const ssize_t count = recv(number, bytes, (size_t)most, MSG_DONTWAIT);
    if (count >= 0) return count;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? NOTHING_YET : FAILED;
}

/* Looks until something is there, the time is over or a stretch is; between two looks the core is left to others. */
static Py_ssize_t look_for_a_while(int number, char *bytes, Py_ssize_t most, double end)
{
    Py_ssize_t count = look(number, bytes, most);
    for (int looks = 1; count == NOTHING_YET && looks < LOOKS_AT_A_STRETCH && now() < end; looks++) {
        sched_yield();
        count = look(number, bytes, most);
    }
    return count;
}

/* Bytes received, 0 at the end of the stream, NOTHING_YET if nothing came by `end`, FAILED with an exception set. Other
 * threads run meanwhile. */
static Py_ssize_t wait_for_bytes(int number, char *bytes, Py_ssize_t most, double end)
{
    Py_ssize_t received = FAILED;
    do {
        int error;
        Py_BEGIN_ALLOW_THREADS
        received = look_for_a_while(number, bytes, most, end);
        error = errno;
        Py_END_ALLOW_THREADS
        errno = error;
        if (received == FAILED)
            PyErr_SetFromErrno(PyExc_OSError);
        else if (received == NOTHING_YET && PyErr_CheckSignals() < 0)
            received = FAILED;
    } while (received == NOTHING_YET && now() < end);
    return received;
}

static double end_of(double seconds) { return seconds > 0 ? now() + seconds : 0; }

/* A buffer that can be written; -1 with an exception set. */
static int get_buffer(PyObject *object, Py_buffer *buffer)
{
    return PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
}

static int descriptor_of(PyObject *object, int *number)
{
    const long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (value > INT_MAX || value < INT_MIN) {
        PyErr_SetString(PyExc_OverflowError, "no descriptor has this number");
        return -1;
    }
    *number = (int)value;
    return 0;
}

/* receive(number, buffer, seconds) -> bytes received, 0 at the end of the stream, -1 if nothing came in time. */
static PyObject *receive(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    int number;
    Py_buffer buffer;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "receive(number, buffer, seconds)");
        return NULL;
    }
    if (descriptor_of(args[0], &number) < 0) return NULL;
    const double seconds = PyFloat_AsDouble(args[2]);
    if (seconds == -1.0 && PyErr_Occurred()) return NULL;
    if (get_buffer(args[1], &buffer) < 0) return NULL;
    Py_ssize_t received = FAILED;
    if (buffer.len == 0)
        PyErr_SetString(PyExc_ValueError, "no room in the buffer: that would look like the end of the stream");
    else
        received = wait_for_bytes(number, buffer.buf, buffer.len, end_of(seconds));
    PyBuffer_Release(&buffer);
    return received == FAILED ? NULL : PyLong_FromSsize_t(received);
}

typedef struct {
    PyObject_HEAD
    int number;
    char ended;
    PyObject *arrived;      /* what TLS reads */
    PyObject *take_in;      /* arrived.write */
    PyObject *take_out;     /* leaving.read: what TLS has written */
    PyObject *encrypt;      /* tls.write */
    PyObject *decrypt;      /* tls.read */
    PyObject *record_bytes; /* the number */
    PyObject *pending;      /* the name of an attribute */
    PyObject *incomplete;   /* the exception: more must come */
    PyObject *closed;       /* the exception: TLS was ended by the peer */
} Wire;

/* Whatever it refers to, one after another; NULL after the last. */
static PyObject **reference(Wire *self, int at)
{
    PyObject **fields[] = {&self->arrived,      &self->take_in, &self->take_out,   &self->encrypt, &self->decrypt,
                           &self->record_bytes, &self->pending, &self->incomplete, &self->closed};
    return at < (int)(sizeof fields / sizeof *fields) ? fields[at] : NULL;
}

static int wire_traverse(Wire *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int at = 0; reference(self, at); at++) Py_VISIT(*reference(self, at));
    return 0;
}

static int wire_clear(Wire *self)
{
    for (int at = 0; reference(self, at); at++) Py_CLEAR(*reference(self, at));
    return 0;
}

static void wire_dealloc(Wire *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    wire_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* Wire(number, arrived, leaving, tls): of a socket that does not block, and what TLS reads, writes and is. */
static int wire_init(Wire *self, PyObject *args, PyObject *options)
{
    PyObject *number, *arrived, *leaving, *tls;
    if (options && PyDict_GET_SIZE(options)) {
        PyErr_SetString(PyExc_TypeError, "Wire(number, arrived, leaving, tls)");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OOOO:Wire", &number, &arrived, &leaving, &tls)) return -1;
    if (descriptor_of(number, &self->number) < 0) return -1;
    PyObject *ssl = PyImport_ImportModule("ssl");
    if (!ssl) return -1;
    wire_clear(self);
    self->arrived = Py_NewRef(arrived);
    self->take_in = PyObject_GetAttrString(arrived, "write");
    self->take_out = PyObject_GetAttrString(leaving, "read");
    self->encrypt = PyObject_GetAttrString(tls, "write");
    self->decrypt = PyObject_GetAttrString(tls, "read");
    self->record_bytes = PyLong_FromLong(RECORD_BYTES);
    self->pending = PyUnicode_InternFromString("pending");
    self->incomplete = PyObject_GetAttrString(ssl, "SSLWantReadError");
    self->closed = PyObject_GetAttrString(ssl, "SSLZeroReturnError");
    Py_DECREF(ssl);
    for (int at = 0; reference(self, at); at++)
        if (!*reference(self, at)) return -1;
    return 0;
}

static int is_ready(const Wire *self)
{
    if (self->closed) return 1;
    PyErr_SetString(PyExc_ValueError, "this Wire was not initialised");
    return 0;
}

/* push() -> what TLS has written is given to the socket; the bytes that it did not take, None if it took all. */
static PyObject *wire_push(Wire *self, PyObject *unused)
{
    (void)unused;
    if (!is_ready(self)) return NULL;
    PyObject *data = PyObject_CallNoArgs(self->take_out);
    char *bytes;
    Py_ssize_t size;
    if (!data || PyBytes_AsStringAndSize(data, &bytes, &size) < 0) {
        Py_XDECREF(data);
        return NULL;
    }
    ssize_t taken = 0;
    if (size) {
        int error;
        Py_BEGIN_ALLOW_THREADS
        taken = send(self->number, bytes, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
        error = errno;
        Py_END_ALLOW_THREADS
        errno = error;
    }
    if (taken < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) taken = 0;
    PyObject *rest = NULL;
    if (taken < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    else
        rest = taken == size ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(bytes + taken, size - taken);
    Py_DECREF(data);
    return rest;
}

/* send(data) -> encrypted and given to the socket, as `push` tells. */
static PyObject *wire_send(Wire *self, PyObject *data)
{
    if (!is_ready(self)) return NULL;
    PyObject *written = PyObject_CallOneArg(self->encrypt, data);
    if (!written) return NULL;
    Py_DECREF(written);
    return wire_push(self, NULL);
}

static PyObject *slice(char *bytes, Py_ssize_t size, int flags) { return PyMemoryView_FromMemory(bytes, size, flags); }

/* Hands TLS what was received. */
static int take_in(Wire *self, char *bytes, Py_ssize_t size)
{
    PyObject *view = slice(bytes, size, PyBUF_READ);
    PyObject *done = view ? PyObject_CallOneArg(self->take_in, view) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* How many bytes lie there that TLS has not read. */
static Py_ssize_t pending(Wire *self)
{
    PyObject *value = PyObject_GetAttr(self->arrived, self->pending);
    if (!value) return -1;
    const Py_ssize_t size = PyLong_AsSsize_t(value);
    Py_DECREF(value);
    return size;
}

/* TLS was ended by the peer: nothing that it sends after that is read. */
static int end_reading(Wire *self)
{
    self->ended = 1;
    PyObject *thrown_away = PyObject_CallMethod(self->arrived, "read", NULL);
    Py_XDECREF(thrown_away);
    return thrown_away ? 0 : -1;
}

/* One record: its bytes, 0 if none is complete, FAILED with an exception set. */
static Py_ssize_t decrypt_record(Wire *self, char *bytes, Py_ssize_t room)
{
    PyObject *view = slice(bytes, room, PyBUF_WRITE);
    if (!view) return FAILED;
    PyObject *args[] = {self->record_bytes, view};
    PyObject *count = PyObject_Vectorcall(self->decrypt, args, 2, NULL);
    Py_DECREF(view);
    Py_ssize_t size = 0;
    if (count) {
        size = PyLong_AsSsize_t(count);
        Py_DECREF(count);
        if (size < 0 || size > room) return FAILED;
    } else if (PyErr_ExceptionMatches(self->incomplete)) {
        PyErr_Clear();
        return 0;
    } else if (PyErr_ExceptionMatches(self->closed)) {
        PyErr_Clear();
    } else {
        return FAILED;
    }
    return size || end_reading(self) == 0 ? size : FAILED;
}

/* All complete records, one after another; FAILED with an exception set. There is room for them: a record is shorter in
 * the clear, and never was more taken in than there is room for. */
static Py_ssize_t decrypt_all(Wire *self, char *bytes, Py_ssize_t room)
{
    Py_ssize_t filled = 0;
    while (filled < room) {
        const Py_ssize_t left = pending(self);
        if (left < 0) return FAILED;
        if (!left) break;
        const Py_ssize_t count = decrypt_record(self, bytes + filled, room - filled);
        if (count < 0) return FAILED;
        if (!count) break;
        filled += count;
    }
    return filled;
}

/* What comes by `end`, in the clear: how much it is, NOTHING_YET if nothing came, FAILED with an exception set. */
static Py_ssize_t read_by(Wire *self, char *bytes, Py_ssize_t room, double end)
{
    if (!self->ended) {
        const Py_ssize_t count = wait_for_bytes(self->number, bytes, room - SPARE_BYTES, end);
        if (count == FAILED) return FAILED;
        if (count == NOTHING_YET) return NOTHING_YET;
        if (!count)
            self->ended = 1;
        else if (take_in(self, bytes, count) < 0)
            return FAILED;
    }
    return decrypt_all(self, bytes, room);
}

/* A buffer with room for a record, and seconds. */
static int get_room(PyObject *object, PyObject *time, Py_buffer *buffer, double *end)
{
    const double seconds = PyFloat_AsDouble(time);
    if (seconds == -1.0 && PyErr_Occurred()) return -1;
    *end = end_of(seconds);
    if (get_buffer(object, buffer) < 0) return -1;
    if (buffer->len > 2 * SPARE_BYTES) return 0;
    PyBuffer_Release(buffer);
    PyErr_SetString(PyExc_ValueError, "the buffer has no room for a record");
    return -1;
}

/* read(buffer, seconds) -> how many bytes have come, decrypted, into the buffer. Looks once, or until something is there
 * or the time is over. `ended` tells whether more will come. */
static PyObject *wire_read(Wire *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer buffer;
    double end;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "read(buffer, seconds)");
        return NULL;
    }
    if (!is_ready(self) || get_room(args[0], args[1], &buffer, &end) < 0) return NULL;
    Py_ssize_t filled = read_by(self, buffer.buf, buffer.len, end);
    if (filled == NOTHING_YET) filled = decrypt_all(self, buffer.buf, buffer.len); /* it may have come with a handshake */
    PyBuffer_Release(&buffer);
    return filled == FAILED ? NULL : PyLong_FromSsize_t(filled);
}

/* Whether these bytes are one whole frame, with the header of another but for the length. NOTHING_YET: not whole yet. */
static Py_ssize_t is_answer(const unsigned char *bytes, Py_ssize_t filled, const char *asked)
{
    const Py_ssize_t alike = filled < ALIKE_BYTES ? filled : ALIKE_BYTES;
    if (memcmp(bytes, asked, (size_t)alike) != 0) return 0;
    if (filled < HEADER_BYTES) return NOTHING_YET;
    const uint32_t length = (uint32_t)bytes[16] | (uint32_t)bytes[17] << 8 | (uint32_t)bytes[18] << 16 |
                            (uint32_t)bytes[19] << 24;
    const uint64_t size = (uint64_t)length + HEADER_BYTES;
    if ((uint64_t)filled == size) return 1;
    return (uint64_t)filled < size ? NOTHING_YET : 0;
}

/* answer(asked, buffer, seconds) -> the payload of the next frame, if it has the header of the frame `asked` but for the
 * length, and nothing comes with it; otherwise how many bytes have come, in the clear, into the buffer. */
static PyObject *wire_answer(Wire *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer buffer;
    double end;
    if (count != 3 || !PyBytes_Check(args[0]) || PyBytes_GET_SIZE(args[0]) < HEADER_BYTES) {
        PyErr_SetString(PyExc_TypeError, "answer(frame, buffer, seconds)");
        return NULL;
    }
    if (!is_ready(self) || get_room(args[1], args[2], &buffer, &end) < 0) return NULL;
    char *bytes = buffer.buf;
    Py_ssize_t filled = 0, whole = NOTHING_YET;
    while (whole == NOTHING_YET && !self->ended && buffer.len - filled > SPARE_BYTES) {
        const Py_ssize_t more = read_by(self, bytes + filled, buffer.len - filled, end);
        if (more == FAILED) filled = FAILED;
        if (more < 0) break;
        filled += more;
        whole = is_answer((unsigned char *)bytes, filled, PyBytes_AS_STRING(args[0]));
    }
    PyObject *result = NULL;
    if (whole == 1)
        result = PyBytes_FromStringAndSize(bytes + HEADER_BYTES, filled - HEADER_BYTES);
    else if (filled != FAILED)
        result = PyLong_FromSsize_t(filled);
    PyBuffer_Release(&buffer);
    return result;
}

/* close() -> the descriptor is used no more: it may soon be somebody else's. */
static PyObject *wire_close(Wire *self, PyObject *unused)
{
    (void)unused;
    self->number = -1;
    Py_RETURN_NONE;
}

static PyMethodDef wire_methods[] = {
    {"send", (PyCFunction)wire_send, METH_O, "Encrypt and send; the bytes that the socket did not take."},
    {"push", (PyCFunction)wire_push, METH_NOARGS, "Send what TLS has written; the bytes that the socket did not take."},
    {"close", (PyCFunction)wire_close, METH_NOARGS, "Use the socket no more."},
    {"read", (PyCFunction)(void (*)(void))wire_read, METH_FASTCALL, "What has come, decrypted, into a buffer."},
    {"answer", (PyCFunction)(void (*)(void))wire_answer, METH_FASTCALL, "The payload of a frame that answers another."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef wire_members[] = {
    {"ended", T_BOOL, offsetof(Wire, ended), READONLY, "Whether nothing more will come."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot wire_slots[] = {
    {Py_tp_doc, "A socket and its TLS: frames out and in, in one call each."},
    {Py_tp_init, wire_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, wire_dealloc},
    {Py_tp_traverse, wire_traverse},
    {Py_tp_clear, wire_clear},
    {Py_tp_methods, wire_methods},
    {Py_tp_members, wire_members},
    {0, NULL},
};

static PyType_Spec wire_spec = {"hiddenarm.net._wire.Wire", sizeof(Wire), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                wire_slots};

static PyMethodDef methods[] = {
    {"receive", (PyCFunction)(void (*)(void))receive, METH_FASTCALL, "Wait for bytes at a socket, awake."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_wire", "A socket and its TLS.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__wire(void)
{
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module ? PyType_FromSpec(&wire_spec) : NULL;
    if (type && PyModule_AddObjectRef(module, "Wire", type) < 0) Py_CLEAR(module);
    if (!type) Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
