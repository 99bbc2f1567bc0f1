/* Sampled stacks: the page's flame graph, and text for other tools' flame graphs. */
#include "timeline/stacks.h"
#include "recording/stacks.h"

#include <errno.h>
#include <millrace/json.h>
#include <string.h>

extern const unsigned char mr_timeline_flame[];
extern const unsigned long mr_timeline_flame_bytes;

/* What a thread did in a stack and not in what it called. */
struct leaf {
    uint32_t thread, node;
    uint64_t ns, cpu_ns, n;
};

struct leaves {
    struct mr_stacks stacks;
    struct leaf *at;
    uint64_t n, room;
    struct mr_map known; /* thread << 32 | node -> leaf */
};

static int by_thread(const void *a, const void *b)
{
    const struct leaf *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static int leaf_add(struct leaves *leaves, const struct mr_stack_sample *sample, uint64_t ns)
{
    bool is_new;
    uint64_t key = (uint64_t)sample->thread << 32 | sample->node;
    double share = (double)ns / (double)(sample->end_ns - sample->start_ns);
    uint32_t *i = mr_map_at(&leaves->known, key, (uint32_t)leaves->n, &is_new);
    if (!i)
        return -ENOMEM;
    if (is_new) {
        if (mr_grow("stacks", &leaves->at, &leaves->room, leaves->n + 1, sizeof *leaves->at) < 0)
            return -ENOMEM;
        leaves->at[leaves->n++] = (struct leaf){.thread = sample->thread, .node = sample->node};
    }
    struct leaf *leaf = &leaves->at[*i];
    uint64_t n = (uint64_t)((double)sample->n * share + 0.5);
    leaf->ns += ns;
    leaf->cpu_ns += (uint64_t)((double)sample->cpu_ns * share);
    leaf->n += MR_MAX(n, 1);
    return 0;
}

static void leaves_free(struct leaves *leaves)
{
    mr_stacks_free(&leaves->stacks);
    mr_map_free(&leaves->known);
    free(leaves->at);
}

/* Free it in any case. */
static int leaves_make(struct mr_recording *rec, uint64_t from_ns, uint64_t to_ns,
                       struct leaves *out)
{
    *out = (struct leaves){0};
    int rc = mr_stacks_load(rec, &out->stacks);
    for (uint64_t i = 0; i < out->stacks.n_samples && rc == 0; i++) {
        const struct mr_stack_sample *sample = &out->stacks.samples[i];
        uint64_t start = MR_MAX(sample->start_ns, from_ns), end = MR_MIN(sample->end_ns, to_ns);
        rc = start < end ? leaf_add(out, sample, end - start) : 0;
    }
    if (rc == 0 && out->n > 1)
        qsort(out->at, out->n, sizeof *out->at, by_thread);
    return rc;
}

/* ---- the page ---- */

static void put_threads(const struct leaves *leaves, struct mr_json *json)
{
    const struct mr_stacks *s = &leaves->stacks;
    mr_json_array(json, "threads");
    for (uint64_t i = 0; i < leaves->n;) {
        uint32_t thread = leaves->at[i].thread;
        mr_json_array(json, NULL);
        mr_json_string(json, NULL, s->texts.text[s->threads[thread].label]);
        mr_json_array(json, NULL);
        for (; i < leaves->n && leaves->at[i].thread == thread; i++) {
            mr_json_uint(json, NULL, leaves->at[i].node);
            mr_json_uint(json, NULL, leaves->at[i].ns / 1000);
            mr_json_uint(json, NULL, leaves->at[i].cpu_ns / 1000);
            mr_json_uint(json, NULL, leaves->at[i].n);
        }
        mr_json_array_end(json);
        mr_json_array_end(json);
    }
    mr_json_array_end(json);
}

static void put_object(const struct leaves *leaves, struct mr_json *json)
{
    const struct mr_stacks *s = &leaves->stacks;
    mr_json_object(json, NULL);
    mr_json_array(json, "texts");
    for (uint32_t i = 0; i < s->texts.n; i++)
        mr_json_string(json, NULL, s->texts.text[i]);
    mr_json_array_end(json);
    mr_json_array(json, "places");
    for (uint64_t i = 0; i < s->n_places; i++) {
        mr_json_uint(json, NULL, s->places[i].function);
        mr_json_uint(json, NULL, s->places[i].file);
        mr_json_uint(json, NULL, s->places[i].line);
    }
    mr_json_array_end(json);
    mr_json_array(json, "nodes");
    for (uint64_t i = 0; i < s->n_nodes; i++) {
        mr_json_uint(json, NULL, s->nodes[i].parent == MR_NONE ? 0 : s->nodes[i].parent + 1);
        mr_json_uint(json, NULL, s->nodes[i].place);
    }
    mr_json_array_end(json);
    put_threads(leaves, json);
    mr_json_object_end(json);
}

static int put_json(const struct leaves *leaves, FILE *file)
{
    const char *text = NULL;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return mr_error_nomem("timeline: JSON", 0);
    put_object(leaves, json);
    int64_t n = mr_json_finish(json, &text);
    for (int64_t i = 0; i < n; i++) { /* "</script>" in a name would end it */
        if (text[i] == '<')
            fputs("\\u003c", file);
        else
            putc(text[i], file);
    }
    mr_json_destroy(json);
    return n < 0 ? (int)n : 0;
}

int mr_timeline_flame_put(FILE *file, const struct mr_timeline *tl)
{
    const char *part = (const char *)mr_timeline_flame, *end = part + mr_timeline_flame_bytes;
    const char *place = memmem(part, (size_t)(end - part), "{{stacks}}", 10);
    struct leaves leaves;
    int rc = leaves_make(tl->rec, tl->samples_from_ns, tl->to_ns, &leaves);
    if (rc == 0 && leaves.n && place) {
        fwrite(part, 1, (size_t)(place - part), file);
        rc = put_json(&leaves, file);
        fwrite(place + 10, 1, (size_t)(end - place - 10), file);
    }
    leaves_free(&leaves);
    return rc;
}

/* ---- folded ---- */

/* ';' is between frames. */
static void put_text(const char *text, FILE *file)
{
    for (; *text; text++)
        putc(*text == ';' ? ':' : (unsigned char)*text < ' ' ? ' ' : *text, file);
}

static void put_stack(const struct leaves *leaves, const struct leaf *leaf, uint32_t *path,
                      FILE *file)
{
    const struct mr_stacks *s = &leaves->stacks;
    uint64_t n = 0;
    char line[4200];
    for (uint32_t node = leaf->node; node != MR_NONE; node = s->nodes[node].parent)
        path[n++] = node;
    put_text(s->texts.text[s->threads[leaf->thread].label], file);
    while (n-- > 0) {
        uint32_t place = s->nodes[path[n]].place;
        putc(';', file);
        put_text(s->texts.text[s->places[place].function], file);
        fputs(" (", file);
        put_text(mr_stack_line(s, place, false, line, sizeof line), file);
        putc(')', file);
    }
    fprintf(file, " %llu\n", (unsigned long long)leaf->n);
}

int mr_timeline_folded(FILE *file, const struct mr_timeline *tl)
{
    struct leaves leaves;
    int rc = leaves_make(tl->rec, tl->samples_from_ns, tl->to_ns, &leaves);
    uint32_t *path = rc == 0 ? malloc((leaves.stacks.n_nodes + 1) * sizeof *path) : NULL;
    if (rc == 0 && !path)
        rc = mr_error_nomem("stacks", leaves.stacks.n_nodes);
    for (uint64_t i = 0; i < leaves.n && rc == 0; i++)
        put_stack(&leaves, &leaves.at[i], path, file);
    for (uint64_t i = 0; i < leaves.n; i++)
        *tl->out_samples += leaves.at[i].n;
    free(path);
    leaves_free(&leaves);
    return rc;
}
