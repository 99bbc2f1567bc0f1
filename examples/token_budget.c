/*
 * Batches by a budget of tokens: sequences of about the same length together, padded to the longest
 * of their batch, as many as 512 tokens allow, with a mask that says which are tokens. Prints the
 * batches, and how much of them is no padding; the same for batches of a fixed size.
 *
 *   cc token_budget.c $(pkg-config --cflags --libs millrace) -o token_budget && ./token_budget
 */
#include <millrace/millrace.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define N       300
#define LONGEST 128
#define BUDGET  512

/* Most sequences are short. */
static uint32_t length_of(uint64_t index)
{
    uint32_t x = (uint32_t)(index * 7919 % LONGEST);
    return 1 + x * x / LONGEST;
}

/* Writes a sequence: its length, and tokens. Several threads call it at once. */
static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    int32_t *token = (int32_t *)row[0];
    dim[0][0] = length_of(index);
    for (uint64_t i = 0; i < dim[0][0]; i++)
        token[i] = (int32_t)(index + i);
    return 0;
}

static int open_dataset(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "sequences";
    o.n = N;
    o.n_fields = 1;
    snprintf(o.field[0].name, sizeof o.field[0].name, "tokens");
    o.field[0].dtype = MR_I32;
    o.field[0].rank = 1;
    o.field[0].dim[0] = LONGEST;
    o.field[0].var_dims = 1; /* the first dimension varies */
    o.get = get;
    return mr_dataset_open_callback(&o, out);
}

static int create_sampler(struct mr_sampler **out)
{
    uint32_t length[N];
    struct mr_sampler_opts o;
    for (uint64_t i = 0; i < N; i++)
        length[i] = length_of(i);
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_BUCKETS;
    o.seed = 1;
    o.lengths = length; /* copied */
    o.n_lengths = N;
    o.max_tokens = BUDGET;
    o.max_batch = 64; /* a few very short sequences would make batches of hundreds */
    return mr_sampler_create(&o, N, out);
}

/* The fields of a batch: the data set's, then the mask that padding adds. */
enum { TOKENS, MASK };

/* Counts what attention may look at: the ones of bool [sequences, longest]. */
static uint64_t count_tokens(const struct mr_batch *b)
{
    const unsigned char *mask = (const unsigned char *)b->field[MASK].host;
    uint64_t n = 0;
    for (uint64_t i = 0; i < b->field[MASK].bytes; i++)
        n += mask[i];
    return n;
}

/* One epoch. sampler NULL: 8 sequences at a time, in order. */
static int read_epoch(struct mr_dataset *ds, struct mr_sampler *sampler, int print)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch b = {.size = sizeof b};
    uint64_t n = 0, used = 0, all = 0;
    mr_loader_opts_init(&opts);
    opts.batch_size = 8; /* not used with a batch sampler */
    opts.collate = MR_COLLATE_PAD;
    opts.pad_value = -1;
    opts.mask = "tokens"; /* the field; its mask is called tokens_mask */
    int rc = mr_loader_open(ds, sampler, NULL, NULL, &opts, &loader);
    if (rc < 0)
        return rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        const uint64_t *dim = b.field[TOKENS].spec.dim;
        used += count_tokens(&b);
        all += dim[0] * dim[1];
        n++;
        if (print && (b.index < 8 || b.last))
            printf("batch %llu: %llu sequences of up to %llu tokens\n", (unsigned long long)b.index,
                   (unsigned long long)dim[0], (unsigned long long)dim[1]);
        mr_loader_release(loader, &b, NULL);
    }
    printf("%s: %llu batches, %.0f%% of their elements are tokens\n",
           sampler ? "by tokens" : "8 sequences each", (unsigned long long)n,
           100 * (double)used / (double)(all > 0 ? all : 1));
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    double fill;
    int rc = open_dataset(&ds);
    if (rc < 0)
        goto end;
    rc = create_sampler(&sampler);
    if (rc < 0)
        goto end;
    rc = read_epoch(ds, sampler, 1);
    if (rc < 0)
        goto end;
    rc = read_epoch(ds, NULL, 0);
    if (rc < 0)
        goto end;
    rc = mr_sampler_efficiency(sampler, 0, &fill);
    if (rc == 0)
        printf("mr_sampler_efficiency(): %.0f%%\n", 100 * fill);
end:
    if (rc < 0)
        fprintf(stderr, "token_budget: %s\n", mr_last_error());
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
