/* millrace._core.Chain: ops on single pictures, outside of a loader. */
#include "field.h"
#include "view.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A chain that is bound to pictures of one size. One thread at a time uses it. */
struct bound {
    struct bound *next;
    struct mr_transform *ops;
    struct mr_spec in;
    void *scratch;
};

struct chain {
    PyObject_HEAD char *text;
    pthread_mutex_t lock;
    struct bound *idle;
};

/* The key of a sample's random numbers. */
struct key {
    unsigned long long epoch, seed, index;
};

/* ---- life ---- */

static void bound_destroy(struct bound *b)
{
    mr_transform_destroy(b->ops);
    free(b->scratch);
    free(b);
}

static int bound_create(const char *text, struct bound **out)
{
    struct bound *b = calloc(1, sizeof *b);
    if (!b)
        return mr_error_set(-ENOMEM, "chain: out of memory");
    int rc = mr_transform_create(&b->ops);
    if (rc == 0 && text[0])
        rc = mr_transform_add(b->ops, text);
    if (rc == 0)
        *out = b;
    else
        bound_destroy(b);
    return rc;
}

static PyObject *chain_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    const char *text;
    struct bound *first = NULL;
    if (named || !PyArg_ParseTuple(args, "s:Chain", &text)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "Chain() takes no keyword arguments");
        return NULL;
    }
    int rc = bound_create(text, &first); /* checks the text */
    if (rc < 0 || !first)
        return core_fail(core_of((PyObject *)type), rc, NULL);
    struct chain *c = core_new(type);
    char *copy = strdup(text);
    if (!c || !copy) {
        bound_destroy(first);
        free(copy);
        Py_XDECREF((PyObject *)c);
        return c ? PyErr_NoMemory() : NULL;
    }
    c->text = copy;
    c->idle = first;
    pthread_mutex_init(&c->lock, NULL);
    return (PyObject *)c;
}

static void chain_dealloc(PyObject *self)
{
    struct chain *c = (struct chain *)self;
    for (struct bound *b = c->idle, *next; b; b = next) {
        next = b->next;
        bound_destroy(b);
    }
    if (c->text)
        pthread_mutex_destroy(&c->lock);
    free(c->text);
    core_free(self);
}

/* ---- bound to a size ---- */

static int same_shape(const struct mr_spec *a, const struct mr_spec *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

/* One of this shape if there is one, else any. NULL: all are in use. */
static struct bound *take_idle(struct chain *c, const struct mr_spec *in)
{
    pthread_mutex_lock(&c->lock);
    struct bound **at = &c->idle;
    while (*at && !same_shape(&(*at)->in, in))
        at = &(*at)->next;
    if (!*at)
        at = &c->idle;
    struct bound *b = *at;
    if (b)
        *at = b->next;
    pthread_mutex_unlock(&c->lock);
    return b;
}

static void give_back(struct chain *c, struct bound *b)
{
    pthread_mutex_lock(&c->lock);
    b->next = c->idle;
    c->idle = b;
    pthread_mutex_unlock(&c->lock);
}

static int bind_to(struct bound *b, const struct mr_spec *in)
{
    memset(&b->in, 0, sizeof b->in);
    int rc = mr_transform_bind(b->ops, in, 1);
    if (rc < 0)
        return rc;
    free(b->scratch);
    uint64_t bytes = mr_transform_scratch_bytes(b->ops);
    b->scratch = aligned_alloc(64, (bytes + 64) & ~(uint64_t)63);
    if (!b->scratch)
        return mr_error_set(-ENOMEM, "chain: out of memory");
    b->in = *in;
    return 0;
}

static int take(struct chain *c, const struct mr_spec *in, struct bound **out)
{
    struct bound *b = take_idle(c, in);
    int rc = b ? 0 : bound_create(c->text, &b);
    if (rc == 0 && !same_shape(&b->in, in))
        rc = bind_to(b, in);
    if (rc == 0)
        *out = b;
    else if (b)
        give_back(c, b);
    return rc;
}

/* ---- ops on a picture; without the GIL ---- */

/* A picture, or what the ops made of it. */
struct made {
    struct core_lease *lease;
    struct core_field_view view;
};

static int apply(struct chain *c, const struct mr_spec *in, const void *pixels,
                 const struct key *key, struct made *out)
{
    struct bound *b = NULL;
    uint64_t bytes, dim[1][MR_MAX_RANK], out_dim[MR_MAX_FIELDS][MR_MAX_RANK];
    void *rows[1];
    int rc = take(c, in, &b);
    if (rc < 0 || !b)
        return rc;
    const struct mr_spec *spec = mr_transform_specs(b->ops);
    rc = mr_transform_fields(b->ops) == 1
             ? mr_spec_bytes(spec, &bytes)
             : mr_error_set(MR_EMISUSE, "chain: expected one field as its result");
    if (rc < 0)
        goto end;
    out->lease = core_lease_alloc(bytes);
    if (!out->lease) {
        rc = mr_error_set(-ENOMEM, "chain: no memory for a picture of %llu bytes",
                          (unsigned long long)bytes);
        goto end;
    }
    out->view = (struct core_field_view){.data = out->lease->own, .spec = *spec, .text = -1};
    memcpy(dim[0], in->dim, sizeof dim[0]);
    rows[0] = out->lease->own;
    rc = mr_transform_apply_all(b->ops, key->seed, key->epoch, key->index, &pixels, dim, rows,
                                out_dim, b->scratch);
    memcpy(out->view.spec.dim, out_dim[0], sizeof out->view.spec.dim);
    out->view.spec.var_dims = 0;
end:
    give_back(c, b);
    return rc;
}

static void picture_spec(struct mr_spec *out, uint64_t a, uint64_t b, uint64_t c)
{
    memset(out, 0, sizeof *out);
    strcpy(out->name, "image");
    out->dtype = MR_U8;
    out->rank = 3;
    out->dim[0] = a;
    out->dim[1] = b;
    out->dim[2] = c;
}

static int read_fd(int fd, unsigned char **out, uint64_t *n)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    uint64_t size = (uint64_t)st.st_size, done = 0;
    unsigned char *bytes = malloc(size + 1);
    if (!bytes)
        return -ENOMEM;
    while (done < size) {
        ssize_t got = read(fd, bytes + done, size - done);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR) {
            int rc = -errno;
            free(bytes);
            return rc;
        }
        done += got > 0 ? (uint64_t)got : 0;
    }
    *out = bytes;
    *n = done;
    return 0;
}

static int read_file(const char *path, unsigned char **out, uint64_t *n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : read_fd(fd, out, n);
    if (fd >= 0)
        close(fd);
    return rc < 0 ? mr_error_set(rc, "%s: %s", path, strerror(-rc)) : 0;
}

/* Gray of 16 bits, which Pillow clips and the library scales. */
static int is_deep_gray(const unsigned char *bytes, uint64_t n)
{
    return n > 25 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0 && bytes[24] == 16 &&
           bytes[25] == 0;
}

/* As Pillow's convert("RGB") gives a file: upright or not, without what lies behind it. */
static int decode(const char *path, uint64_t max_pixels, void **pixels, struct mr_spec *spec)
{
    struct mr_picture_opts opts = {
        .color = MR_PICTURE_RGB, .ignore_orientation = 1, .exact = 1, .max_pixels = max_pixels};
    unsigned char *bytes = NULL;
    uint64_t n = 0;
    uint32_t height, width;
    int rc = read_file(path, &bytes, &n);
    if (rc == 0 && is_deep_gray(bytes, n))
        rc = mr_error_set(MR_EUNSUPPORTED, "%s: gray of 16 bits", path);
    if (rc == 0)
        rc = mr_picture_decode(path, bytes, n, &opts, 0, pixels, &height, &width);
    if (rc == 0)
        picture_spec(spec, height, width, 3);
    free(bytes);
    return rc;
}

/* ---- methods ---- */

static PyObject *finish(PyObject *self, int rc, struct made *made)
{
    PyObject *field = rc < 0 ? core_fail(core_of(self), rc, NULL)
                             : core_field_create(core_of(self), made->lease, &made->view);
    if (made->lease)
        core_lease_put(made->lease);
    return field;
}

static PyObject *chain_read(PyObject *self, PyObject *args)
{
    PyObject *path;
    struct key key;
    unsigned long long max_pixels;
    if (!PyArg_ParseTuple(args, "O&KKKK:read", PyUnicode_FSConverter, &path, &key.epoch, &key.seed,
                          &key.index, &max_pixels))
        return NULL;
    struct made made = {0};
    struct mr_spec spec;
    void *pixels = NULL;
    const char *name = PyBytes_AsString(path);
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = decode(name, max_pixels, &pixels, &spec);
    if (rc == 0)
        rc = apply((struct chain *)self, &spec, pixels, &key, &made);
    free(pixels);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    return finish(self, rc, &made);
}

static int spec_of(const struct core_view *view, struct mr_spec *out)
{
    const int64_t *s = view->shape;
    if (view->dtype != MR_U8 || !core_view_is_dense(view) || (view->ndim != 2 && view->ndim != 3)) {
        PyErr_SetString(PyExc_ValueError,
                        "expected C-contiguous u8[height,width] or u8[height,width,channels]");
        return -1;
    }
    if (view->ndim == 2)
        picture_spec(out, 1, (uint64_t)s[0], (uint64_t)s[1]);
    else
        picture_spec(out, (uint64_t)s[0], (uint64_t)s[1], (uint64_t)s[2]);
    return 0;
}

static PyObject *chain_apply(PyObject *self, PyObject *args)
{
    PyObject *array;
    struct key key;
    if (!PyArg_ParseTuple(args, "OKKK:apply", &array, &key.epoch, &key.seed, &key.index))
        return NULL;
    struct core_view view;
    struct core_kind kind = core_kind_of(core_of(self), array);
    if (core_view_begin(&kind, array, &view) < 0)
        return NULL;
    struct made made = {0};
    struct mr_spec spec;
    int rc = spec_of(&view, &spec);
    PyObject *field = NULL;
    if (rc == 0) {
        Py_BEGIN_ALLOW_THREADS;
        rc = apply((struct chain *)self, &spec, view.data, &key, &made);
        Py_END_ALLOW_THREADS;
        field = finish(self, rc, &made);
    }
    core_view_end(&view);
    return field;
}

static PyMethodDef methods[] = {
    {"read", chain_read, METH_VARARGS,
     "read(path, epoch, seed, index, max_pixels): the ops' result of a picture file."},
    {"apply", chain_apply, METH_VARARGS,
     "apply(array, epoch, seed, index): the ops' result of u8[h,w], taken as u8[1,h,w], or "
     "u8[h,w,c]."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_new, chain_new},
    {Py_tp_dealloc, chain_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Chain(transform): ops on single pictures. Any number of threads may use it."},
    {0, NULL}};
PyType_Spec core_chain_spec = {"millrace._core.Chain", sizeof(struct chain), 0, Py_TPFLAGS_DEFAULT,
                               slots};
