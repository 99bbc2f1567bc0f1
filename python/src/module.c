/* The module millrace._core. */
#include "attached.h"
#include "field.h"
#include "view.h"
#include "workers.h"
#include <millrace/system.h>
#include <stdlib.h>

struct core *core_of(PyObject *self)
{
    PyObject *type = PyType_Check(self) ? self : (PyObject *)Py_TYPE(self);
    return PyType_GetModuleState((PyTypeObject *)type);
}

void *core_new(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

void core_free(void *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc free_it = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_it(self);
    Py_DECREF((PyObject *)type);
}

/* ---- functions ---- */

static PyObject *place(PyObject *module, PyObject *unused)
{
    (void)unused;
    struct mr_place p = {.size = sizeof p};
    int rc = mr_place_query(&p);
    if (rc < 0)
        return core_fail(PyModule_GetState(module), rc, NULL);
    return Py_BuildValue("(IIIIIs)", p.rank, p.world, p.local_rank, p.local_world, p.restart_count,
                         p.launcher);
}

/* Called by atexit, while threads can still take the GIL. */
static PyObject *end(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    core_engine_close_all();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* Of each sample that worker processes make: a loop in Python takes ten times as long. */
static PyObject *all_tuples(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *items;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "On:all_tuples", &items, &n))
        return NULL;
    Py_ssize_t length = PyList_Check(items) ? PyList_Size(items) : -1, i = 0;
    while (i < length) {
        PyObject *item = PyList_GetItem(items, i);
        if (!PyTuple_CheckExact(item) || PyTuple_Size(item) != n)
            break;
        i++;
    }
    return PyBool_FromLong(i == length);
}

static PyObject *cpu_count(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong(mr_cpu_count());
}

static PyMethodDef functions[] = {
    {"cpu_count", cpu_count, METH_NOARGS,
     "cpu_count(): processors that this process may use, by affinity and cgroup quota."},
    {"place", place, METH_NOARGS,
     "place(): (rank, world, local rank, local world, restarts, launcher), by the environment."},
    {"all_tuples", all_tuples, METH_VARARGS,
     "all_tuples(items, n): whether all items of a list are plain tuples of n."},
    {"worker_run", core_worker_run, METH_VARARGS,
     "worker_run(fd, fields, fetch): makes samples in a worker process until its parent is done."},
    {"workers_end", core_workers_end, METH_NOARGS, "workers_end(): no worker is started any more."},
    {"_end", end, METH_NOARGS, "Closes all loaders."},
    {NULL, NULL, 0, NULL}};

/* ---- the module ---- */

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddObjectRef(module, name, (PyObject *)*out) : -1;
}

static int add_types(PyObject *module, struct core *core)
{
    if (add_type(module, &core_dataset_spec, "Dataset", &core->dataset) < 0 ||
        add_type(module, &core_sampler_spec, "Sampler", &core->sampler) < 0 ||
        add_type(module, &core_loader_spec, "Loader", &core->loader) < 0 ||
        add_type(module, &core_batch_spec, "Batch", &core->batch) < 0 ||
        add_type(module, &core_attached_spec, "Attached", &core->attached) < 0 ||
        add_type(module, &core_chain_spec, "Chain", &core->chain) < 0)
        return -1;
    return add_type(module, &core_field_spec, "Field", &core->field);
}

/* At the interpreter's end the loaders' threads are ended before it refuses them the GIL. */
static int register_end(PyObject *module)
{
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *end_function = PyObject_GetAttrString(module, "_end");
    PyObject *done =
        atexit && end_function ? PyObject_CallMethod(atexit, "register", "O", end_function) : NULL;
    int rc = done ? 0 : -1;
    Py_XDECREF(done);
    Py_XDECREF(end_function);
    Py_XDECREF(atexit);
    return rc;
}

static int module_exec(PyObject *module)
{
    struct core *core = PyModule_GetState(module);
    if (core_view_init() < 0 || core_errors_init(module, core) < 0 ||
        core_spec_init(module, core) < 0 || add_types(module, core) < 0 ||
        core_recording_init(module) < 0 || core_trace_init(module) < 0 ||
        core_arrow_init(module) < 0 || core_shm_init(module, core) < 0 || register_end(module) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", mr_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct core *core = PyModule_GetState(module);
    Py_VISIT(core->dataset);
    Py_VISIT(core->sampler);
    Py_VISIT(core->loader);
    Py_VISIT(core->batch);
    Py_VISIT(core->field);
    Py_VISIT(core->shm_pool);
    Py_VISIT(core->shm_ring);
    Py_VISIT(core->chain);
    Py_VISIT(core->attached);
    Py_VISIT(core->error);
    Py_VISIT(core->format_error);
    Py_VISIT(core->bad_samples);
    Py_VISIT(core->cancelled);
    Py_VISIT(core->spec);
    for (int i = 0; i < CORE_KINDS; i++)
        Py_VISIT(core->kinds[i].type);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct core *core = PyModule_GetState(module);
    Py_CLEAR(core->dataset);
    Py_CLEAR(core->sampler);
    Py_CLEAR(core->loader);
    Py_CLEAR(core->batch);
    Py_CLEAR(core->field);
    Py_CLEAR(core->shm_pool);
    Py_CLEAR(core->shm_ring);
    Py_CLEAR(core->chain);
    Py_CLEAR(core->attached);
    Py_CLEAR(core->error);
    Py_CLEAR(core->format_error);
    Py_CLEAR(core->bad_samples);
    Py_CLEAR(core->cancelled);
    Py_CLEAR(core->spec);
    core_kinds_clear(core);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "_core",
                                        .m_doc = "The engine: data sets, samplers, loaders, "
                                                 "batches.",
                                        .m_size = sizeof(struct core),
                                        .m_methods = functions,
                                        .m_slots = slots,
                                        .m_traverse = module_traverse,
                                        .m_clear = module_clear,
                                        .m_free = module_free};

PyMODINIT_FUNC PyInit__core(void); /* Python.h has no prototype */

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
