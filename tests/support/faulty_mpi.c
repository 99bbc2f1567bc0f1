/*
 * An MPI library of MPICH's ABI that passes all calls on to libmpich.so.12, and of one rank lets
 * one fail: tests name it in MILLRACE_MPI.
 *
 * Environment: FAULTY_RANK; FAULTY_AT: of this rank's calls that begin to send, receive or add up,
 * counted from 1, this one returns an error and does nothing.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uintptr_t handle; /* an int, in the low half */

#define API __attribute__((visibility("default")))

enum { FAULTY_ERROR = 15 }; /* MPI_ERR_OTHER */

static void *real(const char *name)
{
    static void *so;
    if (!so)
        so = dlopen("libmpich.so.12", RTLD_NOW | RTLD_GLOBAL);
    void *function = so ? dlsym(so, name) : NULL;
    if (!function) {
        fprintf(stderr, "faulty MPI: no %s\n", name);
        abort();
    }
    return function;
}

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : -1;
}

/* Does this call fail? */
static int fails(void)
{
    static int calls;
    return number("PMI_RANK") == number("FAULTY_RANK") && ++calls == number("FAULTY_AT");
}

#define FORWARD(name, parameters, arguments)                                                       \
    API int name parameters;                                                                       \
    int name parameters                                                                            \
    {                                                                                              \
        int(*function) parameters;                                                                 \
        *(void **)(void *)&function = real(#name);                                                 \
        return function arguments;                                                                 \
    }
#define MAY_FAIL(name, parameters, arguments)                                                      \
    API int name parameters;                                                                       \
    int name parameters                                                                            \
    {                                                                                              \
        int(*function) parameters;                                                                 \
        *(void **)(void *)&function = real(#name);                                                 \
        return fails() ? FAULTY_ERROR : function arguments;                                        \
    }

FORWARD(MPI_Init_thread, (int *argc, char ***argv, int required, int *provided),
        (argc, argv, required, provided))
FORWARD(MPI_Initialized, (int *flag), (flag))
FORWARD(MPI_Finalize, (void), ())
FORWARD(MPI_Abort, (handle comm, int status), (comm, status))
FORWARD(MPI_Comm_rank, (handle comm, int *rank), (comm, rank))
FORWARD(MPI_Comm_size, (handle comm, int *size), (comm, size))
FORWARD(MPI_Comm_set_errhandler, (handle comm, handle handler), (comm, handler))
FORWARD(MPI_Get_library_version, (char *text, int *bytes), (text, bytes))
FORWARD(MPI_Error_string, (int error, char *text, int *bytes), (error, text, bytes))
FORWARD(MPI_Cancel, (handle * request), (request))
FORWARD(MPI_Test, (handle * request, int *done, void *status), (request, done, status))
MAY_FAIL(MPI_Isend,
         (const void *data, int n, handle type, int to, int tag, handle comm, handle *request),
         (data, n, type, to, tag, comm, request))
MAY_FAIL(MPI_Irecv,
         (void *data, int n, handle type, int from, int tag, handle comm, handle *request),
         (data, n, type, from, tag, comm, request))
MAY_FAIL(MPI_Iallreduce,
         (const void *in, void *out, int n, handle type, handle op, handle comm, handle *request),
         (in, out, n, type, op, comm, request))
