/*
 * MPI by dlopen: one table of functions for three binary interfaces, told apart by symbols.
 * mpi_load.c opens the library, mpi_wait.c waits with a time limit and finds out who is missing,
 * mpi_parts.c is for parts of arrays and for messages between two ranks, mpi.c is the engine.
 */
#ifndef MR_COMM_MPI_H
#define MR_COMM_MPI_H

#include "comm/engine.h"

/* A handle: pointers in Open MPI and the standard ABI; in MPICH's an int, in the low half. */
typedef uintptr_t mr_mpi_handle;

struct mr_mpi {
    void *so;
    char name[256]; /* of the file that was opened */
    mr_mpi_handle world, f32, f64, byte, op_sum, errors_return;
    void *in_place, *status_ignore;
    int any_source, serialized;
    int (*Init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*Initialized)(int *flag);
    int (*Finalize)(void);
    int (*Abort)(mr_mpi_handle comm, int status);
    int (*Comm_rank)(mr_mpi_handle comm, int *rank);
    int (*Comm_size)(mr_mpi_handle comm, int *size);
    int (*Comm_set_errhandler)(mr_mpi_handle comm, mr_mpi_handle handler);
    int (*Get_library_version)(char *text, int *bytes);
    int (*Error_string)(int error, char *text, int *bytes);
    int (*Isend)(const void *data, int n, mr_mpi_handle type, int to, int tag, mr_mpi_handle comm,
                 mr_mpi_handle *request);
    int (*Irecv)(void *data, int n, mr_mpi_handle type, int from, int tag, mr_mpi_handle comm,
                 mr_mpi_handle *request);
    int (*Iallreduce)(const void *in, void *out, int n, mr_mpi_handle type, mr_mpi_handle op,
                      mr_mpi_handle comm, mr_mpi_handle *request);
    int (*Test)(mr_mpi_handle *request, int *done, void *status);
    int (*Cancel)(mr_mpi_handle *request);
};

enum {
    MR_MPI_TAG_DATA = 7701,
    MR_MPI_TAG_BLOCK,
    MR_MPI_TAG_PHASE,
    MR_MPI_TAG_HERE,
    MR_MPI_TAG_LENGTH, /* of a message from one rank to another, which comes behind it */
    MR_MPI_TAG_MESSAGE
};

#define MR_MPI_CHUNK (1u << 26) /* elements of one message: MPI counts in int */

/* What a rank tells the next one of itself. */
struct mr_mpi_phase {
    char what[MR_COMM_PHASE];
};

/* What a rank that waits tells all others once a time limit has passed somewhere. */
struct mr_mpi_here {
    uint32_t rank, peer; /* peer: whom it waits for; MR_COMM_ALL: all ranks */
    uint64_t sequence;
    uint64_t before_age_ns; /* since the rank before it said the following; UINT64_MAX: nothing */
    struct mr_mpi_phase before;
};

/* A request and what it reads or writes. */
struct mr_mpi_slot {
    mr_mpi_handle request;
    bool open;
};

struct mr_mpi_ranks {
    struct mr_mpi mpi;
    bool ours;                  /* MPI is initialized by us, and finalized */
    char mine[64], (*node)[64]; /* hosts: of this rank; of each */
    double zero;                /* for the sum in which all leave */
    /* Phases: to the next rank, from the one before. */
    struct mr_mpi_slot phase_out, phase_in;
    struct mr_mpi_phase said, heard, before; /* being sent; being received; the latest */
    char next[MR_COMM_PHASE];                /* to be sent when that is possible */
    uint64_t before_ns;
    struct mr_mpi_slot here_in;
    struct mr_mpi_here here, *answers; /* received now; of each rank, by its rank */
    bool *answered;
    void *room; /* of sums: what a peer sent, and what is sent as bf16 */
    uint64_t room_bytes;
    uint64_t length[2]; /* of messages: not on the stack, as all that is sent or received */
};

/* mpi_load.c. The launcher says which library is tried first. Returns 0, MR_EUNSUPPORTED. */
int mr_mpi_load(struct mr_mpi *mpi, const char *launcher);
/* "MPICH Version: 4.0.2". MPI need not have started. */
void mr_mpi_version(const struct mr_mpi *mpi, char *out, size_t cap);
int mr_mpi_library(char *out, size_t cap);
/* MPI_Init_thread() with a time limit. [out] ours: whether it was needed. */
int mr_mpi_start(struct mr_mpi *mpi, uint64_t timeout_ns, bool *ours);

/* mpi_parts.c. What goes to one rank and what comes from one, at the same time. */
struct mr_mpi_swap {
    uint32_t to, from;
    char *give, *keep;
    uint64_t n_give, n_keep; /* elements; 0: nothing goes, or comes */
};
/* keep += what comes: as of mr_comm_sum(). */
int mr_mpi_swap_and_add(struct mr_comm *c, const struct mr_mpi_swap *swap, enum mr_dtype dtype,
                        enum mr_dtype wire);
/* As struct mr_comm_engine says. */
int mr_mpi_scatter(struct mr_comm *c, void *data, const struct mr_comm_parts *p);
int mr_mpi_share(struct mr_comm *c, void *data, const struct mr_comm_parts *p);
int mr_mpi_pass(struct mr_comm *c, const struct mr_comm_message *message);

/* mpi_wait.c. Waits until the request is done. Returns 0, MR_EPEER. code: what the call that made
 * the request returned. */
int mr_mpi_wait(struct mr_comm *c, int code, mr_mpi_handle *request);
/* The error of a call of MPI's. */
int mr_mpi_failed(struct mr_comm *c, int code, const char *call);
/* Sends a phase that is due, and takes what came. */
void mr_mpi_poll_phases(struct mr_comm *c);
/* Receives for phases and for who is here. */
int mr_mpi_listen(struct mr_comm *c);
/* Takes them back. Returns whether no request of phases is open. */
bool mr_mpi_deaf(struct mr_comm *c);

#endif
