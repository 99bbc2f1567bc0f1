/* Recordings of `millrace profile`: tables, advice, timelines. One thread at a time: the Python
 * side (_recording.py) has the lock. */
#include "core.h"
#include <millrace/profile.h>

struct recording {
    PyObject_HEAD struct mr_recording *recording; /* NULL: closed */
};

/* The library's; NULL with an exception if it is closed. */
static struct mr_recording *get(PyObject *self)
{
    struct mr_recording *recording = ((struct recording *)self)->recording;
    if (!recording)
        PyErr_SetString(PyExc_ValueError, "the recording is closed");
    return recording;
}

static PyObject *fail(PyObject *self, int rc)
{
    return core_fail(core_of(self), rc, NULL);
}

/* ---- tables ---- */

static const char *unit_name(enum mr_unit unit)
{
    static const char *const names[] = {
        [MR_UNIT_NONE] = "",       [MR_UNIT_NS] = "ns",
        [MR_UNIT_BYTES] = "bytes", [MR_UNIT_BYTES_PER_S] = "bytes/s",
        [MR_UNIT_PERCENT] = "%",   [MR_UNIT_COUNT] = "count"};
    return (size_t)unit < sizeof names / sizeof names[0] ? names[unit] : "";
}

static PyObject *make_text(const char *text)
{
    if (!text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *make_cell(struct mr_cell cell)
{
    if (cell.type == MR_CELL_INT)
        return PyLong_FromLongLong(cell.integer);
    if (cell.type == MR_CELL_REAL)
        return PyFloat_FromDouble(cell.real);
    return make_text(cell.type == MR_CELL_TEXT ? cell.text : NULL);
}

static PyObject *make_row(const struct mr_table *table, uint64_t row)
{
    uint32_t n = mr_table_columns(table);
    PyObject *cells = PyTuple_New(n);
    for (uint32_t c = 0; cells && c < n; c++) {
        PyObject *cell = make_cell(mr_table_cell(table, row, c));
        if (!cell || PyTuple_SetItem(cells, c, cell) < 0)
            Py_CLEAR(cells);
    }
    return cells;
}

static PyObject *make_rows(const struct mr_table *table)
{
    Py_ssize_t n = (Py_ssize_t)mr_table_rows(table);
    PyObject *rows = PyList_New(n);
    for (Py_ssize_t r = 0; rows && r < n; r++) {
        PyObject *row = make_row(table, (uint64_t)r);
        if (!row || PyList_SetItem(rows, r, row) < 0)
            Py_CLEAR(rows);
    }
    return rows;
}

static PyObject *make_columns(const struct mr_table *table)
{
    Py_ssize_t n = mr_table_columns(table);
    PyObject *columns = PyList_New(n);
    for (Py_ssize_t c = 0; columns && c < n; c++) {
        const struct mr_column *column = mr_table_column(table, (uint32_t)c);
        PyObject *pair = Py_BuildValue("(ss)", column->name, unit_name(column->unit));
        if (!pair || PyList_SetItem(columns, c, pair) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

/* (title, note or None, [(name, unit)], [row]); None for no table. */
static PyObject *make_table(const struct mr_table *table)
{
    if (!table)
        Py_RETURN_NONE;
    PyObject *title = make_text(mr_table_title(table)), *note = make_text(mr_table_note(table));
    PyObject *columns = make_columns(table), *rows = make_rows(table);
    PyObject *made =
        title && note && columns && rows ? PyTuple_Pack(4, title, note, columns, rows) : NULL;
    Py_XDECREF(title);
    Py_XDECREF(note);
    Py_XDECREF(columns);
    Py_XDECREF(rows);
    return made;
}

/* ---- calls ---- */

static PyObject *recording_open(PyObject *class, PyObject *args)
{
    PyObject *path;
    int rc;
    if (!PyArg_ParseTuple(args, "O&:open", PyUnicode_FSConverter, &path))
        return NULL;
    struct recording *self = core_new((PyTypeObject *)class);
    if (!self) {
        Py_DECREF(path);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_recording_open(PyBytes_AsString(path), &self->recording);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (rc == 0)
        return (PyObject *)self;
    fail((PyObject *)self, rc);
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyObject *report(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"name", "limit",     "sort",    "from_ns", "to_ns", "range",
                            "step", "link_gbps", "by_time", "loader",  NULL};
    struct mr_recording *recording = get(self);
    struct mr_report_opts o;
    struct mr_table *table = NULL;
    unsigned long long limit = 0, from_ns = 0, to_ns = 0;
    const char *name;
    int rc;
    mr_report_opts_init(&o);
    if (!recording || !PyArg_ParseTupleAndKeywords(args, named, "s|KzKKzzdpz:report", names, &name,
                                                   &limit, &o.sort, &from_ns, &to_ns, &o.range,
                                                   &o.step, &o.link_gbps, &o.by_time, &o.loader))
        return NULL;
    o.limit = limit;
    o.from_ns = from_ns;
    o.to_ns = to_ns;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_report_make(recording, name, &o, &table);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fail(self, rc);
    PyObject *made = make_table(table);
    mr_table_destroy(table);
    return made;
}

static PyObject *make_finding(const struct mr_finding *f)
{
    static const char *const verdicts[] = {
        [MR_FINE] = "fine", [MR_FOUND] = "found", [MR_CANNOT_TELL] = "cannot tell"};
    return Py_BuildValue("{s:s,s:N,s:s,s:N,s:N,s:d,s:d,s:N,s:d,s:N}", "rule", f->rule, "title",
                         make_text(f->title), "verdict", verdicts[f->verdict], "why",
                         make_text(f->why), "advice", make_text(f->advice), "saving_ms",
                         f->saving_ms, "saving_percent", f->saving_percent, "per_step",
                         PyBool_FromLong(f->per_step), "confidence", f->confidence, "evidence",
                         make_table(f->evidence));
}

/* (summary, [finding]) */
static PyObject *make_advice(const struct mr_advice *advice)
{
    Py_ssize_t n = mr_advice_count(advice);
    PyObject *findings = PyList_New(n);
    for (Py_ssize_t i = 0; findings && i < n; i++) {
        PyObject *finding = make_finding(mr_advice_get(advice, (uint32_t)i));
        if (!finding || PyList_SetItem(findings, i, finding) < 0)
            Py_CLEAR(findings);
    }
    return findings ? Py_BuildValue("(NN)", make_text(mr_advice_summary(advice)), findings) : NULL;
}

static PyObject *analyze(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"step", "range", "link_gbps", "cores", NULL};
    struct mr_recording *recording = get(self);
    struct mr_advice_opts o;
    struct mr_advice *advice = NULL;
    unsigned cores = 0;
    int rc;
    mr_advice_opts_init(&o);
    if (!recording || !PyArg_ParseTupleAndKeywords(args, named, "|zzdI:analyze", names, &o.step,
                                                   &o.range, &o.link_gbps, &cores))
        return NULL;
    o.n_cores = cores;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_analyze(recording, &o, &advice);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fail(self, rc);
    PyObject *made = make_advice(advice);
    mr_advice_destroy(advice);
    return made;
}

static PyObject *timeline(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"path", "format", "from_ns", "to_ns", "title", "whole", NULL};
    struct mr_recording *recording = get(self);
    struct mr_timeline_opts o;
    PyObject *path = NULL;
    unsigned long long from_ns = 0, to_ns = 0;
    uint64_t events = 0;
    int format, rc;
    mr_timeline_opts_init(&o);
    if (!recording ||
        !PyArg_ParseTupleAndKeywords(args, named, "O&i|KKzp:timeline", names, PyUnicode_FSConverter,
                                     &path, &format, &from_ns, &to_ns, &o.title, &o.whole))
        return NULL;
    o.from_ns = from_ns;
    o.to_ns = to_ns;
    o.out_events = &events;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_timeline_write(recording, PyBytes_AsString(path), (enum mr_timeline_format)format, &o);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    return rc < 0 ? fail(self, rc) : PyLong_FromUnsignedLongLong(events);
}

static PyObject *reports(PyObject *class, PyObject *unused)
{
    const char *help, *name;
    PyObject *list = PyList_New(0);
    (void)class, (void)unused;
    for (uint32_t i = 0; list && (name = mr_report_name(i, &help)); i++) {
        PyObject *pair = Py_BuildValue("(ss)", name, help);
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *diff(PyObject *self, PyObject *args)
{
    struct mr_recording *before = get(self), *after = NULL;
    struct mr_table *table = NULL;
    PyObject *other;
    double threshold;
    uint64_t changed = 0;
    int rc;
    if (!before || !PyArg_ParseTuple(args, "O!d:diff", Py_TYPE(self), &other, &threshold) ||
        !(after = get(other)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_report_diff(before, after, threshold, &changed, &table);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fail(self, rc);
    PyObject *made = Py_BuildValue("(KN)", (unsigned long long)changed, make_table(table));
    mr_table_destroy(table);
    return made;
}

/* (name, table) of each. */
static PyObject *make_compared(const struct mr_comparison *comparison)
{
    PyObject *list = PyList_New(0);
    const char *name;
    const struct mr_table *table;
    for (uint32_t i = 0; list && (table = mr_comparison_table(comparison, i, &name)); i++) {
        PyObject *pair = Py_BuildValue("(sN)", name, make_table(table));
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *compare(PyObject *self, PyObject *args)
{
    static const char *const changes[] = {"same", "slower", "faster", "cannot tell"};
    struct mr_recording *before = get(self), *after = NULL;
    struct mr_comparison *comparison = NULL;
    struct mr_step_change step = {.size = sizeof step};
    struct mr_compare_opts opts;
    PyObject *other;
    int rc;
    mr_compare_opts_init(&opts);
    if (!before ||
        !PyArg_ParseTuple(args, "O!zd:compare", Py_TYPE(self), &other, &opts.step,
                          &opts.least_percent) ||
        !(after = get(other)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = mr_compare(before, after, &opts, &comparison);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return fail(self, rc);
    mr_comparison_step(comparison, &step);
    PyObject *made = Py_BuildValue(
        "{ss sK sK sd sd sd sN sN}", "change", changes[step.change], "n_before",
        (unsigned long long)step.n_before, "n_after", (unsigned long long)step.n_after, "before_ns",
        step.before_ns, "after_ns", step.after_ns, "p", step.p, "summary",
        make_text(mr_comparison_summary(comparison)), "tables", make_compared(comparison));
    mr_comparison_destroy(comparison);
    return made;
}

static PyObject *recording_close(PyObject *self, PyObject *unused)
{
    struct recording *r = (struct recording *)self;
    (void)unused;
    mr_recording_close(r->recording);
    r->recording = NULL;
    Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
    mr_recording_close(((struct recording *)self)->recording);
    core_free(self);
}

static PyObject *refuse(PyTypeObject *type, PyObject *args, PyObject *named)
{
    (void)type, (void)args, (void)named;
    PyErr_SetString(PyExc_TypeError, "use Recording.open(path)");
    return NULL;
}

#define NAMED(function) (PyCFunction)(void (*)(void))(function)
static PyMethodDef methods[] = {
    {"open", recording_open, METH_VARARGS | METH_CLASS, "open(path): a recording."},
    {"reports", reports, METH_NOARGS | METH_STATIC, "reports(): pairs of name and help."},
    {"report", NAMED(report), METH_VARARGS | METH_KEYWORDS,
     "report(name, limit, sort, from_ns, to_ns, range, step, link_gbps): (title, note, columns, "
     "rows)."},
    {"analyze", NAMED(analyze), METH_VARARGS | METH_KEYWORDS,
     "analyze(step, range, link_gbps, cores): (summary, findings)."},
    {"timeline", NAMED(timeline), METH_VARARGS | METH_KEYWORDS,
     "timeline(path, format, from_ns, to_ns, title, whole): the number of events drawn."},
    {"diff", diff, METH_VARARGS, "diff(after, threshold): (rows that got slower, table)."},
    {"compare", compare, METH_VARARGS,
     "compare(after, step, least_percent): a dict of the step's change, the summary and tables."},
    {"close", recording_close, METH_NOARGS, "close(): frees it; more calls do nothing."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, refuse},
                              {Py_tp_dealloc, dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "A recording of millrace profile. One thread at a time."},
                              {0, NULL}};
static PyType_Spec spec = {"millrace._core.Recording", sizeof(struct recording), 0,
                           Py_TPFLAGS_DEFAULT, slots};

int core_recording_init(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    int rc = type ? PyModule_AddObjectRef(module, "Recording", type) : -1;
    Py_XDECREF(type);
    return rc;
}
