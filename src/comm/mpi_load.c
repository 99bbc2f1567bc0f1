/* Finds an MPI library, fills in its constants, and starts it. */
#include "comm/mpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By full sonames: Open MPI loads its own parts by them, which want global symbols. */
static const char *const open_mpi[] = {"libmpi.so.40"};
static const char *const mpich[] = {"libmpich.so.12", "libmpi.so.12"};
static const char *const standard[] = {"libmpi_abi.so.1", "libmpi_abi.so.0"};

static void *get(const struct mr_mpi *m, const char *symbol)
{
    return dlsym(m->so, symbol);
}

static void set_open_mpi(struct mr_mpi *m)
{
    m->world = (mr_mpi_handle)get(m, "ompi_mpi_comm_world");
    m->f32 = (mr_mpi_handle)get(m, "ompi_mpi_float");
    m->f64 = (mr_mpi_handle)get(m, "ompi_mpi_double");
    m->byte = (mr_mpi_handle)get(m, "ompi_mpi_byte");
    m->op_sum = (mr_mpi_handle)get(m, "ompi_mpi_op_sum");
    m->errors_return = (mr_mpi_handle)get(m, "ompi_mpi_errors_return");
    m->in_place = (void *)1;
    m->status_ignore = NULL;
    m->any_source = -1;
    m->serialized = 2;
}

/* MPICH, Intel MPI, MVAPICH, Cray MPICH: one ABI since 2014. */
static void set_mpich(struct mr_mpi *m)
{
    m->world = 0x44000000;
    m->f32 = 0x4c00040a;
    m->f64 = 0x4c00080b;
    m->byte = 0x4c00010d;
    m->op_sum = 0x58000003;
    m->errors_return = 0x54000001;
    m->in_place = (void *)(intptr_t)-1;
    m->status_ignore = (void *)1;
    m->any_source = -2;
    m->serialized = 2;
}

/* MPI 5.0's own, by the MPI Forum's header. Tried with MPICH 5.0.2. */
static void set_standard(struct mr_mpi *m)
{
    m->world = 0x101;
    m->f32 = 0x210;
    m->f64 = 0x214;
    m->byte = 0x247;
    m->op_sum = 0x21;
    m->errors_return = 0x142;
    m->in_place = (void *)1;
    m->status_ignore = NULL;
    m->any_source = -1;
    m->serialized = 2048;
}

#define SYMBOL(name)                                                                               \
    {                                                                                              \
        "MPI_" #name, offsetof(struct mr_mpi, name)                                                \
    }
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    SYMBOL(Init_thread),
    SYMBOL(Initialized),
    SYMBOL(Finalize),
    SYMBOL(Abort),
    SYMBOL(Comm_rank),
    SYMBOL(Comm_size),
    SYMBOL(Comm_set_errhandler),
    SYMBOL(Get_library_version),
    SYMBOL(Error_string),
    SYMBOL(Isend),
    SYMBOL(Irecv),
    SYMBOL(Iallreduce),
    SYMBOL(Test),
    SYMBOL(Cancel),
};

static int fill(struct mr_mpi *m)
{
    for (size_t i = 0; i < MR_COUNT(symbols); i++) {
        void *function = get(m, symbols[i].name);
        if (!function)
            return mr_error_set(MR_EUNSUPPORTED,
                                "comm: %s has no %s: expected an MPI library of "
                                "version 3 or later",
                                m->name, symbols[i].name);
        memcpy((char *)m + symbols[i].offset, &function, sizeof function);
    }
    /* By name first: symbols are also found in what the library depends on, which may be an Open
     * MPI. */
    const char *slash = strrchr(m->name, '/');
    if (strstr(slash ? slash : m->name, "mpi_abi") && get(m, "MPI_Abi_get_version"))
        set_standard(m);
    else if (get(m, "ompi_mpi_comm_world"))
        set_open_mpi(m);
    else
        set_mpich(m);
    return 0;
}

static bool try_open(struct mr_mpi *m, const char *name)
{
    m->so = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    snprintf(m->name, sizeof m->name, "%s", name);
    return m->so != NULL;
}

struct family {
    const char *const *names;
    size_t n;
};

static const struct family families[] = {
    {open_mpi, MR_COUNT(open_mpi)}, {mpich, MR_COUNT(mpich)}, {standard, MR_COUNT(standard)}};

int mr_mpi_load(struct mr_mpi *m, const char *launcher)
{
    const char *own = getenv("MILLRACE_MPI");
    /* Hydra and srun --mpi=pmi2 speak PMI; mpirun of Open MPI and srun --mpi=pmix PMIx. */
    bool pmi =
        strcmp(launcher, "pmi") == 0 || (strcmp(launcher, "slurm") == 0 && !getenv("PMIX_RANK"));
    const size_t order[] = {pmi ? 1 : 0, pmi ? 0 : 1, 2};
    *m = (struct mr_mpi){0};
    if (own && *own) {
        if (!try_open(m, own))
            return mr_error_set(MR_EUNSUPPORTED, "comm: MILLRACE_MPI: %s", dlerror());
        return fill(m);
    }
    for (size_t f = 0; f < MR_COUNT(order); f++)
        for (size_t i = 0; i < families[order[f]].n; i++)
            if (try_open(m, families[order[f]].names[i]))
                return fill(m);
    return mr_error_set(MR_EUNSUPPORTED,
                        "comm: no MPI library: tried libmpi.so.40 (Open MPI), libmpich.so.12, "
                        "libmpi.so.12 (MPICH), libmpi_abi.so.1, libmpi_abi.so.0: install the one "
                        "that the launcher belongs to, or name it in MILLRACE_MPI");
}

void mr_mpi_version(const struct mr_mpi *m, char *out, size_t cap)
{
    char text[8192] = "";
    int bytes = 0;
    if (m->Get_library_version) /* fill() found it, which the analyzer cannot see */
        m->Get_library_version(text, &bytes);
    text[strcspn(text, ",\n")] = '\0';
    for (char *p = text; *p; p++) /* MPICH: "MPICH Version:\t4.0.2" */
        *p = *p == '\t' ? ' ' : *p;
    snprintf(out, cap, "%s", text);
}

int mr_mpi_library(char *out, size_t cap)
{
    struct mr_place place = {.size = sizeof place};
    struct mr_mpi m;
    char version[128];
    int rc = mr_mpi_load(&m, mr_place_query(&place) == 0 ? place.launcher : "");
    if (rc < 0)
        return rc;
    mr_mpi_version(&m, version, sizeof version);
    snprintf(out, cap, "%s (%s)", version, m.name);
    return 0;
}

/* A start that a rank may not come to, in a thread of its own so that it can be given up. */
struct start {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int (*init)(int *, char ***, int, int *);
    int required, code;
    bool done, left; /* left: nobody waits any more */
};

static void destroy_start(struct start *s)
{
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void *run_start(void *arg)
{
    struct start *s = arg;
    int provided = 0, code = s->init(NULL, NULL, s->required, &provided);
    if (code == 0 && provided < s->required)
        code = -1;
    pthread_mutex_lock(&s->lock);
    s->code = code;
    s->done = true;
    bool left = s->left;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    if (left)
        destroy_start(s);
    return NULL;
}

/* [out] done: false: the time limit passed, and the thread has the struct. */
static int wait_start(struct start *s, pthread_t thread, uint64_t until_ns, bool *done)
{
    pthread_mutex_lock(&s->lock);
    while (!s->done && mr_cond_wait_until(&s->ended, &s->lock, until_ns))
        ;
    *done = s->done;
    s->left = !s->done;
    int code = s->code;
    pthread_mutex_unlock(&s->lock);
    if (!*done) {
        pthread_detach(thread);
        return 0;
    }
    pthread_join(thread, NULL);
    destroy_start(s);
    return code;
}

int mr_mpi_start(struct mr_mpi *m, uint64_t timeout_ns, bool *ours)
{
    int already = 0;
    bool done;
    pthread_t thread;
    m->Initialized(&already);
    *ours = !already;
    if (already)
        return 0;
    struct start *s = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem("comm", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    mr_cond_init(&s->ended);
    s->init = m->Init_thread;
    s->required = m->serialized;
    int rc = mr_thread_start(&thread, "mpi-start", run_start, s);
    if (rc < 0) {
        destroy_start(s);
        return rc;
    }
    int code = wait_start(s, thread, mr_time_ns() + timeout_ns, &done);
    if (!done)
        return mr_error_set(MR_EPEER,
                            "comm: %s: MPI_Init did not end within %.4g s: not all ranks "
                            "came to it",
                            m->name, (double)timeout_ns * 1e-9);
    return code == 0 ? 0
                     : mr_error_set(MR_EUNSUPPORTED, "comm: %s: MPI_Init_thread failed (%d)",
                                    m->name, code);
}
