/*
 * Sequence packing: documents of varying length in rows of 512 tokens, with position ids and the
 * boundaries that attention needs, and an exact resume in the middle of an epoch. Prints a batch,
 * then stops, resumes from the state, and compares with a run that did not stop.
 *
 *   cc packing.c $(pkg-config --cflags --libs millrace) -o packing && ./packing
 */
#include <millrace/millrace.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N       2000
#define LONGEST 1500 /* such a document takes parts of three rows */
#define LENGTH  512
#define ROWS    4

/* Most documents are short. */
static uint32_t length_of(uint64_t index)
{
    uint32_t x = (uint32_t)(index * 7919 % LONGEST);
    return 1 + (uint32_t)((uint64_t)x * x / LONGEST);
}

/* Writes a document. Several threads call it at once. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    int32_t *token = (int32_t *)row[0];
    dim[0][0] = length_of(index);
    for (uint64_t i = 0; i < dim[0][0]; i++)
        token[i] = (int32_t)(1000 * index + i);
    return 0;
}

static int open_dataset(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "documents";
    o.n = N;
    o.n_fields = 1;
    snprintf(o.field[0].name, sizeof o.field[0].name, "ids");
    o.field[0].dtype = MR_I32;
    o.field[0].rank = 1;
    o.field[0].dim[0] = LONGEST;
    o.field[0].var_dims = 1; /* the first dimension varies */
    o.get = get;
    return mr_dataset_open_callback(&o, out);
}

static int create_sampler(struct mr_sampler **out)
{
    static uint32_t length[N];
    struct mr_sampler_opts o;
    for (uint64_t i = 0; i < N; i++)
        length[i] = length_of(i);
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_PACK;
    o.seed = 1;
    o.lengths = length; /* copied */
    o.n_lengths = N;
    o.row_length = LENGTH;
    o.rows = ROWS;
    o.max_per_row = 32;
    return mr_sampler_create(&o, N, out);
}

/* The fields of a batch: the data set's, then those that packing adds. */
enum { IDS, POSITIONS, SEGMENTS, CU_SEQLENS };

static void print_batch(const struct mr_batch *b)
{
    const int32_t *cu = (const int32_t *)b->field[CU_SEQLENS].host;
    const int32_t *position = (const int32_t *)b->field[POSITIONS].host;
    const int32_t *segment = (const int32_t *)b->field[SEGMENTS].host;
    uint64_t n = b->field[CU_SEQLENS].spec.dim[0] - 1;
    printf("batch %llu: %llu parts of documents in %llu rows\n", (unsigned long long)b->index,
           (unsigned long long)b->n, (unsigned long long)b->field[IDS].spec.dim[0]);
    for (uint64_t i = 0; i < n; i++) {
        int32_t begin = cu[i], end = cu[i + 1];
        if (end == begin)
            continue;
        printf("  row %d: %4d tokens from %3d on: ", begin / LENGTH, end - begin, begin % LENGTH);
        if (segment[begin] == 0)
            printf("padding\n");
        else
            printf("segment %d, positions %d to %d\n", segment[begin], position[begin],
                   position[end - 1]);
    }
}

/* Reads up to `most` batches; adds what they hold to *hash; saves the state behind the last one. */
static int read_some(struct mr_dataset *ds, struct mr_sampler *sampler, const char *from,
                     uint64_t most, uint64_t *hash, char *state, size_t cap)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch b;
    b.size = sizeof b;
    mr_loader_opts_init(&opts);
    opts.collate = MR_COLLATE_PACK;
    opts.state = from;
    int rc = mr_loader_open(ds, sampler, NULL, NULL, &opts, &loader);
    if (rc < 0)
        return rc;
    for (uint64_t n = 0; n < most && (rc = mr_loader_next(loader, NULL, &b)) > 0; n++) {
        if (b.index == 0 && !from && most < UINT64_MAX)
            print_batch(&b);
        for (int f = 0; f < b.n_fields; f++) {
            const unsigned char *byte = (const unsigned char *)b.field[f].host;
            for (uint64_t i = 0; i < b.field[f].bytes; i++)
                *hash = (*hash ^ byte[i]) * 1099511628211u;
        }
        mr_loader_release(loader, &b, NULL);
    }
    if (rc >= 0)
        rc = mr_loader_state(loader, state, cap);
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    char state[1024], end[1024];
    uint64_t whole = 1, parts = 1;
    int rc = open_dataset(&ds);
    if (rc < 0)
        goto end;
    rc = create_sampler(&sampler);
    if (rc < 0)
        goto end;
    rc = read_some(ds, sampler, NULL, 100, &parts, state, sizeof state);
    if (rc < 0)
        goto end;
    rc = read_some(ds, sampler, state, UINT64_MAX, &parts, end, sizeof end);
    if (rc < 0)
        goto end;
    rc = read_some(ds, sampler, NULL, UINT64_MAX, &whole, end, sizeof end);
    if (rc < 0)
        goto end;
    printf("resumed after 100 batches: %s\n", whole == parts ? "the same bytes" : "OTHER BYTES");
    rc = whole == parts ? 0 : -1;
end:
    if (rc < 0)
        fprintf(stderr, "packing: %s\n", mr_last_error());
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
