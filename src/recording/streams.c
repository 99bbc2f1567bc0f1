/* A place's operations by stream. */
#include "recording/big.h"
#include "recording/path.h"

#include <errno.h>

#define SLOTS   256 /* keys that are found at once */
#define CROSSED 64  /* operations of one stream that run past a time: no more are looked at */

static uint64_t key_of(const struct mr_look *look, uint64_t i)
{
    const struct mr_rec_op *op = &look->rec->ops[look->ops[i]];
    return (uint64_t)op->context << 32 | op->stream;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The keys of all, sorted. Most operations are of the stream of one shortly before. */
static int find_keys(const struct mr_look *look, struct mr_streams *out)
{
    uint64_t n = 0, room = 0, seen[SLOTS];
    bool used[SLOTS] = {false};
    for (uint64_t i = 0; i < look->n_ops; i++) {
        uint64_t key = key_of(look, i), slot = (key ^ key >> 32) % SLOTS;
        if (used[slot] && seen[slot] == key)
            continue;
        used[slot] = true;
        seen[slot] = key;
        if (mr_grow("streams", &out->key, &room, n + 1, sizeof *out->key) < 0)
            return -ENOMEM;
        out->key[n++] = key;
    }
    if (n > 1)
        qsort(out->key, n, sizeof *out->key, by_key);
    for (uint64_t i = 0; i < n; i++)
        if (out->n == 0 || out->key[out->n - 1] != out->key[i])
            out->key[out->n++] = out->key[i];
    return 0;
}

static uint32_t number_of(const struct mr_streams *streams, uint64_t key)
{
    const uint64_t *found = bsearch(&key, streams->key, streams->n, sizeof *streams->key, by_key);
    return (uint32_t)(found - streams->key);
}

static void fill(const struct mr_look *look, struct mr_streams *out, uint64_t *next)
{
    uint64_t last_key = 0;
    uint32_t last = MR_NONE;
    for (uint64_t i = 0; i < look->n_ops; i++) {
        uint64_t key = key_of(look, i);
        if (last == MR_NONE || key != last_key)
            last = number_of(out, key);
        last_key = key;
        out->of[i] = last;
        out->first[last + 1]++;
    }
    for (uint32_t s = 0; s < out->n; s++)
        next[s] = out->first[s + 1] += out->first[s];
    for (uint64_t i = look->n_ops; i-- > 0;)
        out->list[--next[out->of[i]]] = (uint32_t)i;
    for (uint32_t s = 0; s < out->n; s++)
        for (uint64_t k = out->first[s]; k < out->first[s + 1]; k++)
            out->before[out->list[k]] = k > out->first[s] ? out->list[k - 1] : MR_NONE;
}

int mr_streams_make(const struct mr_look *look, struct mr_streams *out)
{
    *out = (struct mr_streams){0};
    int rc = find_keys(look, out);
    uint64_t *next = NULL;
    if (rc)
        goto end;
    out->of = mr_big_alloc("streams", look->n_ops + 1, sizeof *out->of);
    out->list = mr_big_alloc("streams", look->n_ops + 1, sizeof *out->list);
    out->before = mr_big_alloc("streams", look->n_ops + 1, sizeof *out->before);
    out->first = calloc((size_t)out->n + 1, sizeof *out->first);
    next = calloc((size_t)out->n + 1, sizeof *next);
    if (!out->of || !out->list || !out->before || !out->first || !next) {
        rc = mr_error_nomem("streams", look->n_ops * sizeof *out->of);
        goto end;
    }
    fill(look, out, next);
end:
    free(next);
    if (rc)
        mr_streams_free(out);
    return rc;
}

void mr_streams_free(struct mr_streams *streams)
{
    mr_big_free(streams->of);
    mr_big_free(streams->list);
    mr_big_free(streams->before);
    free(streams->first);
    free(streams->key);
    *streams = (struct mr_streams){0};
}

/* Where in the list of its stream. */
static uint64_t place_of(const struct mr_streams *streams, uint32_t stream, uint32_t i)
{
    uint64_t low = streams->first[stream], high = streams->first[stream + 1];
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (streams->list[mid] >= i)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* The last of a stream that ends by then: those that begin before and end later are passed over. */
static uint32_t ended_on(const struct mr_look *look, const struct mr_streams *streams,
                         uint32_t stream, uint32_t begins, uint64_t until_ns)
{
    uint64_t first = streams->first[stream], at = place_of(streams, stream, begins);
    for (int i = 0; i < CROSSED && at > first; i++, at--)
        if (look->rec->ops[look->ops[streams->list[at - 1]]].end_ns <= until_ns)
            return streams->list[at - 1];
    return MR_NONE;
}

uint32_t mr_streams_ended(const struct mr_look *look, const struct mr_streams *streams,
                          uint32_t stream, uint32_t not, uint64_t after_ns, uint64_t until_ns)
{
    uint32_t begins = (uint32_t)mr_look_op_from(look, until_ns), most = MR_NONE;
    uint32_t from = stream == MR_NONE ? 0 : stream, to = stream == MR_NONE ? streams->n : from + 1;
    for (uint32_t s = from; s < to; s++) {
        uint32_t i = s == not ? MR_NONE : ended_on(look, streams, s, begins, until_ns);
        uint64_t end = i == MR_NONE ? 0 : look->rec->ops[look->ops[i]].end_ns;
        if (end <= after_ns)
            continue;
        after_ns = end;
        most = i;
    }
    return most;
}
