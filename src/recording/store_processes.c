/* The processes of a recording: begun as their records come, written as rows when all are in. */
#include "recording/store.h"

#include <errno.h>
#include <string.h>

/* The last part of the command's first word, which is what the export calls a process. */
static const char *process_name(const char *command, const char *executable, char name[64])
{
    const char *from = *executable ? executable : command;
    size_t bytes = *executable ? strlen(from) : strcspn(from, " ");
    const char *slash = memrchr(from, '/', bytes);
    if (slash && (size_t)(slash + 1 - from) < bytes) {
        bytes -= (size_t)(slash + 1 - from);
        from = slash + 1;
    }
    snprintf(name, 64, "%.*s", (int)MR_MIN(bytes, 63), from);
    return name;
}

static int process_row(struct mr_store *store, const struct mr_store_process *process)
{
    char name[64];
    const char *command = store->texts.text[process->command],
               *executable = store->texts.text[process->executable];
    int64_t global = (int64_t)(process->number << 24),
            start = mr_store_time(store, process->header.start_ns);
    int64_t end = (int64_t)MR_MAX(process->end_ns, (uint64_t)start);
    if (process->has_exit)
        end = (int64_t)process->exit_ns;
    store->end_ns = MR_MAX(store->end_ns, (uint64_t)end);
    int rc = mr_store_run(store, "INSERT INTO PROCESSES VALUES (?, ?, ?)", "iit", global,
                          (int64_t)process->header.pid, process_name(command, executable, name));
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO MILLRACE_PROCESSES VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        "iiiiiiiii", global, (int64_t)process->header.pid,
                        (int64_t)process->header.ppid, (int64_t)process->command,
                        (int64_t)process->executable, start, end, (int64_t)process->has_exit,
                        (int64_t)process->header.traced);
}

/* A process that became another program told nobody: it was not killed, and went on until the
 * other's recorder began. */
static int exec_ended(struct mr_store *store, const struct mr_store_process *process)
{
    const struct mr_part_header *next = &process->header;
    if (process->times == 0)
        return 0;
    return mr_store_run(
        store,
        "UPDATE MILLRACE_PROCESSES SET exited = 2, \"end\" = max(\"end\", ?)"
        " WHERE globalPid = ? AND ppid = ? AND exited = 0",
        "iii", mr_store_time(store, next->start_ns),
        (int64_t)(((uint64_t)(process->times - 1) << 24 | (next->pid & 0xffffff)) << 24),
        (int64_t)next->ppid);
}

static int by_start(const void *a, const void *b)
{
    const struct mr_store_process *x = *(struct mr_store_process *const *)a,
                                  *y = *(struct mr_store_process *const *)b;
    if (x->header.start_ns != y->header.start_ns)
        return x->header.start_ns < y->header.start_ns ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

int mr_store_processes_put(struct mr_store *store)
{
    if (store->n_processes)
        qsort(store->processes, store->n_processes, sizeof(struct mr_store_process *), by_start);
    for (uint64_t i = 0; i < store->n_processes; i++) {
        int rc = exec_ended(store, store->processes[i]);
        if (rc < 0)
            return rc;
        rc = process_row(store, store->processes[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int process_add(struct mr_store *store, const struct mr_part_header *header, uint32_t times)
{
    if (mr_grow(store->path, &store->processes, &store->processes_capacity, store->n_processes + 1,
                sizeof(struct mr_store_process *)) < 0)
        return -ENOMEM;
    struct mr_store_process *process = calloc(1, sizeof(*process));
    if (!process)
        return mr_error_nomem(store->path, sizeof(*process));
    process->header = *header;
    process->times = times;
    process->number = (uint64_t)times << 24 | (header->pid & 0xffffff);
    store->processes[store->n_processes++] = process;
    store->now = process;
    return 0;
}

/* The same pid again, after an exec: the bits above the pid, a machine's number in the export, tell
 * them apart. */
int mr_store_process(struct mr_store *store, const struct mr_part_header *header)
{
    uint32_t *times = mr_map_at(&store->pids, header->pid & 0xffffff, 0, NULL);
    if (!times)
        return -ENOMEM;
    if (*times > 0x7fff)
        return mr_error_set(MR_ELIMIT, "%s: process number %u came more than %u times", store->path,
                            header->pid, *times);
    int rc = process_add(store, header, *times);
    if (rc < 0)
        return rc;
    ++*times;
    if (!store->has_origin)
        mr_store_origin(store, header->start_ns, header->start_unix_ns);
    store->traced |= header->traced;
    return 0;
}

void mr_store_select(struct mr_store *store, struct mr_store_process *process)
{
    store->now = process;
}

void mr_store_processes_free(struct mr_store *store)
{
    for (uint64_t i = 0; i < store->n_processes; i++) {
        mr_map_free(&store->processes[i]->contexts);
        mr_map_free(&store->processes[i]->gpus);
        free(store->processes[i]);
    }
    free(store->processes);
}
