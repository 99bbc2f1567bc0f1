/* Recordings into one: the files' rows, and what is said of files and ranks. */
#include "recording/import.h"
#include "recording/join.h"
#include "recording/ranks.h"

#include <string.h>

static const struct mr_rec_process *process_of(const struct mr_recording *rec, uint64_t number)
{
    for (uint32_t i = 0; i < rec->n_processes; i++)
        if (rec->processes[i].number == number)
            return &rec->processes[i];
    return NULL;
}

static bool keeps_process(const void *state, uint64_t number)
{
    const struct mr_join_choice *c = state;
    const struct mr_rec_process *p = process_of(c->rec, number);
    return p && c->keeps[p - c->rec->processes];
}

static bool keeps_device(const void *state, uint64_t number, uint32_t device)
{
    const struct mr_join_choice *c = state;
    const struct mr_rec_process *p = process_of(c->rec, number);
    for (uint32_t i = 0; p && i < c->n_ranks; i++)
        if (c->chosen[i] && &c->rec->processes[c->ranks[i].place.process] == p &&
            mr_place_device_id(c->rec, &c->ranks[i].place) == device)
            return true;
    return false;
}

/* A part without device work has counters of all devices. */
static bool keeps_gpu(const void *state, uint32_t device)
{
    const struct mr_join_choice *c = state;
    bool any = false;
    for (uint32_t i = 0; i < c->n_ranks; i++) {
        any = any || c->chosen[i];
        if (c->chosen[i] && mr_place_device_id(c->rec, &c->ranks[i].place) == device)
            return true;
    }
    return !any;
}

static int put_meta(struct mr_join *join, const struct mr_join_file *files, uint32_t n)
{
    uint32_t n_cores = 0, n_other = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_cores = MR_MAX(n_cores, files[i].recording->n_cores);
        n_other += n > 1 && !files[i].aligned;
    }
    int rc = mr_store_meta(join->store, "n_cores", n_cores);
    if (rc < 0 || n_other < 2) /* the one that the others are aligned with is one */
        return rc;
    return mr_import_note(join->store, "warning",
                          "clocks of some recordings are aligned by the time of day only: they "
                          "hold no collectives");
}

/* The start of day of the joined recording's 0. */
static uint64_t unix_start(const struct mr_join_file *files, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (files[i].unix_ns && files[i].unix_ns > (uint64_t)files[i].shift_ns)
            return files[i].unix_ns - (uint64_t)files[i].shift_ns;
    return 1;
}

/* Instead of one that it has. */
static int put_note(struct mr_store *store, uint64_t process, const char *name, const char *text,
                    int64_t value)
{
    uint32_t number, texts;
    int rc = mr_store_text(store, name, strlen(name), &number);
    rc = rc ? rc : mr_store_text(store, text, strlen(text), &texts);
    if (rc == 0)
        rc = mr_store_run(store, "DELETE FROM MILLRACE_NOTES WHERE globalPid = ? AND nameId = ?",
                          "ii", (int64_t)(process << 24), (int64_t)number);
    return rc ? rc
              : mr_store_run(store, "INSERT INTO MILLRACE_NOTES VALUES (?, ?, ?, ?)", "iiii",
                             (int64_t)(process << 24), (int64_t)number, (int64_t)texts, value);
}

/* A part keeps the numbers that the whole gave to ranks without one. */
static int put_ranks(struct mr_join *join, const struct mr_join_choice *choice)
{
    uint32_t n = 0;
    int rc = 0;
    for (uint32_t i = 0; i < choice->n_ranks; i++)
        n += choice->ranks[i].rank != MR_NONE &&
             (i == 0 || choice->ranks[i].rank != choice->ranks[i - 1].rank);
    for (uint32_t i = 0; i < choice->n_ranks && rc == 0; i++) {
        const struct mr_rank *r = &choice->ranks[i];
        if (!choice->chosen[i] || r->named || r->rank == MR_NONE)
            continue;
        uint64_t process;
        rc = mr_join_process(join, 0, choice->rec->processes[r->place.process].number, &process);
        if (rc == 0)
            rc = put_note(join->store, process, "rank", "", r->rank);
        if (rc == 0)
            rc = put_note(join->store, process, "world_size", "", n);
    }
    return rc;
}

#define BOOTED_NS 50000000 /* clocks that are set differ by less between two ranks' starts */

/* Two files of one machine: by both its clocks it was started at the same moment. */
static bool same_host(const struct mr_join_file *a, const struct mr_join_file *b)
{
    const struct mr_recording *x = a->recording, *y = b->recording;
    if (a == b)
        return true;
    if (!x->ours || !y->ours || x->source || y->source || !a->unix_ns || !b->unix_ns ||
        x->n_cores != y->n_cores)
        return false;
    int64_t apart = (int64_t)(a->unix_ns - x->origin_ns) - (int64_t)(b->unix_ns - y->origin_ns);
    return apart > -BOOTED_NS && apart < BOOTED_NS;
}

/* Pids and cores are of the host that the file was recorded on. */
static int put_file(struct mr_join *join, const struct mr_join_file *files, uint32_t index)
{
    const struct mr_join_file *file = &files[index];
    const struct mr_recording *rec = file->recording;
    uint32_t host = 0;
    int rc = 0;
    while (!same_host(&files[host], file))
        host++;
    for (uint32_t i = 0; i < rec->n_processes && rc == 0; i++) {
        uint64_t process;
        rc = mr_join_process(join, index, rec->processes[i].number, &process);
        rc = rc ? rc : put_note(join->store, process, "file", file->path, index + 1);
        rc = rc ? rc : put_note(join->store, process, "host", "", host + 1);
        if (rc == 0 && rec->n_cores > 0)
            rc = put_note(join->store, process, "n_cores", "", rec->n_cores);
    }
    return rc;
}

int mr_join_write(struct mr_join_file *files, uint32_t n, const char *name,
                  const struct mr_join_choice *choice, struct mr_recording **out)
{
    const struct mr_join_filter filter = {keeps_process, keeps_device, keeps_gpu, choice};
    struct mr_join join = {0};
    struct sqlite3 *db = NULL;
    int rc = mr_store_create_unnamed(name, &join.store);
    if (rc < 0)
        return rc;
    mr_store_origin(join.store, MR_MAX(files[0].recording->origin_ns, (uint64_t)1),
                    unix_start(files, n));
    rc = mr_store_widen(join.store, MR_PART_RANGE, NULL);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = mr_join_copy(&join, &files[i], i, choice ? &filter : NULL);
        if (rc == 0 && n > 1)
            rc = put_file(&join, files, i);
    }
    rc = rc ? rc : put_meta(&join, files, n);
    rc = rc || !choice ? rc : put_ranks(&join, choice);
    if (rc < 0)
        mr_store_abandon(join.store);
    else
        rc = mr_store_finish_unnamed(join.store, &db);
    mr_map_free(&join.processes);
    mr_map_free(&join.uuids);
    mr_map_free(&join.taken);
    mr_map_free(&join.declared);
    return rc < 0 ? rc : mr_recording_wrap(name, db, true, out);
}

static int by_rank(const void *a, const void *b)
{
    const struct mr_join_file *x = a, *y = b;
    uint32_t mine = x->n_ranks ? x->ranks[0] : MR_NONE, other = y->n_ranks ? y->ranks[0] : MR_NONE;
    return mine != other ? (mine < other ? -1 : 1) : strcmp(x->path, y->path);
}

int mr_join_files(struct mr_join_file *files, uint32_t n, const char *name,
                  struct mr_recording **out)
{
    qsort(files, n, sizeof *files, by_rank);
    int rc = mr_join_align(files, n);
    return rc ? rc : mr_join_write(files, n, name, NULL, out);
}
