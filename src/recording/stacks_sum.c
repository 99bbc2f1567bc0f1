/* Sampled stacks added up: by line, by function, and the loader's hottest line. */
#include "recording/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct summing {
    const struct mr_stacks *stacks;
    const struct mr_intervals *windows;
    uint32_t *group_of; /* of a place: the place that stands for its line or function */
    uint64_t *seen;     /* of a group: the sample that last went through it, plus 1 */
    struct mr_map at;   /* thread << 32 | group -> sum */
    struct mr_stack_sum *sums;
    uint64_t n, room;
};

static struct mr_stack_sum *sum_at(struct summing *sum, uint32_t thread, uint32_t group)
{
    bool is_new;
    uint32_t *i = mr_map_at(&sum->at, (uint64_t)thread << 32 | group, (uint32_t)sum->n, &is_new);
    if (!i)
        return NULL;
    if (is_new) {
        if (mr_grow("sums", &sum->sums, &sum->room, sum->n + 1, sizeof *sum->sums) < 0)
            return NULL;
        sum->sums[sum->n++] = (struct mr_stack_sum){.thread = thread, .place = group};
    }
    return &sum->sums[*i];
}

/* The sample's time in the windows. */
static uint64_t time_in(const struct mr_stack_sample *sample, const struct mr_intervals *windows)
{
    return windows ? mr_intervals_within(windows, sample->start_ns, sample->end_ns)
                   : sample->end_ns - sample->start_ns;
}

static uint64_t share(uint64_t of, uint64_t ns, const struct mr_stack_sample *sample)
{
    uint64_t all = sample->end_ns - sample->start_ns;
    return ns == all ? of : (uint64_t)((double)of * (double)ns / (double)all);
}

static int add(struct summing *sum, uint64_t i)
{
    const struct mr_stacks *s = sum->stacks;
    const struct mr_stack_sample *sample = &s->samples[i];
    uint64_t ns = time_in(sample, sum->windows);
    if (ns == 0)
        return 0;
    for (uint32_t node = sample->node; node != MR_NONE; node = s->nodes[node].parent) {
        uint32_t group = sum->group_of[s->nodes[node].place];
        if (sum->seen[group] == i + 1) /* it calls itself */
            continue;
        sum->seen[group] = i + 1;
        struct mr_stack_sum *at = sum_at(sum, sample->thread, group);
        if (!at)
            return -ENOMEM;
        at->total_ns += ns;
        if (node != sample->node)
            continue;
        at->self_ns += ns;
        at->cpu_ns += share(sample->cpu_ns, ns, sample);
        at->n += MR_MAX(share(sample->n, ns, sample), 1);
    }
    return 0;
}

static int group(struct summing *sum, bool by_function)
{
    const struct mr_stacks *s = sum->stacks;
    struct mr_map first = {0};
    int rc = 0;
    for (uint32_t i = 0; i < s->n_places && rc == 0; i++) {
        uint64_t key = (uint64_t)s->places[i].function << 32 | s->places[i].file;
        const uint32_t *one = by_function ? mr_map_at(&first, key, i, NULL) : &i;
        if (one)
            sum->group_of[i] = *one;
        else
            rc = -ENOMEM;
    }
    mr_map_free(&first);
    return rc;
}

int mr_stacks_sum(const struct mr_stacks *stacks, const struct mr_intervals *windows,
                  bool by_function, struct mr_stack_sum **out, uint64_t *out_n)
{
    struct summing sum = {.stacks = stacks, .windows = windows};
    sum.group_of = calloc(stacks->n_places + 1, sizeof *sum.group_of);
    sum.seen = calloc(stacks->n_places + 1, sizeof *sum.seen);
    int rc = sum.group_of && sum.seen ? group(&sum, by_function)
                                      : mr_error_nomem("sums", stacks->n_places);
    for (uint64_t i = 0; i < stacks->n_samples && rc == 0; i++)
        rc = add(&sum, i);
    free(sum.group_of);
    free(sum.seen);
    mr_map_free(&sum.at);
    if (rc < 0) {
        free(sum.sums);
        return rc;
    }
    *out = sum.sums;
    *out_n = sum.n;
    return 0;
}

/* ---- the loader ---- */

/* Code that comes with Python, is installed, or is ours: not the program's. */
static bool is_library(const struct mr_stacks *s, const struct mr_stack_place *place)
{
    const char *file = s->texts.text[place->file];
    if (place->is_native) {
        const char *module = place->module == MR_NONE ? "/lib" : s->texts.text[place->module];
        return strncmp(module, "/lib", 4) == 0 || strncmp(module, "/usr/lib", 8) == 0 ||
               strstr(module, "/libmillrace") || strstr(module, "-packages/") || module[0] != '/';
    }
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") ||
           strstr(file, "/lib/python") || strstr(file, "/millrace/_") ||
           strncmp(file, "<frozen", 7) == 0;
}

/* torch's _MapDatasetFetcher.fetch and its like, and those of millrace.DataLoader. */
static bool fetches(const struct mr_stacks *s, const struct mr_stack_place *place)
{
    const char *function = s->texts.text[place->function], *dot = strrchr(function, '.');
    const char *file = s->texts.text[place->file];
    return strcmp(dot ? dot + 1 : function, "fetch") == 0 &&
           (strstr(file, "/torch/utils/data/") || strstr(file, "/millrace/_"));
}

/* The program's innermost line in this stack, inside what fetches if there is such; else the
 * innermost line of all. [out] loads: something fetches. */
static uint32_t line_of(const struct mr_stacks *s, uint32_t innermost, bool *loads)
{
    uint32_t own = MR_NONE;
    *loads = false;
    for (uint32_t node = innermost; node != MR_NONE && !*loads; node = s->nodes[node].parent) {
        const struct mr_stack_place *place = &s->places[s->nodes[node].place];
        *loads = fetches(s, place);
        if (own == MR_NONE && !*loads && !is_library(s, place))
            own = s->nodes[node].place;
    }
    return own != MR_NONE ? own : s->nodes[innermost].place;
}

struct at_line {
    uint64_t ns, cpu_ns;
};

static void keep(struct mr_stack_hottest *hot, const struct at_line *at, uint64_t n_places)
{
    for (uint32_t i = 0; i < n_places; i++)
        if (at[i].ns > hot->ns) {
            hot->place = i;
            hot->ns = at[i].ns;
            hot->cpu_ns = at[i].cpu_ns;
        }
}

/* Whose time it is, the best first. */
enum { FETCHES, WORKER, WAITS, WAITS_NATIVE, N_WHO };

static bool is_who(int who, const struct mr_stack_thread *thread, uint64_t global_tid, bool loads)
{
    switch (who) {
    case FETCHES:
        return loads && !thread->is_native;
    case WORKER:
        return thread->is_worker && thread->is_native;
    default:
        return thread->global_tid == global_tid && thread->is_native == (who == WAITS_NATIVE);
    }
}

int mr_stacks_loader(const struct mr_stacks *stacks, const struct mr_intervals *windows,
                     uint64_t global_tid, bool (*works_for)(const void *state, uint64_t process),
                     const void *state, struct mr_stack_hottest *out)
{
    struct mr_stack_hottest hot[N_WHO];
    struct at_line *at[N_WHO] = {NULL};
    int rc = 0;
    for (int k = 0; k < N_WHO; k++) {
        hot[k] = (struct mr_stack_hottest){.place = MR_NONE};
        if (!(at[k] = calloc(stacks->n_places + 1, sizeof **at)))
            rc = mr_error_nomem("sums", stacks->n_places * sizeof **at);
    }
    for (uint64_t i = 0; i < stacks->n_samples && rc == 0; i++) {
        const struct mr_stack_sample *sample = &stacks->samples[i];
        const struct mr_stack_thread *thread = &stacks->threads[sample->thread];
        bool loads, ours = !works_for || works_for(state, thread->global_tid >> 24);
        uint64_t ns = ours ? time_in(sample, windows) : 0;
        uint32_t place = ns ? line_of(stacks, sample->node, &loads) : 0;
        for (int k = 0; k < N_WHO && ns; k++) {
            if (!is_who(k, thread, global_tid, loads))
                continue;
            at[k][place].ns += ns;
            at[k][place].cpu_ns += share(sample->cpu_ns, ns, sample);
            hot[k].of_ns += ns;
            hot[k].n += MR_MAX(share(sample->n, ns, sample), 1);
        }
    }
    int best = N_WHO - 1;
    for (int k = N_WHO - 1; k >= 0 && rc == 0; k--) {
        keep(&hot[k], at[k], stacks->n_places);
        best = hot[k].of_ns ? k : best;
    }
    *out = hot[best];
    for (int k = 0; k < N_WHO; k++)
        free(at[k]);
    return rc;
}
