/* Which recordings are of one job, and how their clocks differ. */
#include "recording/big.h"
#include "recording/join.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define APART_NS  60000000000ull /* by so much clocks of hosts may differ */
#define LEAST     3              /* collectives in common: less may fit by chance */
#define SPREAD_NS 100000         /* what ends of one collective differ by, but for the clocks */

/* ---- one file ---- */

static int prepare(struct mr_recording *rec, sqlite3_stmt **out, const char *sql)
{
    return sqlite3_prepare_v2(rec->db, sql, -1, out, NULL) == SQLITE_OK
               ? 0
               : mr_recording_error(rec->db, rec->path, "cannot be read");
}

/* [out] works: of processes: it has device work. */
static int read_comms(struct mr_join_file *file, bool *works)
{
    struct mr_place *places = NULL;
    struct mr_recording *rec = file->recording;
    uint32_t n = 0;
    int rc = mr_places_find(rec, &places, &n);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct mr_comms comms = {0};
        uint32_t *ops = NULL;
        uint64_t n_ops = 0;
        if (places[i].process < rec->n_processes)
            works[places[i].process] = true;
        rc = mr_place_ops(rec, &places[i], &ops, &n_ops);
        rc = rc ? rc : mr_comms_find(rec, &places[i], ops, n_ops, &comms);
        mr_comms_keep_collectives(&comms);
        mr_big_free(ops);
        bool more = comms.n > file->comms.n;
        mr_comms_free(more ? &file->comms : &comms);
        if (more)
            file->comms = comms;
    }
    free(places);
    return rc;
}

/* Of the processes with device work, where there are some: a launcher may be a task of another one,
 * with a rank of that. */
static int read_notes(struct mr_join_file *file, const bool *works)
{
    const struct mr_recording *rec = file->recording;
    bool any = false;
    for (uint32_t p = 0; p < rec->n_processes; p++)
        any = any || works[p];
    file->ranks = calloc((size_t)rec->n_notes + 1, sizeof *file->ranks);
    if (!file->ranks)
        return mr_error_nomem(file->path, rec->n_notes * sizeof *file->ranks);
    for (uint32_t i = 0; i < rec->n_notes; i++) {
        const struct mr_rec_note *note = &rec->notes[i];
        const char *name = note->name < rec->n_strings ? rec->strings[note->name] : "";
        bool is = note->process < rec->n_processes && (!any || works[note->process]) &&
                  note->value >= 0 && note->value < MR_NONE,
             had = false;
        if (is && strcmp(name, "world_size") == 0)
            file->world = MR_MAX(file->world, (uint32_t)note->value);
        if (!is || strcmp(name, "rank") != 0)
            continue;
        for (uint32_t k = 0; k < file->n_ranks; k++)
            had = had || file->ranks[k] == (uint32_t)note->value;
        if (!had)
            file->ranks[file->n_ranks++] = (uint32_t)note->value;
    }
    return 0;
}

static int read_start(struct mr_join_file *file)
{
    sqlite3_stmt *stmt;
    struct mr_recording *rec = file->recording;
    if (!mr_recording_has(rec, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"))
        return 0;
    int rc = prepare(rec, &stmt, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME");
    if (rc < 0)
        return rc;
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_int64(stmt, 0) > 0)
        file->unix_ns = (uint64_t)MR_MIN(sqlite3_column_int64(stmt, 0), INT64_MAX / 4);
    sqlite3_finalize(stmt);
    return 0;
}

int mr_join_facts(struct mr_join_file *file)
{
    bool *works = NULL;
    int rc = mr_recording_load(file->recording);
    if (rc == 0 && !(works = calloc((size_t)file->recording->n_processes + 1, sizeof *works)))
        rc = mr_error_nomem(file->path, file->recording->n_processes);
    rc = rc ? rc : read_comms(file, works);
    rc = rc ? rc : read_notes(file, works);
    rc = rc ? rc : read_start(file);
    free(works);
    file->end_ns = MR_MIN(file->recording->end_ns, (uint64_t)INT64_MAX / 4);
    return mr_recording_result(file->recording, rc);
}

void mr_join_file_free(struct mr_join_file *file)
{
    mr_comms_free(&file->comms);
    mr_map_free(&file->texts);
    mr_map_free(&file->gpus);
    free(file->ranks);
    mr_recording_close(file->recording);
}

/* ---- files together ---- */

static int check_ranks(const struct mr_join_file *a, const struct mr_join_file *b)
{
    if (a->world && b->world && a->world != b->world)
        return mr_error_set(MR_EFORMAT,
                            "%s is of a job of %" PRIu32 " ranks, %s of one of %" PRIu32
                            ": expected recordings of one job",
                            a->path, a->world, b->path, b->world);
    for (uint32_t i = 0; i < a->n_ranks; i++)
        for (uint32_t k = 0; k < b->n_ranks; k++)
            if (a->ranks[i] == b->ranks[k])
                return mr_error_set(MR_EFORMAT,
                                    "%s and %s are both of rank %" PRIu32
                                    ": expected one recording of each rank of one run",
                                    a->path, b->path, a->ranks[i]);
    return 0;
}

/* Copies, or a report and its export. */
static int check_same(const struct mr_join_file *a, const struct mr_join_file *b)
{
    bool same = a->unix_ns == b->unix_ns && a->end_ns == b->end_ns && a->comms.n > 0 &&
                a->comms.n == b->comms.n;
    for (uint64_t i = 0; i < a->comms.n && same; i++)
        same = a->comms.at[i].start_ns == b->comms.at[i].start_ns &&
               a->comms.at[i].end_ns == b->comms.at[i].end_ns;
    return same ? mr_error_set(MR_EFORMAT,
                               "%s and %s hold the same collectives at the same times, so they are "
                               "one recording twice: expected one recording of each rank",
                               a->path, b->path)
                : 0;
}

static int check_times(const struct mr_join_file *a, const struct mr_join_file *b)
{
    const struct mr_join_file *first = a->unix_ns <= b->unix_ns ? a : b,
                              *second = first == a ? b : a;
    uint64_t end = first->unix_ns + first->end_ns;
    if (!a->unix_ns || !b->unix_ns || second->unix_ns <= end + APART_NS)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s begins %.0f s after the end of %s: expected recordings of one run",
                        second->path, (double)(second->unix_ns - end) / 1e9, first->path);
}

/* Any two recordings may be given by mistake, such as one from before a change and one after it. */
static int check_known(const struct mr_join_file *file)
{
    if (file->n_ranks > 0 || file->comms.n > 0)
        return 0;
    return mr_error_set(MR_EFORMAT,
                        "%s: holds neither a rank nor collectives, so nothing shows that it is of "
                        "the same job as the others: expected recordings of ranks of one job, or "
                        "one recording (--diff compares two)",
                        file->path);
}

/* The collectives of b on a's clock. */
static int match(const struct mr_join_file *a, struct mr_join_file *b, int64_t *shift_ns)
{
    struct mr_comm_pair pair;
    for (uint64_t i = 0; i < b->comms.n; i++) {
        b->comms.at[i].start_ns += (uint64_t)*shift_ns;
        b->comms.at[i].end_ns += (uint64_t)*shift_ns;
    }
    mr_comm_match(&a->comms, &b->comms, false, &pair);
    if (pair.n < LEAST || pair.spread_ns > SPREAD_NS)
        return mr_error_set(
            MR_EFORMAT,
            "%s and %s: their collectives (%" PRIu64 " and %" PRIu64 ") do not end together in one "
            "order: they are of different runs, or of ranks in different groups; expected "
            "recordings of one job whose ranks take part in the same collectives",
            a->path, b->path, a->comms.n, b->comms.n);
    *shift_ns += pair.shift_ns;
    return 0;
}

int mr_join_align(struct mr_join_file *files, uint32_t n)
{
    uint32_t base = 0;
    int64_t least = INT64_MAX;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = check_known(&files[i]);
        for (uint32_t k = 0; k < i && rc == 0; k++) {
            rc = check_ranks(&files[k], &files[i]);
            rc = rc ? rc : check_same(&files[k], &files[i]);
            rc = rc ? rc : check_times(&files[k], &files[i]);
        }
        if (files[i].comms.n > files[base].comms.n)
            base = i;
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct mr_join_file *file = &files[i];
        if (file->unix_ns && files[base].unix_ns)
            file->shift_ns = (int64_t)file->unix_ns - (int64_t)files[base].unix_ns;
        /* a rank that is named needs no collectives */
        file->aligned = i != base && file->comms.n > (file->n_ranks > 0 ? LEAST - 1 : 0);
        if (file->aligned)
            rc = match(&files[base], file, &file->shift_ns);
        least = MR_MIN(least, file->shift_ns);
    }
    for (uint32_t i = 0; i < n; i++)
        files[i].shift_ns -= least;
    return rc;
}
