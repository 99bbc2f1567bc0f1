/* Spans and counters that the library of this project hands over. */
#include "recorder/private.h"
#include "trace/recorder.h"

#include <pthread.h>
#include <string.h>

#define MAX_TRACKS 256

/* Tracks are few and stay; `name` is set last. */
static struct {
    struct record_lock lock;
    atomic_uint n;
    struct {
        char name[64];
        unsigned told; /* generation + 1 in which the part was told of it; under lock */
    } track[MAX_TRACKS];
} tracks;

static uint32_t find_track(const char *name)
{
    uint32_t n = atomic_load_explicit(&tracks.n, memory_order_acquire), i = 0;
    while (i < n && strncmp(tracks.track[i].name, name, sizeof tracks.track[i].name - 1) != 0)
        i++;
    return i;
}

/* The track's pseudo thread; those that come after MAX_TRACKS others share the last. */
static uint32_t track_thread(const char *name)
{
    static _Thread_local struct {
        const char *name;
        unsigned generation;
        uint32_t track;
    } last;
    unsigned generation = record_generation() + 1;
    if (last.generation == generation && last.name == name &&
        strncmp(tracks.track[last.track].name, name, sizeof tracks.track[0].name - 1) == 0)
        return MR_PART_FIRST_TRACK + last.track;
    record_lock(&tracks.lock);
    uint32_t i = find_track(name);
    if (i == MAX_TRACKS)
        i--;
    if (i == atomic_load_explicit(&tracks.n, memory_order_relaxed)) {
        strncpy(tracks.track[i].name, name, sizeof tracks.track[i].name - 1);
        atomic_store_explicit(&tracks.n, i + 1, memory_order_release);
    }
    bool tell = tracks.track[i].told != generation;
    tracks.track[i].told = generation;
    record_unlock(&tracks.lock);
    if (tell) {
        struct mr_part_thread thread = {MR_PART_FIRST_TRACK + i,
                                        record_string(tracks.track[i].name)};
        record_put(MR_PART_THREAD, &thread);
    }
    last.name = name;
    last.generation = generation;
    last.track = i;
    return MR_PART_FIRST_TRACK + i;
}

static void put_span(const char *track, const char *name, uint64_t start_ns, uint64_t end_ns,
                     const char *arg_name, uint64_t arg)
{
    if (!record_wants(MR_TRACE_MILLRACE) || record_is_busy())
        return;
    struct mr_part_range range = {.start_ns = start_ns,
                                  .end_ns = end_ns > start_ns ? end_ns : start_ns + 1,
                                  .text = record_string(name),
                                  .domain = record_string("millrace"),
                                  .tid = track ? track_thread(track) : record_tid(),
                                  .type = MR_RANGE_PUSH_POP};
    range.end_tid = range.tid;
    if (arg_name) {
        range.category_name = record_string(arg_name);
        range.payload_type = 1; /* unsigned, 64 bits */
        range.payload = arg;
    }
    record_put(MR_PART_RANGE, &range);
}

static void put_counter(const char *name, uint64_t time_ns, int64_t value)
{
    if (!record_wants(MR_TRACE_MILLRACE) || record_is_busy())
        return;
    struct mr_part_metric metric = {time_ns, (double)value, record_string(name), UINT32_MAX};
    record_put(MR_PART_METRIC, &metric);
}

static void put_thread(const char *name)
{
    if (!record_ever_wants(MR_TRACE_MILLRACE) || record_is_busy())
        return;
    struct mr_part_thread thread = {record_tid(), record_string(name)};
    record_put(MR_PART_THREAD, &thread);
}

static void forked(void)
{
    atomic_store(&tracks.lock.word, 0);
}

static void begin(void)
{
    pthread_atfork(NULL, NULL, forked);
}

RECORD_EXPORT mr_recorder_get_fn mr_recorder_get;
RECORD_EXPORT const struct mr_recorder *mr_recorder_get(uint32_t version)
{
    static const struct mr_recorder recorder = {put_span, put_counter, put_thread};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (version != MR_RECORDER_VERSION || !record_ever_wants(MR_TRACE_MILLRACE))
        return NULL;
    pthread_once(&once, begin);
    return &recorder;
}
