/*
 * Preloaded into the tests that tests/one_thread.txt lists: they run without a second thread, or
 * end. So the ThreadSanitizer preset can leave them out.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attributes,
                                                          void *(*start)(void *), void *argument)
{
    static const char text[] = "no_threads: this test starts a thread: take it off the list "
                               "tests/one_thread.txt, so that ThreadSanitizer sees it\n";
    (void)thread;
    (void)attributes;
    (void)start;
    (void)argument;
    if (write(2, text, sizeof text - 1) < 0)
        _exit(2);
    abort();
}
