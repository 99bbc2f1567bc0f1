/*
 * A tar archive from standard input, in WebDataset's layout: members with one key are a sample
 * (0001.jpg, 0001.cls). It is read once, as it arrives, and shuffled in a buffer. How many samples
 * there are is known when it ends.
 *
 *   cc tar_stdin.c $(pkg-config --cflags --libs millrace) -o tar_stdin
 *   cat shards/000.tar shards/001.tar | ./tar_stdin
 *   curl -s https://example.org/shards/000.tar | ./tar_stdin
 */
#include <millrace/millrace.h>
#include <stdio.h>

/* The members say what the fields are: pictures by their endings, the others texts. */
static int open_archive(struct mr_dataset **out)
{
    struct mr_tar_opts o;
    mr_tar_opts_init(&o);
    o.path = "-"; /* the same as mr_dataset_open("tar:-,text", out) */
    o.text = 1;
    return mr_dataset_open_tar(&o, out); /* waits for the first sample */
}

/* Pictures come in many sizes, and a batch has one. Other archives need no ops. */
static int create_chain(const struct mr_dataset *ds, struct mr_transform **out)
{
    int rc = mr_transform_create(out);
    if (rc < 0)
        return rc;
    return mr_dataset_picture(ds) == 0 ? mr_transform_add(*out, "resize(64,64)") : 0;
}

static void print_field(const struct mr_batch_field *f)
{
    char text[128];
    printf("  %s, %llu bytes\n", mr_spec_format(&f->spec, text, sizeof text),
           (unsigned long long)f->bytes);
}

/* [out] n: the samples. */
static int feed(struct mr_loader *loader, uint64_t *n)
{
    struct mr_batch b = {.size = sizeof b};
    int rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        printf("batch %llu: %llu samples, the first is number %llu%s\n",
               (unsigned long long)b.index, (unsigned long long)b.n,
               (unsigned long long)b.indices[0], b.last ? "; the last one" : "");
        for (int f = 0; f < b.n_fields && b.index == 0; f++)
            print_field(&b.field[f]);
        *n += b.n;
        mr_loader_release(loader, &b, NULL);
    }
    return rc;
}

int main(void)
{
    struct mr_dataset *ds = NULL;
    struct mr_transform *chain = NULL;
    struct mr_loader *loader = NULL;
    struct mr_loader_opts opts;
    uint64_t n = 0;
    int rc = open_archive(&ds);
    if (rc < 0)
        goto done;
    rc = create_chain(ds, &chain);
    if (rc < 0)
        goto done;
    mr_loader_opts_init(&opts);
    opts.batch_size = 32;
    opts.shuffle_buffer = 1000; /* samples that each is drawn from */
    opts.bad = MR_BAD_SKIP;     /* a damaged picture does not end the run */
    rc = mr_loader_open(ds, NULL, chain, NULL, &opts, &loader);
    if (rc < 0)
        goto done;
    rc = feed(loader, &n);
    if (rc == 0)
        printf("%llu samples\n", (unsigned long long)n);
done:
    if (rc < 0)
        fprintf(stderr, "tar_stdin: %s\n", mr_last_error());
    mr_loader_close(loader);
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
    return rc < 0;
}
