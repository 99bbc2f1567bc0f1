/* What all importers write. */
#include "recording/import.h"

#include <string.h>

int mr_import_note(struct mr_store *store, const char *name, const char *text)
{
    uint32_t names, number;
    int rc = mr_store_text(store, name, strlen(name), &names);
    if (rc < 0)
        return rc;
    rc = mr_store_text(store, text, strlen(text), &number);
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO MILLRACE_NOTES VALUES (0, ?, ?, 0)", "ii",
                        (int64_t)names, (int64_t)number);
}

/* The cores are those of the machine that ran the program, which this need not be. */
int mr_import_source(struct mr_store *store, const char *source)
{
    int rc = mr_store_run(store, "INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", "tt",
                          MR_IMPORT_SOURCE, source);
    return rc < 0 ? rc : mr_store_meta(store, "n_cores", 0);
}

void mr_import_process(struct mr_store *store, uint32_t pid)
{
    store->now->number = pid & 0xffffff;
}

int mr_import_process_row(struct mr_store *store, uint32_t pid, const char *name, uint64_t start_ns,
                          uint64_t end_ns)
{
    uint32_t command;
    int64_t global = (int64_t)((uint64_t)(pid & 0xffffff) << 24);
    int rc = mr_store_text(store, name, strlen(name), &command);
    if (rc < 0)
        return rc;
    rc = mr_store_run(store, "INSERT INTO PROCESSES VALUES (?, ?, ?)", "iit", global, (int64_t)pid,
                      name);
    if (rc < 0)
        return rc;
    return mr_store_run(store, "INSERT INTO MILLRACE_PROCESSES VALUES (?, ?, 0, ?, 0, ?, ?, 1, ?)",
                        "iiiiii", global, (int64_t)pid, (int64_t)command,
                        mr_store_time(store, start_ns), mr_store_time(store, end_ns),
                        (int64_t)store->traced);
}

void mr_import_count(char *text, size_t cap, uint64_t n, const char *what)
{
    size_t used = strlen(text);
    if (n > 0 && used < cap)
        snprintf(text + used, cap - used, "%s%llu %s", used ? ", " : "", (unsigned long long)n,
                 what);
}

int mr_import_left_out(struct mr_store *store, const char *path, const char *wrong,
                       const char *usual)
{
    char line[600];
    int rc = 0;
    if (wrong[0]) {
        snprintf(line, sizeof line, "events left out: %s", wrong);
        mr_log(MR_LOG_WARNING, "%s: %s", path, line);
        rc = mr_import_note(store, "warning", line);
    }
    if (rc < 0 || !usual[0])
        return rc;
    snprintf(line, sizeof line, "events left out: %s", usual);
    return mr_import_note(store, "import", line);
}
