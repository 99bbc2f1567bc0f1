/*
 * Rings. Value number t is in place t % n, in round t / n. A place's word has the round, a phase
 * and a process:
 *
 *     EMPTY of a round -> WRITING, by this producer -> FULL -> EMPTY of the next round
 *
 * Who changes a word has done the step; head and tail only say where to look, and whoever finds one
 * behind moves it on. So a process can be killed anywhere but between WRITING and FULL without a
 * trace; there, a consumer that finds the producer dead passes the place over.
 */
#include "shm/shm.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define MAX_PLACES (1u << 24)
#define ROUND_BITS 30

enum phase { EMPTY, WRITING, FULL };

struct place {
    _Atomic uint64_t word, value, stamp;
};

struct shared {
    uint64_t n;
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t tail; /* the next value's number */
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t head; /* the oldest one's */
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t pushed;
    _Atomic uint32_t pop_waiters, ended;
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t popped;
    _Atomic uint32_t push_waiters;
    _Alignas(MR_CACHE_LINE) struct place place[];
};

struct mr_shm_ring {
    struct shared *s;
    uint64_t n; /* a copy, which others cannot change */
};

static uint64_t word_of(uint64_t round, enum phase phase, uint32_t pid)
{
    return (uint64_t)pid << 32 | (round & ((1u << ROUND_BITS) - 1)) << 2 | phase;
}

static uint64_t without_pid(uint64_t word)
{
    return (uint32_t)word;
}

uint64_t mr_shm_ring_bytes(uint64_t n)
{
    if (n == 0 || n > MAX_PLACES)
        return UINT64_MAX;
    return mr_round_up(sizeof(struct shared) + n * sizeof(struct place), MR_CACHE_LINE);
}

static int wrap(struct shared *s, uint64_t n, struct mr_shm_ring **out)
{
    struct mr_shm_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return mr_error_nomem("mr_shm_ring", sizeof *ring);
    ring->s = s;
    ring->n = n;
    *out = ring;
    return 0;
}

int mr_shm_ring_create(struct mr_shm *shm, const char *name, uint64_t n, struct mr_shm_ring **out)
{
    struct mr_shm_part *part;
    void *data;
    if (!shm || !out)
        return mr_error_null("mr_shm_ring_create", "a block and a place for the result");
    if (n == 0 || n > MAX_PLACES)
        return mr_error_set(MR_ELIMIT, "mr_shm_ring_create: '%s': %llu places: expected 1 to %u",
                            name ? name : "", (unsigned long long)n, MAX_PLACES);
    int rc = mr_shm_add(shm, name, MR_SHM_RING, mr_shm_ring_bytes(n), &part, &data);
    if (rc < 0)
        return rc;
    ((struct shared *)data)->n = n; /* all zeroes: empty, round 0 */
    mr_shm_show(part);
    return wrap(data, n, out);
}

int mr_shm_ring_attach(struct mr_shm *shm, const char *name, struct mr_shm_ring **out)
{
    if (!shm || !out)
        return mr_error_null("mr_shm_ring_attach", "a block and a place for the result");
    void *data;
    uint64_t bytes;
    int rc = mr_shm_find(shm, name, MR_SHM_RING, &data, &bytes);
    if (rc < 0)
        return rc;
    if (bytes < sizeof(struct shared))
        return mr_shm_damaged(name, "size", bytes, "too little for a ring");
    uint64_t n = *(const volatile uint64_t *)&((const struct shared *)data)->n;
    if (mr_shm_ring_bytes(n) != bytes)
        return mr_shm_damaged(name, "number of places", n,
                              "these are not its bytes in the directory");
    return wrap(data, n, out);
}

void mr_shm_ring_close(struct mr_shm_ring *ring)
{
    free(ring);
}

/* head or tail is at least t + 1. */
static void move_on(_Atomic uint64_t *at, uint64_t t)
{
    atomic_compare_exchange_strong(at, &t, t + 1);
}

/* A place's word is none that processes which follow the steps above could have left there. */
static int damaged(const char *call, const struct mr_shm_ring *ring, uint64_t t, uint64_t word)
{
    return mr_error_set(MR_EFORMAT,
                        "%s: the ring is damaged: place %llu is in state %llu of round %llu, "
                        "expected round %llu",
                        call, (unsigned long long)(t % ring->n), (unsigned long long)(word & 3),
                        (unsigned long long)(without_pid(word) >> 2),
                        (unsigned long long)(t / ring->n & ((1u << ROUND_BITS) - 1)));
}

/* Returns 1, 0: there was no place, or MR_EFORMAT. */
static int try_push(const struct mr_shm_ring *ring, uint32_t pid, uint64_t value)
{
    struct shared *s = ring->s;
    for (;;) {
        uint64_t t = atomic_load(&s->tail), round = t / ring->n;
        struct place *place = &s->place[t % ring->n];
        uint64_t word = atomic_load(&place->word);
        if (without_pid(word) == word_of(round, EMPTY, 0)) {
            if (!atomic_compare_exchange_strong(&place->word, &word, word_of(round, WRITING, pid)))
                continue;
            atomic_store(&place->stamp, mr_shm_stamp(pid, round));
            move_on(&s->tail, t);
            atomic_store(&place->value, value);
            atomic_store(&place->word, word_of(round, FULL, pid));
            return 1;
        }
        if (t != atomic_load(&s->tail))
            continue;
        if (without_pid(word) == word_of(round - 1, WRITING, 0) ||
            without_pid(word) == word_of(round - 1, FULL, 0))
            return 0; /* of the round before: the ring is full */
        if (without_pid(word) != word_of(round, WRITING, 0) &&
            without_pid(word) != word_of(round, FULL, 0) &&
            without_pid(word) != word_of(round + 1, EMPTY, 0))
            return damaged("mr_shm_ring_push", ring, t, word);
        move_on(&s->tail, t); /* who took the place has not yet */
    }
}

int64_t mr_shm_ring_push(struct mr_shm_ring *ring, const uint64_t *v, uint64_t n,
                         int64_t timeout_ns)
{
    if (!ring || (!v && n > 0))
        return mr_error_null("mr_shm_ring_push", "a ring and values");
    struct shared *s = ring->s;
    struct mr_shm_limit limit = mr_shm_limit(timeout_ns);
    uint32_t pid = (uint32_t)getpid();
    for (uint64_t i = 0; i < n;) {
        uint32_t seen = atomic_load(&s->popped);
        if (atomic_load(&s->ended))
            return i > 0 ? (int64_t)i
                         : mr_error_set(-EPIPE, "mr_shm_ring_push: the ring has ended");
        int rc = try_push(ring, pid, v[i]);
        if (rc == 1) {
            i++;
            mr_shm_notify(&s->pushed, &s->pop_waiters, 1);
            continue;
        }
        if (rc == 0)
            rc = mr_shm_wait(&s->popped, seen, &s->push_waiters, &limit,
                             "mr_shm_ring_push: the ring is full");
        if (rc < 0)
            return i > 0 ? (int64_t)i : rc;
    }
    return (int64_t)n;
}

/* Passes over the place of a producer that has ended. Returns whether it did. */
static bool pass_over(const struct mr_shm_ring *ring, struct place *place, uint64_t word,
                      uint64_t t)
{
    struct shared *s = ring->s;
    if (!mr_shm_holder_has_ended((int64_t)(word >> 32), t / ring->n, atomic_load(&place->stamp)) ||
        !atomic_compare_exchange_strong(&place->word, &word, word_of(t / ring->n + 1, EMPTY, 0)))
        return false;
    move_on(&s->head, t);
    mr_shm_notify(&s->popped, &s->push_waiters, 1);
    return true;
}

/* Returns 1, 0: there is none yet, -EOWNERDEAD, MR_EFORMAT. patient: does not look at producers. */
static int try_pop(const struct mr_shm_ring *ring, uint64_t *value, bool patient)
{
    struct shared *s = ring->s;
    for (;;) {
        uint64_t t = atomic_load(&s->head), round = t / ring->n;
        struct place *place = &s->place[t % ring->n];
        uint64_t word = atomic_load(&place->word);
        if (without_pid(word) == word_of(round, FULL, 0)) {
            uint64_t found = atomic_load(&place->value);
            if (!atomic_compare_exchange_strong(&place->word, &word, word_of(round + 1, EMPTY, 0)))
                continue;
            move_on(&s->head, t);
            *value = found;
            return 1;
        }
        if (t != atomic_load(&s->head))
            continue;
        if (without_pid(word) == word_of(round, EMPTY, 0))
            return 0;
        if (without_pid(word) == word_of(round, WRITING, 0)) {
            if (patient)
                return 0;
            return pass_over(ring, place, word, t)
                       ? mr_error_set(-EOWNERDEAD,
                                      "mr_shm_ring_pop: process %llu ended while it wrote a value",
                                      (unsigned long long)(word >> 32))
                       : 0;
        }
        uint64_t next = without_pid(word) - word_of(round + 1, EMPTY, 0);
        if (next != EMPTY && next != WRITING && next != FULL)
            return damaged("mr_shm_ring_pop", ring, t, word);
        move_on(&s->head, t); /* who took the value has not yet */
    }
}

/* In this order: what was pushed before the end is seen. */
static bool is_over(const struct mr_shm_ring *ring)
{
    struct shared *s = ring->s;
    if (!atomic_load(&s->ended))
        return false;
    uint64_t t = atomic_load(&s->head), word = atomic_load(&s->place[t % ring->n].word);
    return without_pid(word) == word_of(t / ring->n, EMPTY, 0);
}

int64_t mr_shm_ring_pop(struct mr_shm_ring *ring, uint64_t *v, uint64_t n, int64_t timeout_ns)
{
    if (!ring || (!v && n > 0))
        return mr_error_null("mr_shm_ring_pop", "a ring and a place for values");
    struct shared *s = ring->s;
    struct mr_shm_limit limit = mr_shm_limit(timeout_ns);
    uint64_t i = 0;
    for (bool patient = timeout_ns != 0; i < n;) {
        uint32_t seen = atomic_load(&s->pushed);
        int rc = try_pop(ring, &v[i], patient || i > 0);
        if (rc == 1) {
            i++;
            continue;
        }
        if (i > 0)
            break;
        if (rc < 0)
            return rc;
        if (is_over(ring))
            return mr_error_set(MR_END, "mr_shm_ring_pop: the ring has ended");
        rc = mr_shm_wait(&s->pushed, seen, &s->pop_waiters, &limit,
                         "mr_shm_ring_pop: the ring is empty");
        if (rc < 0)
            return rc;
        patient = false;
    }
    if (i > 0)
        mr_shm_notify(&s->popped, &s->push_waiters, (int)MR_MIN(i, INT_MAX));
    return (int64_t)i;
}

void mr_shm_ring_end(struct mr_shm_ring *ring)
{
    if (!ring)
        return;
    atomic_store(&ring->s->ended, 1);
    mr_shm_notify(&ring->s->pushed, &ring->s->pop_waiters, INT_MAX);
    mr_shm_notify(&ring->s->popped, &ring->s->push_waiters, INT_MAX);
}
