/*
 * An op of your own over two fields: it adds noise to x, as much as a random amount says, and makes
 * a third field of that amount. The random numbers are keyed to the sample, so a second run, with
 * more workers, gives the same bits.
 *
 *   cc own_op.c $(pkg-config --cflags --libs millrace) -o own_op && ./own_op
 */
#include <millrace/millrace.h>
#include <stdio.h>
#include <string.h>

struct noise {
    float most;
};

/* The fields that come out: x and label as they are, and amount. */
static int infer(void *user, const struct mr_spec in[], int n_in, struct mr_spec out[], int *n_out)
{
    (void)user;
    if (in[0].dtype != MR_F32)
        return mr_error_set(MR_ESHAPE, "noise: '%s' is %s: expected f32", in[0].name,
                            mr_dtype_name(in[0].dtype));
    memset(&out[n_in], 0, sizeof out[n_in]);
    snprintf(out[n_in].name, sizeof out[n_in].name, "amount");
    out[n_in].dtype = MR_F32; /* rank 0: one number */
    *n_out = n_in + 1;
    return 0;
}

/* Several threads call it at once. */
static int apply(void *user, const struct mr_transform_context *context, const void *const in[],
                 const uint64_t in_dim[][MR_MAX_RANK], void *const out[],
                 uint64_t out_dim[][MR_MAX_RANK])
{
    const struct noise *noise = (const struct noise *)user;
    const float *x = (const float *)in[0];
    float *y = (float *)out[0], *amount = (float *)out[2];
    struct mr_rng rng;
    (void)out_dim; /* nothing varies */
    mr_rng_init_op(&rng, context->random);
    *amount = noise->most * (float)mr_rng_uniform(&rng);
    for (uint64_t i = 0; i < in_dim[0][0]; i++)
        y[i] = x[i] + *amount * (float)mr_rng_normal(&rng);
    memcpy(out[1], in[1], mr_dtype_size(context->in[1].dtype)); /* the label */
    return 0;
}

/* A chain with the op between two others; the scale comes first. */
static int make_chain(struct noise *noise, struct mr_transform **out)
{
    static const char *const fields[] = {"x", "label", NULL};
    struct mr_transform_multi_fn fn;
    memset(&fn, 0, sizeof fn);
    fn.size = sizeof fn;
    fn.name = "noise";
    fn.fields = fields;
    fn.infer = infer;
    fn.apply = apply;
    fn.user = noise;
    fn.version = 1; /* saved states have it: count it up when the results change */
    int rc = mr_transform_create(out);
    if (rc < 0)
        return rc;
    rc = mr_transform_add(*out, "x.scale(1/255)");
    if (rc < 0)
        return rc;
    rc = mr_transform_add_multi(*out, &fn);
    return rc < 0 ? rc : mr_transform_add(*out, "label.one_hot(10)");
}

/* [out] sum: over all elements of all fields. */
static int run(struct mr_dataset *ds, struct mr_transform *chain, uint32_t workers, double *sum)
{
    struct mr_loader_opts opts;
    struct mr_loader *loader;
    struct mr_batch b;
    mr_loader_opts_init(&opts);
    opts.batch_size = 50;
    opts.workers = workers;
    int rc = mr_loader_open(ds, NULL, chain, NULL, &opts, &loader);
    if (rc < 0)
        return rc;
    b.size = sizeof b;
    *sum = 0;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        for (int f = 0; f < b.n_fields; f++)
            for (uint64_t i = 0; i < b.field[f].bytes / sizeof(float); i++)
                *sum += ((const float *)b.field[f].data)[i];
        mr_loader_release(loader, &b, NULL);
    }
    mr_loader_close(loader);
    return rc;
}

int main(void)
{
    struct noise noise = {0.1f};
    struct mr_dataset *ds = NULL;
    struct mr_transform *chain = NULL;
    double one = 0, two = 0;
    int rc = mr_dataset_open("synthetic:n=1000,shape=64,dtype=f32,classes=10", &ds);
    if (rc < 0)
        goto done;
    rc = make_chain(&noise, &chain);
    if (rc < 0)
        goto done;
    rc = run(ds, chain, 1, &one);
    if (rc < 0)
        goto done;
    rc = run(ds, chain, 4, &two);
    if (rc < 0)
        goto done;
    printf("%s\nsum with 1 worker: %.9g, with 4: %.9g\n", mr_transform_text(chain), one, two);
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_transform_destroy(chain);
    mr_dataset_close(ds);
    return rc < 0 || one != two;
}
