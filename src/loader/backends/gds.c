/*
 * Fields that are read straight into a slot's device half: plain ranges of files which the host
 * leaves as they are. A worker reads them when it makes the sample, for only then the slot is open
 * and the consumer's work on its last batch has passed; rows that are neighbours in the file are
 * read as one. What cannot be read so (bytes in memory, replacements of bad samples) the host
 * makes; those rows are copied one by one when the batch is shipped.
 */
#include "loader/backends/host.h"
#include "loader/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LEAST_ROW_BYTES  1024 /* for less, a read of its own costs more than it saves */
#define MOST_JOINED_READ (16ull << 20)

struct gds {
    bool begun;                          /* the device's file interface is open */
    const struct mr_slot_memory *memory; /* that the first slots are cut from */
    int n_files;
    void **file; /* by id; NULL: not a file that can be read so */
};

struct gds_slot {
    uint32_t *came_from; /* the row where a row of the batch was read to */
    void *registered;    /* memory that this slot has registered with the interface; NULL: none */
};

static void set_note(struct mr_backend *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void set_note(struct mr_backend *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(b->note, sizeof b->note, fmt, args);
    va_end(args);
}

static void add_note(struct mr_backend *b, const char *before, const char *text)
{
    size_t at = strlen(b->note);
    snprintf(b->note + at, sizeof b->note - at, "%s%s", before, text);
}

static bool suits(const struct mr_loader *ld, const struct mr_extent *at)
{
    const struct mr_field *fp = &ld->layout.field[at->field];
    return fp->identity && !fp->varies && fp->row_bytes >= LEAST_ROW_BYTES &&
           at->bytes == fp->row_bytes && mr_files_fd(ld->ds->files, at->file) >= 0;
}

static bool is_plain(const struct mr_extent *at, int n)
{
    bool plain = n > 0;
    for (int e = 0; e < n; e++)
        plain = plain && at[e].field >= 0 && at[e].bytes != MR_WHOLE;
    return plain;
}

/* Chooses the fields, by the first sample. Returns how many; when none, the note says why. */
static int choose_fields(struct mr_backend *b)
{
    struct mr_loader *ld = b->ld;
    struct mr_extent at[MR_MAX_EXTENTS];
    bool located = ld->ds->ops->locate && !ld->ds->ops->get;
    int chosen = 0, n = located ? ld->ds->ops->locate(ld->ds, 0, at) : 0;
    if (!is_plain(at, n)) {
        set_note(b, "not used: samples of %s are not plain ranges of files", ld->ds->text);
        return 0;
    }
    for (int e = 0; e < n; e++) {
        struct mr_field *fp = &ld->layout.field[at[e].field];
        char name[MR_NAME_BYTES + 1];
        if (!suits(ld, &at[e]))
            continue;
        snprintf(name, sizeof name, "%.*s", MR_NAME_BYTES, fp->in.name);
        fp->direct = true;
        add_note(b, chosen++ ? ", " : "", name);
    }
    if (chosen == 0)
        set_note(b,
                 "not used: no field of %s is a range of a file of %d bytes or more that the host "
                 "leaves as it is",
                 ld->ds->text, LEAST_ROW_BYTES);
    return chosen;
}

static void close_files(struct mr_backend *b)
{
    struct gds *gds = b->state;
    for (int i = 0; i < gds->n_files; i++)
        if (gds->file[i])
            mr_device_file_close(b->ld->device, gds->file[i]);
    free(gds->file);
    gds->file = NULL;
    gds->n_files = 0;
    if (gds->begun)
        mr_device_files_end(b->ld->device);
    gds->begun = false;
}

/* Every path file that is open; those with labels alone cost little. */
static int open_files(struct mr_backend *b)
{
    struct mr_files *files = b->ld->ds->files;
    struct gds *gds = b->state;
    int n = mr_files_length(files), rc = 0;
    gds->file = calloc((size_t)MR_MAX(n, 1), sizeof(void *));
    if (!gds->file)
        return mr_error_nomem("files of the device", (uint64_t)n * sizeof(void *));
    gds->n_files = n;
    for (int i = 0; i < n && rc == 0; i++) {
        int fd = mr_files_fd(files, i);
        if (fd >= 0)
            rc = mr_device_file_open(b->ld->device, fd, mr_files_name(files, i), &gds->file[i]);
    }
    return rc;
}

/* Why not, whatever the data set is; NULL: no reason. */
static const char *refusal(const struct mr_loader *ld)
{
    if (ld->opts.cache != MR_CACHE_NONE)
        return "a cache is wanted, which keeps what the host reads";
    if (ld->chain && ld->chain->mix)
        return "the chain mixes rows, which the host does";
    if (ld->layout.rearranged)
        return "the chain changes which fields there are, which the host does";
    if (ld->layout.collates)
        return "the host collates samples";
    if (ld->opts.on_host)
        return "on_host keeps batches in host memory";
    return ld->device_info.unified ? "the device has no memory of its own" : NULL;
}

/* Without it the host reads all fields. */
static int give_up(struct mr_backend *b, int rc)
{
    struct mr_error_kept kept;
    mr_error_keep(rc, &kept);
    close_files(b);
    for (int f = 0; f < b->ld->layout.n_fields; f++)
        b->ld->layout.field[f].direct = false;
    mr_error_put(&kept);
    set_note(b, "not used: %s", mr_last_error());
    return rc == -ENOMEM ? rc : 0;
}

static int gds_plan(struct mr_backend *b)
{
    struct gds *gds = b->state;
    char note[160];
    const char *why = refusal(b->ld);
    if (b->ld->opts.storage != MR_STORAGE_GDS)
        return 0;
    if (why)
        set_note(b, "not used: %s", why);
    if (why || choose_fields(b) == 0)
        return 0;
    int rc = mr_device_files_begin(b->ld->device, note, sizeof note);
    if (rc < 0)
        return give_up(b, rc);
    gds->begun = true;
    rc = open_files(b);
    if (rc < 0)
        return give_up(b, rc);
    add_note(b, ": ", note);
    return 1;
}

/* The first slot of a memory registers all of it. */
static int gds_slot_open(struct mr_backend *b, struct mr_slot *slot, void *own)
{
    struct gds *gds = b->state;
    struct gds_slot *s = own;
    const struct mr_slot_memory *memory = slot->memory;
    uint64_t rows = b->ld->opts.batch_size;
    s->came_from = calloc(rows, sizeof *s->came_from);
    if (!s->came_from)
        return mr_error_nomem("batch slot", rows * sizeof *s->came_from);
    if (memory == gds->memory)
        return 0;
    bool first = !gds->memory; /* later there are readers of the note */
    if (mr_device_file_memory(b->ld->device, memory->on_device, memory->device_bytes) == 0)
        s->registered = memory->on_device;
    else if (first)
        add_note(b, "; its buffers between, as memory could not be registered: ", mr_last_error());
    if (first)
        gds->memory = memory;
    return 0;
}

static void gds_slot_close(struct mr_backend *b, void *own)
{
    struct gds_slot *s = own;
    if (s->registered)
        mr_device_file_memory_end(b->ld->device, s->registered);
    free(s->came_from);
}

static void gds_close(struct mr_backend *b)
{
    close_files(b);
}

static bool gds_takes(const struct mr_backend *b, uint64_t epoch, uint64_t index,
                      const struct mr_extent *at, int n)
{
    (void)epoch;
    (void)index;
    bool takes = at && is_plain(at, n);
    for (int e = 0; e < n && takes; e++)
        takes = !b->ld->layout.field[at[e].field].direct || suits(b->ld, &at[e]);
    return takes;
}

/* n rows from this one on, whose extents e follow each other in the file. */
static int read_rows(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                     const struct mr_run_sample *s, int e, uint32_t n)
{
    struct mr_loader *ld = b->ld;
    const struct gds *gds = b->state;
    const struct mr_extent *at = &s->extent[e].at;
    const struct mr_field *fp = &ld->layout.field[at->field];
    const unsigned char *to = row->slot->device + fp->offset + row->at * fp->row_bytes;
    unsigned char *memory = row->slot->memory->on_device;
    uint64_t bytes = n * fp->row_bytes, start = mr_time_ns();
    int64_t got = mr_device_file_read(ld->device, gds->file[at->file], at->offset, memory,
                                      (uint64_t)(to - memory), bytes);
    w->direct_ns += mr_time_ns() - start;
    if (got == MR_EDEVICE)
        return MR_EDEVICE;
    int status = got < 0 ? (int)got : (uint64_t)got < bytes ? MR_ETRUNCATED : 0;
    if (status < 0)
        return mr_files_read_error(ld->ds->files, at->file, status, at->offset, bytes,
                                   got < 0 ? 0 : (uint64_t)got);
    mr_count(&w->direct_reads, 1);
    mr_count(&w->direct_bytes, bytes);
    return 0;
}

/* How many samples from this one on can be read as one, as to their extent e. */
static uint32_t joined(const struct mr_row *row, const struct mr_run_sample *s, int e)
{
    uint32_t n = 1;
    const struct mr_extent *first = &s->extent[e].at;
    for (; n <= row->n_next && (n + 1) * first->bytes <= MOST_JOINED_READ; n++) {
        const struct mr_run_sample *next = &s[n];
        if (next->maker != s->maker || next->status < 0 || next->done || e >= next->n_extents ||
            next->extent[e].on_device)
            break;
        const struct mr_extent *at = &next->extent[e].at;
        if (at->file != first->file || at->field != first->field ||
            at->offset != first->offset + n * first->bytes)
            break;
    }
    return n;
}

/* Reads extent e into its row, and those of its neighbours on the way. */
static int read_extent(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                       struct mr_run_sample *s, int e)
{
    uint32_t n = joined(row, s, e);
    int rc = read_rows(b, w, row, s, e, n);
    if (rc < 0 && rc != MR_EDEVICE && n > 1) { /* what is read together must not decide */
        n = 1;
        rc = read_rows(b, w, row, s, e, n);
    }
    s->failed_extent = e;
    for (uint32_t k = 0; k < n && rc == 0; k++)
        s[k].extent[e].on_device = true;
    return rc;
}

/* Reads the direct fields; the others are the host's. */
static int gds_make(struct mr_backend *b, struct mr_worker *w, const struct mr_row *row,
                    struct mr_run_sample *s)
{
    struct mr_decoding d;
    uint32_t direct = 0;
    for (int e = 0; e < s->n_extents; e++) {
        int f = s->extent[e].at.field;
        if (!b->ld->layout.field[f].direct)
            continue;
        direct |= 1u << f;
        int rc = s->extent[e].on_device ? 0 : read_extent(b, w, row, s, e);
        if (rc < 0)
            return rc;
    }
    int rc = mr_host_decode(w, row, s, NULL, &d);
    if (rc < 0)
        return rc;
    rc = mr_host_write(w, row, &d, direct);
    if (rc < 0)
        return rc;
    ((struct gds_slot *)mr_backend_own(b, row->slot))->came_from[row->at] = row->at;
    return 1;
}

static void gds_move(struct mr_backend *b, struct mr_slot *slot, uint64_t to, uint64_t from)
{
    ((struct gds_slot *)mr_backend_own(b, slot))->came_from[to] = (uint32_t)from;
}

/* Fills what is missing in the device half: rows that the host made, rows that moved over bad ones.
 * Upwards: no row is written that a later one still moves from. */
static int complete_field(struct mr_backend *b, const struct mr_field *fp,
                          const struct mr_slot *slot, struct mr_stream *stream, uint64_t *copied)
{
    const uint32_t *came_from = ((const struct gds_slot *)mr_backend_own(b, slot))->came_from;
    unsigned char *rows = slot->device + fp->offset;
    int rc = 0;
    for (uint64_t row = 0; row < slot->size && rc == 0; row++) {
        unsigned char *to = rows + row * fp->row_bytes;
        if (!mr_backend_made(b, slot, row)) {
            rc = mr_copy_async(stream, to, MR_DEVICE, mr_field_row(fp, slot, row),
                               b->ld->ring.host_kind, fp->row_bytes);
            *copied += fp->row_bytes;
        } else if (came_from[row] != row) {
            rc = mr_copy_async(stream, to, MR_DEVICE, rows + came_from[row] * fp->row_bytes,
                               MR_DEVICE, fp->row_bytes);
        }
    }
    return rc;
}

static int gds_enqueue(struct mr_backend *b, struct mr_slot *slot, struct mr_stream *stream,
                       uint64_t *copied)
{
    int rc = 0;
    for (int f = 0; f < b->ld->layout.n_fields && rc == 0; f++)
        if (b->ld->layout.field[f].direct)
            rc = complete_field(b, &b->ld->layout.field[f], slot, stream, copied);
    return rc;
}

static void gds_stats(const struct mr_backend *b, struct mr_loader_stats *out)
{
    snprintf(out->gds, sizeof out->gds, "%s", b->note);
    if (b->used)
        snprintf(out->storage, sizeof out->storage, "gds");
}

const struct mr_row_backend mr_row_gds = {
    .name = "gds",
    .state_size = sizeof(struct gds),
    .reads = true,
    .writes_device = true,
    .read_advice = "more workers, of which each reads one range at a time, or faster storage",
    .plan = gds_plan,
    .slot_size = sizeof(struct gds_slot),
    .slot_open = gds_slot_open,
    .slot_close = gds_slot_close,
    .takes = gds_takes,
    .make = gds_make,
    .move = gds_move,
    .enqueue = gds_enqueue,
    .stats = gds_stats,
    .close = gds_close,
};
