/*
 * Texts of ten topics as bags of words: a sparse set.
 *
 * Word k of the vocabulary is drawn with a weight of 1 / (k + 8), as frequencies of words fall in
 * languages. Of a text's words one in five is from its topic: those with k % 10 = topic beyond the
 * frequent first tenth, by the same weights. So what tells topics apart is rare. Integers only: the
 * same bytes on every machine.
 */
#include "synth/synth.h"

#include <stdlib.h>
#include <string.h>

enum { TOPICS = 10, LEAST_WORDS = 15, MORE_WORDS = 25, TOPIC_SHARE = 5 };

/* sum[k]: of the weights of words 0 to k. */
struct vocabulary {
    const struct synth_options *o;
    uint64_t *sum, *topic_sum[TOPICS];
};

static uint64_t weight(uint64_t k)
{
    return (1ull << 32) / (k + 8);
}

static void fill(struct vocabulary *v)
{
    for (uint64_t k = 0; k < v->o->words; k++) {
        v->sum[k] = weight(k) + (k ? v->sum[k - 1] : 0);
        for (uint64_t t = 0; t < TOPICS; t++) {
            bool of_topic = k % TOPICS == t && k >= v->o->words / 10;
            v->topic_sum[t][k] = (of_topic ? weight(k) : 0) + (k ? v->topic_sum[t][k - 1] : 0);
        }
    }
}

/* The word whose share of the sum `draw`, a part of 2^32, falls into. */
static uint64_t choose(const uint64_t *sum, uint64_t n, uint32_t draw)
{
    uint64_t at = (uint64_t)((unsigned __int128)draw * sum[n - 1] >> 32), low = 0, high = n - 1;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (sum[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int make_text(void *user, uint32_t stream, uint64_t index, unsigned char *out)
{
    const struct vocabulary *v = user;
    uint64_t words = v->o->words;
    uint32_t r[4];
    synth_draw(v->o->seed, stream, index, 0, r);
    uint32_t topic = (uint32_t)((uint64_t)r[0] * TOPICS >> 32);
    uint32_t n = LEAST_WORDS + (uint32_t)((uint64_t)r[1] * MORE_WORDS >> 32);
    memset(out, 0, words);
    for (uint32_t i = 0; i < n; i++) {
        synth_draw(v->o->seed, stream, index, 1 + i, r);
        const uint64_t *sum = r[0] % TOPIC_SHARE == 0 ? v->topic_sum[topic] : v->sum;
        out[choose(sum, words, r[1])] = 255;
    }
    return (int)topic;
}

int synth_write_words(const struct synth_options *o, const char *dir)
{
    struct vocabulary v = {.o = o};
    uint64_t *memory = malloc((1 + TOPICS) * o->words * sizeof *memory);
    if (!memory)
        return cli_fail("out of memory");
    v.sum = memory;
    for (int t = 0; t < TOPICS; t++)
        v.topic_sum[t] = memory + (uint64_t)(1 + t) * o->words;
    fill(&v);
    struct synth_idx idx = {"writing texts", "texts", 1, {o->words}, make_text, &v};
    int code = synth_write_idx(o, &idx, dir);
    free(memory);
    return code;
}
