/* The texts of all ranks become one log. Texts may be files, which are not trusted. */
#include "ranks/ranks.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WORLD_MOST (1u << 20)
#define US_MOST    1e13 /* of one step */

struct text {
    cJSON *root;
    const cJSON *next; /* element of its steps */
    uint64_t first, n; /* steps */
    uint32_t rank;
    const char *name;
};

static double number(const cJSON *in, const char *key, double most)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(in, key);
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble <= most ? v->valuedouble : -1;
}

static void copy_text(char *to, size_t bytes, const cJSON *in, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(in, key);
    snprintf(to, bytes, "%s", cJSON_IsString(v) ? v->valuestring : "");
}

static int bad(const struct text *t, const char *what)
{
    return mr_error_set(MR_EFORMAT, "%s: %s: expected a rank's report, as --report-dir writes it",
                        t->name ? t->name : "a rank's report", what);
}

static int take_fact(struct ranks_all *all, const struct text *t)
{
    struct ranks_fact *f = &all->rank[t->rank];
    const cJSON *stages = cJSON_GetObjectItemCaseSensitive(t->root, "stages");
    copy_text(f->host, sizeof f->host, t->root, "host");
    copy_text(f->bottleneck, sizeof f->bottleneck, t->root, "bottleneck");
    f->read_bytes_per_s = number(t->root, "read_bytes_per_s", 1e18);
    for (int s = 0; s < MR_N_STAGES; s++) {
        const cJSON *v = cJSON_GetArrayItem(stages, s);
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < 1e9))
            return bad(t, "stages");
        f->share[s] = v->valuedouble;
    }
    return 0;
}

static bool flag(const struct text *t, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(t->root, key));
}

static int parse(struct text *t, const char *text, uint32_t world)
{
    t->root = cJSON_Parse(text);
    const double rank = number(t->root, "millrace_rank", WORLD_MOST - 1);
    const double of = number(t->root, "world", WORLD_MOST);
    const double first = number(t->root, "first", 0x1p53);
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(t->root, "steps_us");
    const cJSON *v;
    if (!cJSON_IsObject(t->root) || rank < 0 || of < 0 || first < 0 || !cJSON_IsArray(steps))
        return bad(t, "no report");
    if (of != world || rank >= of)
        return mr_error_set(MR_EFORMAT,
                            "%s: rank %.0f of %.0f, but there %s %" PRIu32
                            " report%s: expected one of each rank; remove those of other runs",
                            t->name ? t->name : "a rank's report", rank, of,
                            world == 1 ? "is" : "are", world, world == 1 ? "" : "s");
    cJSON_ArrayForEach(v, steps)
    {
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble <= US_MOST))
            return bad(t, "a step's time");
        t->n++;
    }
    if (t->n % 3)
        return bad(t, "a step without all its times");
    t->n /= 3;
    t->rank = (uint32_t)rank;
    t->first = (uint64_t)first;
    t->next = steps->child;
    return 0;
}

static double take(struct text *t)
{
    double ns = t->next->valuedouble * 1000;
    t->next = t->next->next;
    return ns;
}

/* Without sums that are timed: what each would have waited for the slowest. */
static void derive_sums(struct mr_rank_step *step, uint32_t world)
{
    double most = 0;
    for (uint32_t r = 0; r < world; r++)
        if (step[r].data_ns + step[r].compute_ns > most)
            most = step[r].data_ns + step[r].compute_ns;
    for (uint32_t r = 0; r < world; r++)
        step[r].sum_ns = most - step[r].data_ns - step[r].compute_ns;
}

static int add_steps(struct ranks_all *all, struct text *t)
{
    uint64_t from = 0, to = UINT64_MAX;
    int rc = 0;
    for (uint32_t i = 0; i < all->world; i++) {
        from = t[i].first > from ? t[i].first : from;
        to = t[i].first + t[i].n < to ? t[i].first + t[i].n : to;
    }
    struct mr_rank_step *step = calloc(all->world ? all->world : 1, sizeof *step);
    if (!step)
        return mr_error_set(MR_ELIMIT, "ranks: no memory for a step of %" PRIu32, all->world);
    for (uint32_t i = 0; i < all->world; i++)
        for (uint64_t k = t[i].first; k < from && k < t[i].first + t[i].n; k++)
            for (int j = 0; j < 3; j++)
                take(&t[i]);
    for (uint64_t k = from; k < to && rc == 0; k++) {
        for (uint32_t i = 0; i < all->world; i++) {
            struct mr_rank_step *s = &step[t[i].rank];
            s->data_ns = take(&t[i]);
            s->compute_ns = take(&t[i]);
            s->sum_ns = take(&t[i]);
        }
        if (!all->lockstep)
            derive_sums(step, all->world);
        rc = mr_step_log_add(all->log, step);
    }
    free(step);
    return rc;
}

static int begin(struct ranks_all *all, uint32_t world)
{
    if (all->log)
        return 0;
    all->world = world;
    all->rank = calloc(world, sizeof *all->rank);
    if (!all->rank)
        return mr_error_set(MR_ELIMIT, "ranks: no memory for %" PRIu32, world);
    return mr_step_log_create(world, &all->log);
}

int ranks_all_add(struct ranks_all *all, char *const *texts, char *const *names, uint32_t world)
{
    struct text *t = calloc(world, sizeof *t);
    bool *seen = calloc(world, sizeof *seen);
    int rc = t && seen ? begin(all, world) : mr_error_set(MR_ELIMIT, "ranks: no memory");
    for (uint32_t i = 0; i < world && rc == 0; i++) {
        t[i].name = names ? names[i] : NULL;
        rc = parse(&t[i], texts[i], world);
        if (rc == 0 && seen[t[i].rank])
            rc = bad(&t[i], "a second report of its rank");
        if (rc < 0)
            break;
        seen[t[i].rank] = true;
        rc = take_fact(all, &t[i]);
    }
    if (rc == 0) {
        all->sums = flag(&t[0], "sums");
        all->lockstep = flag(&t[0], "lockstep");
        copy_text(all->command, sizeof all->command, t[0].root, "command");
        rc = add_steps(all, t);
    }
    for (uint32_t i = 0; t && i < world; i++)
        cJSON_Delete(t[i].root);
    free(t);
    free(seen);
    return rc;
}

int ranks_all_find(const struct ranks_all *all, struct mr_straggler *out)
{
    int rc = mr_step_log_query(all->log, out);
    if (rc == 0 && all->lockstep && !all->sums) {
        out->rank = MR_NO_RANK;
        out->cause = MR_LATE_NONE;
    }
    return rc;
}

void ranks_all_free(struct ranks_all *all)
{
    mr_step_log_destroy(all->log);
    free(all->rank);
    *all = (struct ranks_all){0};
}
