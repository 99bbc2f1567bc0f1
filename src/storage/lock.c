/* The lock of what the room keeps for the process. */
#include "storage/storage.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* No other thread holds the lock at a fork: a child does not have the thread that would end it. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

void mr_storage_lock(void)
{
    pthread_once(&watched, watch_forks);
    pthread_mutex_lock(&lock);
}

void mr_storage_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
