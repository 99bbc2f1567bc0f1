/*
 * The least that samples of a Python data set cost: a loop in C that calls __getitem__ and copies
 * the array, without a loader. See floor.py.
 *
 * Its bytes are read in place, as python/src/numpy.c does, which checks first that it may.
 */
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#include <string.h>

/* Copies n samples, of `bytes` bytes each, into the `rows` rows at `to`, in turn. The caller has
 * the GIL. Returns -1 with an exception. */
int floor_run(PyObject *dataset, long n, long first, char *to, long rows, long bytes)
{
    for (long i = 0; i < n; i++) {
        PyObject *index = PyLong_FromLong(first + i);
        PyObject *sample = index ? PyObject_GetItem(dataset, index) : NULL;
        PyObject *array = sample ? PyTuple_GetItem(sample, 0) : NULL;
        if (array)
            memcpy(to + (i % rows) * bytes, ((char **)array)[2], (size_t)bytes);
        Py_XDECREF(sample);
        Py_XDECREF(index);
        if (!array)
            return -1;
    }
    return 0;
}
