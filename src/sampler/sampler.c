/* Shared by all samplers: creation, checks, mapping; and samplers from text. */
#include "sampler/sampler.h"

#include <millrace/options.h>
#include <stdio.h>
#include <string.h>

static const struct mr_sampler_ops *const kinds[] = {
    [MR_SAMPLER_SEQUENTIAL] = &mr_sampler_sequential,
    [MR_SAMPLER_RANDOM] = &mr_sampler_random,
    [MR_SAMPLER_SUBSET] = &mr_sampler_subset,
    [MR_SAMPLER_WEIGHTED] = &mr_sampler_weighted,
    [MR_SAMPLER_CUSTOM] = &mr_sampler_custom,
    [MR_SAMPLER_BATCHES] = &mr_sampler_custom_batches,
    [MR_SAMPLER_BUCKETS] = &mr_sampler_buckets,
    [MR_SAMPLER_PACK] = &mr_sampler_pack,
};

void mr_sampler_opts_fill(struct mr_sampler_opts *opts, size_t size)
{
    const struct mr_sampler_opts full = {.replacement = 1};
    mr_opts_copy(opts, size, &full, sizeof full);
}

static int check_opts(const struct mr_sampler_opts *given, uint64_t n_samples,
                      struct mr_sampler_opts *full)
{
    mr_sampler_opts_init(full);
    int rc = mr_opts_take("sampler_opts", given, full, sizeof *full);
    if (rc < 0)
        return rc;
    if ((unsigned)full->kind >= MR_COUNT(kinds))
        return mr_error_set(MR_EOPTION, "sampler: kind %d: expected 0..%d", (int)full->kind,
                            (int)MR_COUNT(kinds) - 1);
    if (n_samples == MR_UNKNOWN && full->kind != MR_SAMPLER_SEQUENTIAL)
        return mr_error_set(MR_EOPTION,
                            "sampler: the data set's length is not known, so it has no order but "
                            "sequential: to shuffle, set the loader's shuffle_buffer "
                            "(--shuffle-buffer)");
    if (n_samples == MR_UNKNOWN)
        return 0;
    if (n_samples < 1 || n_samples > 1ull << 63)
        return mr_error_set(MR_EOPTION, "sampler: a data set of %llu samples: expected 1..2^63",
                            (unsigned long long)n_samples);
    return 0;
}

int mr_sampler_create(const struct mr_sampler_opts *opts, uint64_t n_samples,
                      struct mr_sampler **out)
{
    if (!opts || !out)
        return mr_error_null("mr_sampler_create", "options and a place for the result");
    struct mr_sampler_opts full;
    int rc = check_opts(opts, n_samples, &full);
    if (rc)
        return rc;
    struct mr_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return mr_error_nomem("sampler", sizeof *s);
    s->ops = kinds[full.kind];
    s->n_samples = n_samples;
    s->seed = full.seed;
    if (s->ops->state_size) {
        s->state = calloc(1, s->ops->state_size);
        if (!s->state) {
            rc = mr_error_nomem("sampler", s->ops->state_size);
            goto fail;
        }
    }
    rc = s->ops->open(s, &full);
    if (rc)
        goto fail;
    *out = s;
    return 0;
fail:
    mr_sampler_destroy(s);
    return rc;
}

void mr_sampler_destroy(struct mr_sampler *sampler)
{
    if (!sampler)
        return;
    if (sampler->ops->close && sampler->state)
        sampler->ops->close(sampler);
    free(sampler->state);
    free(sampler);
}

uint64_t mr_sampler_length(const struct mr_sampler *sampler)
{
    if (!sampler)
        return 0;
    return sampler->length;
}

const char *mr_sampler_text(const struct mr_sampler *sampler)
{
    if (!sampler)
        return NULL;
    return sampler->text;
}

int mr_sampler_is_sequential(const struct mr_sampler *sampler)
{
    if (!sampler)
        return 0;
    return sampler->ops->sequential;
}

int mr_sampler_map(const struct mr_sampler *sampler, uint64_t epoch, uint64_t position,
                   uint64_t count, uint64_t *out_indices)
{
    if (!sampler || !out_indices)
        return mr_error_null("mr_sampler_map", "a sampler and a place for the indices");
    if (!sampler->ops->map)
        return mr_error_set(MR_EMISUSE, "sampler %s gives batches: call mr_sampler_batch()",
                            sampler->text);
    if (position > sampler->length || count > sampler->length - position)
        return mr_error_set(MR_EMISUSE,
                            "sampler %s: positions %llu and %llu more: an epoch has %llu",
                            sampler->text, (unsigned long long)position, (unsigned long long)count,
                            (unsigned long long)sampler->length);
    return sampler->ops->map(sampler, epoch, position, count, out_indices);
}

uint64_t mr_words_hash(const void *words, uint64_t n)
{
    const unsigned char *p = words;
    uint64_t h = mr_mix64(MR_HASH_START ^ n);
    for (uint64_t i = 0; i < n; i++, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = mr_mix64(h ^ w) + i;
    }
    return h;
}

/* Samplers from text. */
struct text_args {
    int shuffle, replacement;
    uint64_t n, block, window, nodes, ranks;
};

static const struct mr_option no_options[] = {{0}};
static const struct mr_option random_options[] = {
    {.name = "block",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct text_args, block),
     .initial = "0",
     .unit = "samples",
     .help = "that stay together; 0: each sample for itself"},
    {.name = "window",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct text_args, window),
     .initial = "0",
     .unit = "blocks",
     .help = "that are shuffled together; 0: 16"},
    {.name = "nodes",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct text_args, nodes),
     .initial = "0",
     .max = 1 << 20,
     .unit = "nodes",
     .help = "that blocks belong to; 0: to none"},
    {.name = "ranks",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct text_args, ranks),
     .initial = "0",
     .max = 1 << 20,
     .unit = "ranks",
     .help = "on all nodes together"},
    {0},
};
static const struct mr_option subset_options[] = {
    {.name = "shuffle",
     .type = MR_OPT_FLAG,
     .offset = offsetof(struct text_args, shuffle),
     .help = "another order each epoch"},
    {0},
};
static const struct mr_option weighted_options[] = {
    {.name = "replacement",
     .type = MR_OPT_FLAG,
     .offset = offsetof(struct text_args, replacement),
     .initial = "1",
     .help = "a sample may be drawn again within an epoch"},
    {.name = "n",
     .type = MR_OPT_UINT,
     .offset = offsetof(struct text_args, n),
     .initial = "0",
     .unit = "draws",
     .help = "positions of an epoch; 0: the data set's length"},
    {0},
};

static const struct text_form {
    const char *name;
    enum mr_sampler_kind kind;
    bool file;
    const struct mr_option *options;
} forms[] = {
    {"sequential", MR_SAMPLER_SEQUENTIAL, false, no_options},
    {"random", MR_SAMPLER_RANDOM, false, random_options},
    {"subset", MR_SAMPLER_SUBSET, true, subset_options},
    {"weighted", MR_SAMPLER_WEIGHTED, true, weighted_options},
};

static const struct text_form *form_of(const char *text, size_t name_bytes)
{
    for (size_t i = 0; i < MR_COUNT(forms); i++)
        if (strlen(forms[i].name) == name_bytes && memcmp(forms[i].name, text, name_bytes) == 0)
            return &forms[i];
    mr_error_set(MR_EOPTION,
                 "sampler '%s': expected sequential, random[:block=N][,window=N]"
                 "[,nodes=N,ranks=N], "
                 "subset:FILE[,shuffle] or weighted:FILE[,replacement=0][,n=N]",
                 text);
    return NULL;
}

static int open_file_form(const struct text_form *form, const char *path,
                          const struct text_args *args, uint64_t n_samples, uint64_t seed,
                          struct mr_sampler **out)
{
    struct mr_sampler_opts opts;
    mr_sampler_opts_init(&opts);
    opts.kind = form->kind;
    opts.seed = seed;
    opts.shuffle = args->shuffle;
    opts.replacement = args->replacement;
    opts.n_draws = args->n;
    void *numbers;
    uint64_t n;
    int rc = mr_numbers_read(path, form->kind == MR_SAMPLER_SUBSET, &numbers, &n);
    if (rc)
        return rc;
    if (form->kind == MR_SAMPLER_SUBSET) {
        opts.indices = numbers;
        opts.n_indices = n;
    } else {
        opts.weights = numbers;
        opts.n_weights = n;
    }
    rc = mr_sampler_create(&opts, n_samples, out);
    if (rc == MR_EOPTION) {
        struct mr_error_kept kept;
        mr_error_keep(rc, &kept);
        rc = mr_error_set(rc, "%.400s: %.600s", path, kept.text);
    }
    free(numbers);
    return rc;
}

int mr_sampler_open(const char *text, uint64_t n_samples, uint64_t seed, struct mr_sampler **out)
{
    if (!text || !out)
        return mr_error_null("mr_sampler_open", "a text and a place for the result");
    size_t name_bytes = strcspn(text, ":,");
    const struct text_form *form = form_of(text, name_bytes);
    if (!form)
        return MR_EOPTION;
    const char *rest = text + name_bytes;
    char *path = NULL;
    if (form->file) {
        size_t path_bytes = *rest == ':' ? strcspn(rest + 1, ",") : 0;
        if (path_bytes == 0)
            return mr_error_set(MR_EOPTION, "sampler '%s': expected %s:FILE", text, form->name);
        path = strndup(rest + 1, path_bytes);
        if (!path)
            return mr_error_nomem("sampler", path_bytes);
        rest += 1 + path_bytes;
    }
    char who[24];
    snprintf(who, sizeof who, "%s:", form->name);
    struct text_args args = {0};
    int rc = mr_options_init(form->options, &args);
    if (!rc && *rest)
        rc = mr_options_parse(form->options, &args, who, rest + 1, NULL);
    if (!rc && form->file)
        rc = open_file_form(form, path, &args, n_samples, seed, out);
    else if (!rc)
        rc = mr_sampler_create(&(struct mr_sampler_opts){.size = sizeof(struct mr_sampler_opts),
                                                         .kind = form->kind,
                                                         .seed = seed,
                                                         .block = args.block,
                                                         .window = args.window,
                                                         .nodes = (uint32_t)args.nodes,
                                                         .ranks = (uint32_t)args.ranks,
                                                         .replacement = 1},
                               n_samples, out);
    free(path);
    return rc;
}
