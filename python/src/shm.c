/* Blocks of memory that processes share, and the types of what is in them. */
#include "shm.h"
#include "lease.h"
#include <errno.h>
#include <stdlib.h>

/* ---- lifetimes ---- */

static void block_put(struct core_shm *block)
{
    if (!block || atomic_fetch_sub(&block->refs, 1) != 1)
        return;
    mr_shm_close(block->shm);
    core_device_put(block->device);
    free(block);
}

struct core_shm_part *core_shm_share(struct core_shm_part *part)
{
    atomic_fetch_add(&part->refs, 1);
    return part;
}

void core_shm_put(struct core_shm_part *part)
{
    if (!part || atomic_fetch_sub(&part->refs, 1) != 1)
        return;
    mr_shm_pool_close(part->pool);
    mr_shm_ring_close(part->ring);
    block_put(part->block);
    free(part);
}

/* ---- objects ---- */

struct block_object {
    PyObject_HEAD struct core_shm *block; /* NULL: closed */
};

static struct core_shm *block_of(PyObject *self)
{
    struct core_shm *block = ((struct block_object *)self)->block;
    if (!block)
        PyErr_SetString(PyExc_ValueError, "the shared block is closed");
    return block;
}

PyObject *core_shm_fail(PyObject *self, int64_t rc)
{
    return core_fail(core_of(self), (int)rc, NULL);
}

/* ---- blocks ---- */

static int block_open(PyObject *self, int fd, uint64_t bytes, const char *device)
{
    struct core_shm *block = calloc(1, sizeof *block);
    unsigned flags = device ? MR_SHM_PINNED : 0;
    int rc = 0;
    if (!block)
        return mr_error_set(-ENOMEM, "a shared block: out of memory");
    atomic_init(&block->refs, 1);
    Py_BEGIN_ALLOW_THREADS;
    if (device)
        rc = core_device_get(device, &block->device);
    struct mr_device *dev = block->device ? core_device_of(block->device) : NULL;
    if (rc == 0)
        rc = fd < 0 ? mr_shm_create(dev, bytes, flags, &block->shm)
                    : mr_shm_attach(dev, fd, flags, &block->shm);
    Py_END_ALLOW_THREADS;
    if (rc == 0)
        ((struct block_object *)self)->block = block;
    else
        block_put(block);
    return rc;
}

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"bytes", "fd", "device", NULL};
    unsigned long long bytes = 0;
    int fd = -1;
    const char *device = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|Kiz:ShmBlock", names, &bytes, &fd, &device))
        return NULL;
    PyObject *self = core_new(type);
    int rc = self ? block_open(self, fd, bytes, device) : 0;
    if (rc < 0) {
        core_shm_fail(self, rc);
        Py_CLEAR(self);
    }
    return self;
}

static PyObject *block_fileno(PyObject *self, PyObject *unused)
{
    struct core_shm *block = block_of(self);
    (void)unused;
    return block ? PyLong_FromLong(mr_shm_fd(block->shm)) : NULL;
}

static PyObject *part_create(PyObject *self, PyTypeObject *type, const struct core_shm_part *found)
{
    struct core_shm_object *object = core_new(type);
    struct core_shm_part *part = object ? malloc(sizeof *part) : NULL;
    if (!part) {
        mr_shm_pool_close(found->pool);
        mr_shm_ring_close(found->ring);
        Py_XDECREF((PyObject *)object);
        return PyErr_NoMemory();
    }
    *part = *found;
    part->block = block_of(self);
    atomic_fetch_add(&part->block->refs, 1);
    atomic_init(&part->refs, 1);
    object->part = part;
    return (PyObject *)object;
}

static int read_spec(PyObject *object, struct mr_spec *out)
{
    struct mr_spec specs[MR_MAX_FIELDS];
    PyObject *tuple = PyTuple_Pack(1, object);
    int n = tuple ? core_specs_read(tuple, specs) : -1;
    Py_XDECREF(tuple);
    *out = specs[0];
    if (n == 1 && (out->kind != MR_KIND_TENSOR || out->var_dims)) {
        PyErr_SetString(PyExc_ValueError, "a pool's tensors have numbers and one shape");
        n = -1;
    }
    return n;
}

/* pool(name): finds it. pool(name, spec, n): makes it. */
static PyObject *block_pool(PyObject *self, PyObject *args)
{
    struct core_shm *block = block_of(self);
    struct core_shm_part part = {.block = block};
    struct mr_spec spec;
    const char *name;
    PyObject *given = NULL;
    unsigned long long n = 0;
    if (!block || !PyArg_ParseTuple(args, "s|OK:pool", &name, &given, &n) ||
        (given && read_spec(given, &spec) < 0))
        return NULL;
    int rc = given ? mr_shm_pool_create(block->shm, name, &spec, n, &part.pool)
                   : mr_shm_pool_attach(block->shm, name, &part.pool);
    return rc < 0 ? core_shm_fail(self, rc) : part_create(self, core_of(self)->shm_pool, &part);
}

/* ring(name): finds it. ring(name, n): makes it. */
static PyObject *block_ring(PyObject *self, PyObject *args)
{
    struct core_shm *block = block_of(self);
    struct core_shm_part part = {.block = block};
    const char *name;
    unsigned long long n = 0;
    if (!block || !PyArg_ParseTuple(args, "s|K:ring", &name, &n))
        return NULL;
    int rc = PyTuple_Size(args) == 2 ? mr_shm_ring_create(block->shm, name, n, &part.ring)
                                     : mr_shm_ring_attach(block->shm, name, &part.ring);
    return rc < 0 ? core_shm_fail(self, rc) : part_create(self, core_of(self)->shm_ring, &part);
}

static PyObject *size_of(uint64_t bytes)
{
    if (bytes != UINT64_MAX)
        return PyLong_FromUnsignedLongLong(bytes);
    PyErr_SetString(PyExc_ValueError, "a pool or ring of this size is not possible");
    return NULL;
}

static PyObject *pool_bytes(PyObject *unused, PyObject *args)
{
    struct mr_spec spec;
    PyObject *given;
    unsigned long long n;
    (void)unused;
    if (!PyArg_ParseTuple(args, "OK:pool_bytes", &given, &n) || read_spec(given, &spec) < 0)
        return NULL;
    return size_of(mr_shm_pool_bytes(&spec, n));
}

static PyObject *ring_bytes(PyObject *unused, PyObject *args)
{
    unsigned long long n;
    (void)unused;
    return PyArg_ParseTuple(args, "K:ring_bytes", &n) ? size_of(mr_shm_ring_bytes(n)) : NULL;
}

static PyObject *block_close(PyObject *self, PyObject *unused)
{
    struct block_object *object = (struct block_object *)self;
    struct core_shm *block = object->block;
    (void)unused;
    object->block = NULL;
    block_put(block);
    Py_RETURN_NONE;
}

static void block_dealloc(PyObject *self)
{
    block_put(((struct block_object *)self)->block);
    core_free(self);
}

static void part_dealloc(PyObject *self)
{
    core_shm_put(((struct core_shm_object *)self)->part);
    core_free(self);
}

/* ---- types ---- */

static PyMethodDef block_methods[] = {
    {"fileno", block_fileno, METH_NOARGS, "fileno(): the block's descriptor."},
    {"pool", block_pool, METH_VARARGS, "pool(name[, spec, n]): finds a pool, or makes it."},
    {"ring", block_ring, METH_VARARGS, "ring(name[, n]): finds a ring, or makes it."},
    {"pool_bytes", pool_bytes, METH_VARARGS | METH_STATIC, "pool_bytes(spec, n)"},
    {"ring_bytes", ring_bytes, METH_VARARGS | METH_STATIC, "ring_bytes(n)"},
    {"close", block_close, METH_NOARGS, "close(): what is in use keeps its memory."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot block_slots[] = {{Py_tp_new, block_new},
                                    {Py_tp_dealloc, block_dealloc},
                                    {Py_tp_methods, block_methods},
                                    {Py_tp_doc, "ShmBlock(bytes=0, fd=-1, device=None)"},
                                    {0, NULL}};
static PyType_Spec block_spec = {"millrace._core.ShmBlock", sizeof(struct block_object), 0,
                                 Py_TPFLAGS_DEFAULT, block_slots};

static PyType_Slot pool_slots[] = {{Py_tp_dealloc, part_dealloc},
                                   {Py_tp_methods, core_shm_pool_methods},
                                   {Py_tp_doc, "Tensors of one spec in a block."},
                                   {0, NULL}};
static PyType_Spec pool_spec_type = {"millrace._core.ShmPool", sizeof(struct core_shm_object), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                     pool_slots};

static PyType_Slot ring_slots[] = {{Py_tp_dealloc, part_dealloc},
                                   {Py_tp_methods, core_shm_ring_methods},
                                   {Py_tp_doc, "A queue of 64-bit values in a block."},
                                   {0, NULL}};
static PyType_Spec ring_spec = {"millrace._core.ShmRing", sizeof(struct core_shm_object), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, ring_slots};

int core_shm_init(PyObject *module, struct core *core)
{
    core->shm_pool = (PyTypeObject *)PyType_FromModuleAndSpec(module, &pool_spec_type, NULL);
    core->shm_ring = (PyTypeObject *)PyType_FromModuleAndSpec(module, &ring_spec, NULL);
    PyObject *block = PyType_FromModuleAndSpec(module, &block_spec, NULL);
    int rc = -1;
    if (core->shm_pool && core->shm_ring && block)
        rc = PyModule_AddObjectRef(module, "ShmBlock", block);
    if (rc == 0)
        rc = PyModule_AddObjectRef(module, "ShmPool", (PyObject *)core->shm_pool);
    if (rc == 0)
        rc = PyModule_AddObjectRef(module, "ShmRing", (PyObject *)core->shm_ring);
    Py_XDECREF(block);
    return rc;
}
