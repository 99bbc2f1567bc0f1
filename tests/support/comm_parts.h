/*
 * What ranks of any engine do with parts of arrays and with messages between two of them: the bits
 * are compared with the tree's. White-box: the addition. Functions return 0, an error of the
 * communicator's, or MR_ESTATE.
 */
#ifndef COMM_PARTS_H
#define COMM_PARTS_H

#include "comm/engine.h"
#include "kernels/sum/sum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_N = 5000, PARTS_RANKS = 8 };

struct parts_job {
    struct mr_comm *comm;
    uint32_t rank, world;
    struct mr_device *device; /* with a stream: data is the device's memory */
    struct mr_stream *stream; /* NULL: host memory */
};

static float parts_value(uint32_t rank, uint32_t i)
{
    return sinf((float)(rank * 7919 + i)) * powf(2, (float)((rank * 31 + i) % 23) - 11);
}

/* Kinds: of one length (the world divides 4800), uneven, two of them empty; not from 0 on. */
enum { PARTS_KINDS = 3 };
static void parts_make(uint32_t world, int kind, uint64_t *first)
{
    const uint64_t begin = kind == 2 ? 37 : 0, n = kind == 0 ? 4800 : PARTS_N - begin;
    for (uint32_t r = 0; r <= world; r++)
        first[r] = begin + n * r / world + (kind == 1 && r > 0 && r < world ? 3 * r : 0);
    if (kind == 2) { /* the first and the last have nothing */
        first[1] = begin;
        first[world - 1] = first[world];
    }
}

/* The sums by the tree (in a world that is a power of two), and in f64. */
static void parts_want(uint32_t world, enum mr_dtype wire, float *tree, double *sums, double *sizes)
{
    static float all[PARTS_RANKS][PARTS_N];
    for (uint32_t i = 0; i < PARTS_N; i++) {
        sums[i] = sizes[i] = 0;
        for (uint32_t r = 0; r < world; r++) {
            all[r][i] = parts_value(r, i);
            sums[i] += (double)all[r][i];
            sizes[i] += fabs((double)all[r][i]);
        }
    }
    if (mr_comm_is_power_of_two(world))
        for (uint32_t h = world / 2; h >= 1; h /= 2)
            for (uint32_t r = 0; r < h; r++)
                mr_comm_add(all[r], all[r + h], PARTS_N, MR_F32, wire);
    memcpy(tree, all[0], sizeof all[0]);
}

static int parts_move(const struct parts_job *j, void *to, const void *from, bool down)
{
    const uint64_t bytes = PARTS_N * sizeof(float);
    if (!j->stream) {
        memcpy(to, from, bytes);
        return 0;
    }
    int rc = mr_copy_async(j->stream, to, down ? MR_DEVICE : MR_PAGEABLE, from,
                           down ? MR_PAGEABLE : MR_DEVICE, bytes);
    int synced = mr_stream_synchronize(j->stream), failed = mr_comm_check(j->comm);
    return failed < 0 ? failed : rc < 0 ? rc : synced;
}

/* One sum in parts; then all get all parts. data: PARTS_N elements where the job has them. */
static int parts_once(const struct parts_job *j, float *data, int kind, enum mr_dtype wire,
                      enum mr_sum_order order)
{
    static float x[PARTS_N], tree[PARTS_N];
    static double sums[PARTS_N], sizes[PARTS_N];
    uint64_t first[PARTS_RANKS + 1];
    parts_make(j->world, kind, first);
    parts_want(j->world, wire, tree, sums, sizes);
    for (uint32_t i = 0; i < PARTS_N; i++)
        x[i] = parts_value(j->rank, i);
    int rc = parts_move(j, data, x, true);
    if (rc < 0)
        return rc;
    rc = mr_comm_sum_scatter(j->comm, data, first, MR_F32, wire, order, j->stream);
    if (rc < 0)
        return rc;
    rc = mr_comm_gather(j->comm, data, first, MR_F32, j->stream);
    if (rc < 0)
        return rc;
    rc = parts_move(j, x, data, false);
    for (uint32_t i = 0; rc == 0 && i < PARTS_N; i++) {
        bool in = i >= first[0] && i < first[j->world];
        if (!in && x[i] != parts_value(j->rank, i))
            rc = mr_error_set(MR_ESTATE, "parts %d: element %u was changed", kind, i);
        else if (in && order == MR_SUM_TREE && memcmp(&x[i], &tree[i], sizeof *x) != 0)
            rc = mr_error_set(MR_ESTATE, "parts %d: element %u: other bits", kind, i);
        else if (in &&
                 !(fabs((double)x[i] - sums[i]) <= sizes[i] * (wire == MR_BF16 ? 0.03 : 1e-6)))
            rc = mr_error_set(MR_ESTATE, "parts %d: element %u is %g: expected %g", kind, i,
                              (double)x[i], sums[i]);
    }
    return rc;
}

static int parts_all(const struct parts_job *j, float *data)
{
    static const enum mr_dtype wires[] = {MR_F32, MR_BF16};
    const int orders = mr_comm_is_power_of_two(j->world) ? 2 : 1;
    int rc = 0;
    for (int kind = 0; kind < PARTS_KINDS; kind++)
        for (int w = 0; w < 2; w++)
            for (int order = 0; order < orders && rc == 0; order++)
                rc = parts_once(j, data, kind, wires[w], order ? MR_SUM_TREE : MR_SUM_FAST);
    return rc;
}

/* Around the ring, from rank 0 on: each gets the values of the one before; then an empty one. */
static int parts_messages(const struct parts_job *j, float *data)
{
    static float x[PARTS_N];
    const uint32_t next = (j->rank + 1) % j->world, before = (j->rank + j->world - 1) % j->world;
    const uint64_t half = PARTS_N / 2, bytes = half * sizeof *x;
    for (uint32_t i = 0; i < PARTS_N; i++)
        x[i] = parts_value(j->rank, i);
    int rc = parts_move(j, data, x, true);
    if (rc == 0 && j->rank == 0)
        rc = mr_comm_send(j->comm, data, bytes, next, j->stream);
    if (rc == 0)
        rc = mr_comm_recv(j->comm, data + half, bytes, before, j->stream);
    if (rc == 0 && j->rank > 0)
        rc = mr_comm_send(j->comm, data, bytes, next, j->stream);
    if (rc == 0) /* all at once, the other way round: what came goes on to the one before */
        rc = mr_comm_send_recv(j->comm, data + half, bytes, before, data, bytes, next, j->stream);
    if (rc == 0)
        rc = j->rank == 0   ? mr_comm_send(j->comm, NULL, 0, 1, j->stream)
             : j->rank == 1 ? mr_comm_recv(j->comm, NULL, 0, 0, j->stream)
                            : 0;
    if (rc == 0)
        rc = parts_move(j, x, data, false);
    for (uint32_t i = 0; rc == 0 && i < half; i++)
        if (x[half + i] != parts_value(before, i))
            rc = mr_error_set(MR_ESTATE, "message from rank %u: element %u is another", before, i);
    for (uint32_t i = 0; rc == 0 && i < half; i++) /* the next one had them from this one */
        if (x[i] != parts_value(j->rank, i))
            rc = mr_error_set(MR_ESTATE, "message back from rank %u: element %u is another", next,
                              i);
    return rc;
}

#endif
