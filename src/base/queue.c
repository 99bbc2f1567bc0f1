/* A bounded queue of pointers with one lock. It carries batches, not samples: a few thousand
 * operations per second. */
#include "base/base.h"

struct mr_queue {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t not_empty, not_full;
    uint32_t capacity, head, n;
    bool closed;
    void *item[];
};

struct mr_queue *mr_queue_create(uint32_t capacity)
{
    uint64_t bytes = sizeof(struct mr_queue) + (uint64_t)MR_MAX(capacity, 1u) * sizeof(void *);
    struct mr_queue *q = calloc(1, bytes);
    if (!q) {
        mr_error_nomem("queue", bytes);
        return NULL;
    }
    q->capacity = MR_MAX(capacity, 1u);
    pthread_mutex_init(&q->lock, NULL);
    if (mr_cond_init(&q->not_empty))
        goto fail_lock;
    if (mr_cond_init(&q->not_full))
        goto fail_empty;
    return q;

fail_empty:
    pthread_cond_destroy(&q->not_empty);
fail_lock:
    pthread_mutex_destroy(&q->lock);
    free(q);
    return NULL;
}

void mr_queue_destroy(struct mr_queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static bool push(struct mr_queue *q, void *item, bool wait)
{
    pthread_mutex_lock(&q->lock);
    while (wait && q->n == q->capacity && !q->closed)
        pthread_cond_wait(&q->not_full, &q->lock);
    bool ok = !q->closed && q->n < q->capacity;
    if (ok) {
        q->item[(uint32_t)(((uint64_t)q->head + q->n) % q->capacity)] = item;
        q->n++;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

static bool pop(struct mr_queue *q, void **out, bool wait)
{
    pthread_mutex_lock(&q->lock);
    while (wait && q->n == 0 && !q->closed)
        pthread_cond_wait(&q->not_empty, &q->lock);
    bool ok = q->n > 0;
    if (ok) {
        *out = q->item[q->head];
        q->head = (uint32_t)(((uint64_t)q->head + 1) % q->capacity);
        q->n--;
        pthread_cond_signal(&q->not_full);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool mr_queue_push(struct mr_queue *q, void *item)
{
    return push(q, item, true);
}

bool mr_queue_try_push(struct mr_queue *q, void *item)
{
    return push(q, item, false);
}

bool mr_queue_pop(struct mr_queue *q, void **out)
{
    return pop(q, out, true);
}

bool mr_queue_try_pop(struct mr_queue *q, void **out)
{
    return pop(q, out, false);
}

void mr_queue_close(struct mr_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}
