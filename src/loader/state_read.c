/* Reads a state, and checks that it belongs to this data set and order. */
#include "loader/engine.h"
#include "loader/state.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A whole number below 2^53, which JSON can hold exactly. UINT64_MAX: it is none. */
static uint64_t whole(const cJSON *item)
{
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return v >= 0 && v < 0x1p53 && floor(v) == v ? (uint64_t)v : UINT64_MAX;
}

static int get_count(const cJSON *root, const char *name, uint64_t *out)
{
    *out = whole(cJSON_GetObjectItemCaseSensitive(root, name));
    return *out != UINT64_MAX
               ? 0
               : mr_error_set(MR_ESTATE,
                              "state: \"%s\" is missing or not a whole number from 0 to 2^53",
                              name);
}

static int check_text(const cJSON *root, const char *name, const char *what, const char *have,
                      const char *advice)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    if (!cJSON_IsString(item))
        return mr_error_set(MR_ESTATE, "state: \"%s\" is missing or not a string", name);
    if (strcmp(item->valuestring, have) != 0)
        return mr_error_set(
            MR_ESTATE, "state: made with another %s: the state has %.200s, this run has %s%s", what,
            item->valuestring[0] ? item->valuestring : "none", have[0] ? have : "none", advice);
    return 0;
}

/* The length of an order's text up to what it says of nodes. */
static size_t before_nodes(const char *text)
{
    const char *at = strstr(text, ",nodes=");
    size_t n = strlen(text);
    return at ? (size_t)(at - text) : MR_MAX(n, 1) - 1; /* ends with ')' */
}

/* Are nodes or ranks all in which the orders differ? */
static bool nodes_differ(const char *a, const char *b)
{
    size_t n = before_nodes(a);
    return strcmp(a, b) != 0 && (strstr(a, ",nodes=") || strstr(b, ",nodes=")) &&
           n == before_nodes(b) && memcmp(a, b, n) == 0;
}

/* What decides which samples come next, and what becomes of them. States of 0.1 have no chain. */
static int check_order(const struct mr_loader *ld, const cJSON *root)
{
    static const char advice[] = ": use the same, or force-state (force_state, --force-state)";
    static const char of_nodes[] =
        ": blocks belong to nodes, so the order depends on the numbers of nodes and ranks: to go "
        "on with others, keep the state's: sampler random:block=N,window=N,nodes=N,ranks=N";
    char order[MR_STATE_ORDER_BYTES];
    if (ld->opts.force_state)
        return 0;
    const cJSON *sampler = cJSON_GetObjectItemCaseSensitive(root, "sampler");
    const char *have = mr_state_order(ld, order);
    bool nodes = cJSON_IsString(sampler) && nodes_differ(sampler->valuestring, have);
    int rc = check_text(root, "sampler", "sampler", have, nodes ? of_nodes : advice);
    if (rc < 0)
        return rc;
    if (ld->sampler->unnamed)
        mr_log(MR_LOG_WARNING,
               "state: %s may be another order than the state's: opts.name tells "
               "samplers apart",
               mr_sampler_text(ld->sampler));
    if (!cJSON_HasObjectItem(root, "chain"))
        return 0;
    char chain[MR_STATE_CHAIN_BYTES];
    mr_state_chain(ld, chain);
    return check_text(root, "chain", "transform chain", chain, advice);
}

static int check_identity(const struct mr_loader *ld, const cJSON *root)
{
    char fingerprint[32], seed[32];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, mr_dataset_fingerprint(ld->ds));
    snprintf(seed, sizeof seed, "%" PRIu64, ld->opts.seed);
    uint64_t version = 0;
    int rc = get_count(root, "millrace_state", &version);
    if (rc < 0)
        return rc;
    if (version != MR_STATE_VERSION && version != MR_STATE_VERSION_IN_ORDER)
        return mr_error_set(MR_ESTATE,
                            "state: version %" PRIu64 ", this library reads versions %d and %d",
                            version, MR_STATE_VERSION_IN_ORDER, MR_STATE_VERSION);
    rc = check_text(root, "dataset", "data set (fingerprint)", fingerprint, "");
    if (rc < 0)
        return rc;
    rc = check_order(ld, root);
    return rc < 0 ? rc : check_text(root, "seed", "seed", seed, "");
}

static int read_place(const struct mr_loader *ld, const cJSON *root, struct mr_state *out)
{
    uint64_t length = mr_state_samples(ld), samples = 0;
    int rc = get_count(root, "samples", &samples);
    if (rc < 0)
        return rc;
    if (samples != length)
        return mr_error_set(MR_ESTATE,
                            "state: an epoch has %" PRIu64 " samples there, %" PRIu64 " here",
                            samples, length);
    rc = get_count(root, "epoch", &out->epoch);
    if (rc < 0)
        return rc;
    rc = get_count(root, "position", &out->position);
    if (rc < 0)
        return rc;
    rc = get_count(root, "bad_samples", &out->bad_samples);
    if (rc < 0)
        return rc;
    bool any = ld->sampler->max_batch > 0 || ld->ds->ops->iterable; /* see mr_epochs_create() */
    if (out->position <= length || any)
        return 0;
    return mr_error_set(MR_ESTATE,
                        "state: position %" PRIu64 " is past the epoch's %" PRIu64 " samples",
                        out->position, length);
}

/* ---- unfinished batches ---- */

/* Which batches they are depends on these. */
static int check_same(const struct mr_loader *ld, const cJSON *root)
{
    const struct {
        const char *name;
        uint64_t have;
    } number[] = {
        {"batch_size", ld->opts.batch_size}, {"world", ld->opts.world}, {"rank", ld->opts.rank}};
    for (size_t i = 0; i < MR_COUNT(number); i++) {
        uint64_t there = whole(cJSON_GetObjectItemCaseSensitive(root, number[i].name));
        if (there == UINT64_MAX)
            return mr_error_set(MR_ESTATE, "state: \"%s\" is missing or not a whole number",
                                number[i].name);
        if (there != number[i].have)
            return mr_error_set(MR_ESTATE,
                                "state: it lists unfinished batches of a run with %s %" PRIu64
                                ", this run has %" PRIu64 ": resume with the same",
                                number[i].name, there, number[i].have);
    }
    return 0;
}

static int read_batch(const struct mr_loader *ld, const cJSON *item, const struct mr_state *state,
                      struct mr_plan_again *out)
{
    uint64_t epoch = UINT64_MAX, position = UINT64_MAX;
    if (cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2) {
        epoch = whole(item->child);
        position = whole(item->child->next);
    }
    uint64_t end = epoch == state->epoch ? state->position : mr_sampler_length(ld->sampler);
    if (epoch > state->epoch || position >= end)
        return mr_error_set(MR_ESTATE, "state: an unfinished batch is not [epoch, position] before "
                                       "the state's own epoch and position");
    *out = (struct mr_plan_again){.epoch = epoch, .shard.start = position};
    return 0;
}

static int read_unfinished(const struct mr_loader *ld, const cJSON *root, struct mr_state *state)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "unfinished"), *item;
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n == 0)
        return 0;
    if (ld->ds->ops->iterable || ld->sampler->max_batch > 0)
        return mr_error_set(MR_ESTATE, "state: it lists unfinished batches, which are not those of "
                                       "a batch sampler or an iterable data set");
    int rc = check_same(ld, root);
    if (rc < 0)
        return rc;
    struct mr_plan_again *again = calloc((size_t)n, sizeof *again);
    if (!again)
        return mr_error_nomem("state", (uint64_t)n * sizeof *again);
    cJSON_ArrayForEach(item, list)
    {
        rc = read_batch(ld, item, state, &again[state->n_again++]);
        if (rc < 0)
            goto fail;
    }
    rc = mr_plan_sort_again(again, state->n_again, ld->opts.batch_size * ld->opts.world);
    if (rc < 0)
        goto fail;
    state->again = again;
    return 0;
fail:
    state->n_again = 0;
    free(again);
    return rc;
}

/* ---- all of it ---- */

int mr_state_load(const struct mr_loader *ld, const char *text, struct mr_state *out)
{
    const char *end = text;
    cJSON *root = cJSON_ParseWithOpts(text, &end, 1);
    if (!root)
        return mr_error_set(MR_ESTATE, "state: not JSON at byte %td: '%.20s'", end ? end - text : 0,
                            end ? end : "");
    struct mr_state state = {0};
    int rc = cJSON_IsObject(root) ? 0 : mr_error_set(MR_ESTATE, "state: not a JSON object");
    if (rc < 0)
        goto end;
    rc = check_identity(ld, root);
    if (rc < 0)
        goto end;
    rc = read_place(ld, root, &state);
    if (rc < 0)
        goto end;
    rc = read_unfinished(ld, root, &state);
    if (rc < 0)
        goto end;
    *out = state;
end:
    cJSON_Delete(root);
    return rc;
}
