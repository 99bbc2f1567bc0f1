/*
 * Texts, and batches that a callback chooses: samples have a caption, which arrives as a string,
 * and each batch has as many samples of either class, although one is rare. The labels are read
 * alone, before the run.
 *
 *   cc captions.c $(pkg-config --cflags --libs millrace) -o captions && ./captions
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>

#define N       1000
#define BATCH   8
#define LONGEST 64 /* bytes of a caption */

enum { CAPTION, LABEL };

static int get(void *user, uint64_t index, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    (void)user;
    int64_t label = index % 10 == 3; /* one sample in ten */
    char text[LONGEST];
    int n = snprintf(text, sizeof text, "%s number %llu", label ? "a heron" : "a sparrow",
                     (unsigned long long)index);
    char *caption = (char *)row[CAPTION];
    for (int i = 0; i < n; i++)
        caption[i] = text[i]; /* without a NUL */
    dim[CAPTION][0] = (uint64_t)n;
    *(int64_t *)row[LABEL] = label;
    return 0;
}

static int open_dataset(struct mr_dataset **out)
{
    struct mr_callback_opts o;
    mr_callback_opts_init(&o);
    o.name = "birds";
    o.n = N;
    o.n_fields = 2;
    o.field[CAPTION] = (struct mr_spec){.name = "caption",
                                        .dtype = MR_U8,
                                        .rank = 1,
                                        .var_dims = 1,
                                        .kind = MR_KIND_STRING,
                                        .dim = {LONGEST}};
    o.field[LABEL] = (struct mr_spec){.name = "label", .dtype = MR_I64};
    o.get = get;
    return mr_dataset_open_callback(&o, out);
}

/* The samples of each class. */
struct classes {
    uint64_t sample[2][N], n[2];
};

/* Reads the labels, and nothing else where the format keeps them apart. */
static int read_labels(struct mr_dataset *ds, struct classes *out)
{
    for (uint64_t i = 0; i < mr_dataset_length(ds); i++) {
        int64_t label;
        int rc = mr_dataset_read_field(ds, i, LABEL, &label, NULL);
        if (rc < 0)
            return rc;
        out->sample[label][out->n[label]++] = i;
    }
    return 0;
}

static uint64_t n_batches(void *user, uint64_t epoch)
{
    (void)user;
    (void)epoch;
    return N / BATCH;
}

/* Chooses the samples of a batch: half of them of either class. It depends on nothing but its
 * arguments, so resuming is exact. */
static int choose(void *user, uint64_t epoch, uint64_t batch, uint64_t max,
                  struct mr_batch_item *items)
{
    const struct classes *c = (const struct classes *)user;
    struct mr_rng rng;
    mr_rng_init(&rng, 1, epoch, batch, 0);
    for (uint64_t i = 0; i < max; i++)
        items[i].index = c->sample[i % 2][mr_rng_below(&rng, c->n[i % 2])];
    return (int)max;
}

/* The sampler owns the classes, and frees them. */
static int create_sampler(struct mr_dataset *ds, struct mr_sampler **out)
{
    struct mr_sampler_opts o;
    struct classes *c = (struct classes *)calloc(1, sizeof *c);
    if (!c)
        return mr_error_set(MR_ELIMIT, "no memory for the classes");
    int rc = read_labels(ds, c);
    if (rc < 0)
        goto fail;
    printf("%llu sparrows, %llu herons\n", (unsigned long long)c->n[0],
           (unsigned long long)c->n[1]);
    mr_sampler_opts_init(&o);
    o.kind = MR_SAMPLER_BATCHES;
    o.name = "balanced"; /* in saved states: a run with another one does not resume */
    o.version = 1;
    o.n_batches = n_batches;
    o.batch = choose;
    o.max_batch = BATCH;
    o.user = c;
    o.close = free;
    rc = mr_sampler_create(&o, mr_dataset_length(ds), out);
    if (rc < 0)
        goto fail;
    return 0;
fail:
    free(c);
    return rc;
}

/* Prints the first batch's captions. [out] herons: of the whole epoch. */
static int read_epoch(struct mr_dataset *ds, struct mr_sampler *sampler, uint64_t *herons)
{
    struct mr_loader *loader;
    struct mr_batch b;
    b.size = sizeof b;
    int rc = mr_loader_open(ds, sampler, NULL, NULL, NULL, &loader);
    if (rc < 0)
        return rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        const int64_t *label = (const int64_t *)b.field[LABEL].host;
        for (uint64_t i = 0; i < b.n; i++) {
            uint64_t n_bytes;
            const char *text = mr_batch_text(&b, CAPTION, i, &n_bytes);
            if (b.index == 0)
                printf("  %.*s\n", (int)n_bytes, text);
            *herons += (uint64_t)label[i];
        }
        mr_loader_release(loader, &b, NULL);
    }
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_sampler *sampler = NULL;
    uint64_t herons = 0;
    int rc = open_dataset(&ds);
    if (rc < 0)
        goto done;
    rc = create_sampler(ds, &sampler);
    if (rc < 0)
        goto done;
    rc = read_epoch(ds, sampler, &herons);
    if (rc < 0)
        goto done;
    printf("an epoch has %llu herons of %d birds\n", (unsigned long long)herons, N);
    if (herons != N / 2)
        rc = mr_error_set(MR_ECALLBACK, "expected half of them");
done:
    if (rc < 0)
        fprintf(stderr, "captions: %s\n", mr_last_error());
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
