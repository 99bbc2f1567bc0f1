/* Parts of a made-up training loop: 20 records a step, of which 9 are calls, 8 kernels, 1 a copy
 * and 2 ranges. */
#ifndef PARTS_WRITE_H
#define PARTS_WRITE_H

#include "recording/recording.h"

#include <string.h>

#define CHUNK 1024

struct batch {
    FILE *to;
    enum mr_part_type type;
    size_t record_bytes;
    uint32_t n;
    char records[CHUNK * 128];
};

static void batch_write(struct batch *batch)
{
    struct mr_part_chunk chunk = {.magic = MR_PART_CHUNK,
                                  .type = (uint16_t)batch->type,
                                  .record_bytes = (uint16_t)batch->record_bytes,
                                  .n = batch->n,
                                  .bytes = (uint32_t)(batch->n * batch->record_bytes)};
    if (batch->n == 0)
        return;
    fwrite(&chunk, sizeof(chunk), 1, batch->to);
    fwrite(batch->records, batch->record_bytes, batch->n, batch->to);
    batch->n = 0;
}

static void batch_add(struct batch *batch, const void *record)
{
    memcpy(batch->records + batch->n++ * batch->record_bytes, record, batch->record_bytes);
    if (batch->n == CHUNK)
        batch_write(batch);
}

static void string_write(FILE *to, uint32_t id, const char *text)
{
    uint32_t bytes = (uint32_t)strlen(text), padded = (bytes + 7) & ~7u;
    struct mr_part_string string = {id, bytes};
    struct mr_part_chunk chunk = {MR_PART_CHUNK, MR_PART_STRING, 0, 1,
                                  (uint32_t)sizeof(string) + padded};
    fwrite(&chunk, sizeof(chunk), 1, to);
    fwrite(&string, sizeof(string), 1, to);
    fwrite(text, 1, bytes, to);
    fwrite("\0\0\0\0\0\0\0", 1, padded - bytes, to);
}

#define KERNELS 200

static void header_write(FILE *to, uint32_t pid)
{
    static const char *const names[] = {"cudaLaunchKernel_v7000",
                                        "cudaMemcpyAsync_v3020",
                                        "cudaStreamSynchronize_v3020",
                                        "step",
                                        "forward",
                                        "backward"};
    struct mr_part_header header = {.magic = MR_PART_MAGIC,
                                    .version = MR_PART_VERSION,
                                    .header_bytes = sizeof(header),
                                    .pid = pid,
                                    .start_ns = 1000000000,
                                    .start_unix_ns = 1750000000000000000,
                                    .traced = MR_TRACE_CUDA | MR_TRACE_NVTX};
    fwrite(&header, sizeof(header), 1, to);
    for (uint32_t i = 0; i < MR_COUNT(names); i++)
        string_write(to, i + 1, names[i]);
    for (uint32_t i = 0; i < KERNELS; i++) {
        char name[96];
        snprintf(name, sizeof(name),
                 "_ZN2at6native10kernel_%03uILi%uEfNS0_9FillFunctorIfEEEEvPT_T0_i", i, i % 8);
        string_write(to, 100 + i, name);
    }
}

/* One step is 20 events. Buffers of events come a while after each other, as a recorder's do. */
static void step_write(struct batch *apis, struct batch *kernels, struct batch *copies,
                       struct batch *ranges, uint32_t pid, uint64_t i)
{
    uint64_t t = 1000000000 + i * 100000;
    uint32_t correlation = (uint32_t)(i * 10);
    for (uint32_t k = 0; k < 8; k++, t += 10000) {
        correlation++;
        batch_add(apis, &(struct mr_part_api){t, t + 4000, correlation, pid, 1, 0, 0, 0, 211});
        batch_add(kernels, &(struct mr_part_kernel){.start_ns = t + 6000,
                                                    .end_ns = t + 14000,
                                                    .context = 1,
                                                    .stream = 7,
                                                    .correlation = correlation,
                                                    .name = 100 + (uint32_t)((i + k) % KERNELS),
                                                    .grid = {128, 1, 1},
                                                    .block = {256, 1, 1},
                                                    .registers = 40});
    }
    batch_add(apis, &(struct mr_part_api){t, t + 3000, ++correlation, pid, 2, 0, 0, 0, 41});
    batch_add(copies, &(struct mr_part_copy){.start_ns = t + 5000,
                                             .end_ns = t + 15000,
                                             .bytes = 1 << 18,
                                             .context = 1,
                                             .stream = 13,
                                             .correlation = correlation,
                                             .count = 1,
                                             .kind = 1,
                                             .src_kind = 1 + (i & 1),
                                             .dst_kind = 3});
    uint64_t begin = 1000000000 + i * 100000;
    batch_add(ranges, &(struct mr_part_range){.start_ns = begin,
                                              .end_ns = begin + 95000,
                                              .text = 4,
                                              .tid = pid,
                                              .type = MR_RANGE_PUSH_POP});
    batch_add(ranges, &(struct mr_part_range){.start_ns = begin,
                                              .end_ns = begin + 40000,
                                              .text = 5,
                                              .tid = pid,
                                              .type = MR_RANGE_PUSH_POP});
}

/* The part folder/PID-1.part. Returns 0, or not. */
static int parts_write(const char *folder, uint32_t pid, uint64_t n_steps)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%u-1.part", folder, pid);
    FILE *to = fopen(path, "wb");
    struct batch *batches = calloc(4, sizeof(*batches));
    if (!to || !batches) {
        perror(path);
        exit(1);
    }
    static const enum mr_part_type types[] = {MR_PART_API, MR_PART_KERNEL, MR_PART_COPY,
                                              MR_PART_RANGE};
    static const size_t bytes[] = {sizeof(struct mr_part_api), sizeof(struct mr_part_kernel),
                                   sizeof(struct mr_part_copy), sizeof(struct mr_part_range)};
    for (int i = 0; i < 4; i++) {
        batches[i].to = to;
        batches[i].type = types[i];
        batches[i].record_bytes = bytes[i];
    }
    header_write(to, pid);
    for (uint64_t i = 0; i < n_steps; i++)
        step_write(&batches[0], &batches[1], &batches[2], &batches[3], pid, i);
    for (int i = 0; i < 4; i++)
        batch_write(&batches[i]);
    free(batches);
    return fclose(to);
}

#endif
