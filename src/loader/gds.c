/*
 * Fields that are read straight into a slot's device half: plain ranges of files which the host has
 * nothing to do with. A worker reads them when it makes the sample, for only then the slot is open
 * and the consumer's work on its last batch has passed; rows that are neighbours in the file are
 * read as one. What cannot be read so (bytes in memory, replacements of bad samples) is made in the
 * host half as ever, marked, and copied row by row when the batch is shipped.
 */
#include "loader/engine.h"
#include "transform/transform.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LEAST_ROW_BYTES  1024 /* for less, a read of its own costs more than it saves */
#define MOST_JOINED_READ (16ull << 20)

struct mr_gds {
    int n_files;
    void *memory; /* the device's, told to it; NULL: not */
    void *file[]; /* by id; NULL: not a file that can be read so */
};

static void say(struct mr_loader *ld, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct mr_loader *ld, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(ld->gds_text, sizeof ld->gds_text, fmt, args);
    va_end(args);
}

/* Text behind what is said already. */
static void add_text(struct mr_loader *ld, const char *before, const char *text)
{
    size_t at = strlen(ld->gds_text);
    snprintf(ld->gds_text + at, sizeof ld->gds_text - at, "%s%s", before, text);
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

/* Chooses the fields, by the first sample. Returns how many; when none, gds_text says why. */
static int choose_fields(struct mr_loader *ld)
{
    struct mr_extent at[MR_MAX_EXTENTS];
    int chosen = 0,
        n = ld->ds->ops->get || !ld->ds->ops->locate ? 0 : ld->ds->ops->locate(ld->ds, 0, at);
    if (!is_plain(at, n)) {
        say(ld, "not used: samples of %s are not plain ranges of files", ld->ds->text);
        return 0;
    }
    for (int e = 0; e < n; e++)
        if (suits(ld, &at[e])) {
            char name[MR_NAME_BYTES + 1];
            snprintf(name, sizeof name, "%.*s", MR_NAME_BYTES,
                     ld->layout.field[at[e].field].in.name);
            ld->layout.field[at[e].field].direct = true;
            add_text(ld, chosen++ ? ", " : "", name);
        }
    if (chosen == 0)
        say(ld,
            "not used: no field of %s is a range of a file of %d bytes or more that the host "
            "leaves as it is",
            ld->ds->text, LEAST_ROW_BYTES);
    return chosen;
}

static void close_files(struct mr_loader *ld, struct mr_gds *gds)
{
    for (int i = 0; i < gds->n_files; i++)
        if (gds->file[i])
            mr_device_file_close(ld->device, gds->file[i]);
    free(gds);
}

/* Every path file that is open; those that labels alone lie in cost little. */
static int open_files(struct mr_loader *ld)
{
    int n = mr_files_length(ld->ds->files), rc = 0;
    struct mr_gds *gds = calloc(1, sizeof *gds + (size_t)n * sizeof(void *));
    if (!gds)
        return mr_error_nomem("files of the device", (uint64_t)n * sizeof(void *));
    gds->n_files = n;
    for (int i = 0; i < n && rc == 0; i++) {
        int fd = mr_files_fd(ld->ds->files, i);
        if (fd >= 0)
            rc =
                mr_device_file_open(ld->device, fd, mr_files_name(ld->ds->files, i), &gds->file[i]);
    }
    if (rc == 0)
        ld->gds = gds;
    else
        close_files(ld, gds);
    return rc;
}

/* Why not, whatever the data set is; NULL: nothing stands against it. */
static const char *refusal(const struct mr_loader *ld)
{
    if (ld->opts.cache != MR_CACHE_NONE)
        return "a cache is wanted, which keeps what the host reads";
    if (ld->chain && ld->chain->mix)
        return "the chain mixes rows, which the host does";
    return ld->device_info.unified ? "the device has no memory of its own" : NULL;
}

static void use_none(struct mr_loader *ld)
{
    for (int f = 0; f < ld->layout.n_fields; f++)
        ld->layout.field[f].direct = false;
}

int mr_gds_plan(struct mr_loader *ld)
{
    char note[160];
    const char *why = refusal(ld);
    if (ld->opts.storage != MR_STORAGE_GDS)
        return 0;
    if (why)
        say(ld, "not used: %s", why);
    if (why || choose_fields(ld) == 0)
        return 0;
    int rc = mr_device_files_begin(ld->device, note, sizeof note);
    if (rc == 0) {
        rc = open_files(ld);
        if (rc < 0) {
            struct mr_error_kept kept;
            mr_error_keep(rc, &kept);
            mr_device_files_end(ld->device);
            rc = mr_error_put(&kept);
        }
    }
    if (rc == 0) {
        add_text(ld, ": ", note);
        return 0;
    }
    use_none(ld);
    say(ld, "not used: %s", mr_last_error());
    return rc == -ENOMEM ? rc : 0;
}

void mr_gds_memory(struct mr_loader *ld)
{
    uint64_t bytes = (ld->layout.slot_bytes + ld->layout.output_bytes) * ld->ring.n_slots;
    if (!ld->gds)
        return;
    if (mr_device_file_memory(ld->device, ld->ring.on_device, bytes) == 0)
        ld->gds->memory = ld->ring.on_device;
    else
        add_text(ld, "; its buffers between, as memory could not be registered: ", mr_last_error());
}

void mr_gds_free(struct mr_loader *ld)
{
    for (uint32_t i = 0; ld->ring.slot && i < ld->ring.n_slots; i++) {
        free(ld->ring.slot[i].from_host);
        free(ld->ring.slot[i].came_from);
    }
    if (!ld->gds)
        return;
    if (ld->gds->memory)
        mr_device_file_memory_end(ld->device, ld->gds->memory);
    close_files(ld, ld->gds);
    ld->gds = NULL;
    mr_device_files_end(ld->device);
}

int mr_gds_slot_create(struct mr_loader *ld, struct mr_slot *slot)
{
    uint64_t rows = ld->opts.batch_size;
    slot->from_host = calloc(rows, sizeof *slot->from_host);
    slot->came_from = calloc(rows, sizeof *slot->came_from);
    return slot->from_host && slot->came_from
               ? 0
               : mr_error_nomem("batch slot", rows * sizeof *slot->came_from);
}

bool mr_gds_takes(const struct mr_loader *ld, const struct mr_extent *at, int n)
{
    bool takes = is_plain(at, n);
    for (int e = 0; e < n && takes; e++)
        takes = !ld->layout.field[at[e].field].direct || suits(ld, &at[e]);
    return takes;
}

/* n rows from sample i on, whose extents e follow each other in the file. */
static int read_rows(struct mr_worker *w, const struct mr_run *run, uint32_t i, int e, uint32_t n)
{
    struct mr_loader *ld = w->ld;
    const struct mr_extent *at = &run->sample[i].extent[e].at;
    const struct mr_field *fp = &ld->layout.field[at->field];
    const unsigned char *to =
        mr_ring_slot(&ld->ring, run->t)->device + fp->offset + (run->row0 + i) * fp->row_bytes;
    uint64_t bytes = n * fp->row_bytes, start = mr_time_ns();
    int64_t got =
        mr_device_file_read(ld->device, ld->gds->file[at->file], at->offset, ld->ring.on_device,
                            (uint64_t)(to - ld->ring.on_device), bytes);
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

/* How many samples from i on can be read as one, as to their extent e. */
static uint32_t joined(const struct mr_run *run, uint32_t i, int e)
{
    uint32_t n = 1;
    const struct mr_extent *first = &run->sample[i].extent[e].at;
    for (; i + n < run->n && (n + 1) * first->bytes <= MOST_JOINED_READ; n++) {
        const struct mr_run_sample *s = &run->sample[i + n];
        if (!s->direct || s->status < 0 || s->done || e >= s->n_extents || s->extent[e].on_device)
            break;
        const struct mr_extent *at = &s->extent[e].at;
        if (at->file != first->file || at->field != first->field ||
            at->offset != first->offset + n * first->bytes)
            break;
    }
    return n;
}

int mr_gds_read(struct mr_worker *w, struct mr_run *run, uint32_t i)
{
    struct mr_run_sample *s = &run->sample[i];
    for (int e = 0; e < s->n_extents; e++) {
        if (!w->ld->layout.field[s->extent[e].at.field].direct || s->extent[e].on_device)
            continue;
        uint32_t n = joined(run, i, e);
        int rc = read_rows(w, run, i, e, n);
        if (rc < 0 && rc != MR_EDEVICE &&
            n > 1) { /* what is read together must not decide about a sample */
            n = 1;
            rc = read_rows(w, run, i, e, n);
        }
        s->failed_extent = e;
        if (rc < 0)
            return rc;
        for (uint32_t k = 0; k < n; k++)
            run->sample[i + k].extent[e].on_device = true;
    }
    return 0;
}

static int complete_field(struct mr_loader *ld, const struct mr_field *fp,
                          const struct mr_slot *slot, struct mr_stream *stream, uint64_t *copied)
{
    enum mr_memory kind = ld->opts.pageable ? MR_PAGEABLE : MR_PINNED;
    unsigned char *rows = slot->device + fp->offset;
    int rc = 0;
    /* Upwards: no row is written that a later one still moves from. */
    for (uint64_t row = 0; row < slot->size && rc == 0; row++) {
        uint64_t from = slot->moved ? slot->came_from[row] : row;
        if (slot->from_host[row]) {
            const unsigned char *host = slot->host + fp->offset + row * fp->row_bytes;
            rc = mr_copy_async(stream, rows + row * fp->row_bytes, MR_DEVICE, host, kind,
                               fp->row_bytes);
            *copied += fp->row_bytes;
        } else if (from != row) {
            rc = mr_copy_async(stream, rows + row * fp->row_bytes, MR_DEVICE,
                               rows + from * fp->row_bytes, MR_DEVICE, fp->row_bytes);
        }
    }
    return rc;
}

int mr_gds_complete(struct mr_loader *ld, const struct mr_slot *slot, struct mr_stream *stream,
                    uint64_t *copied)
{
    int rc = 0;
    for (int f = 0; f < ld->layout.n_fields && rc == 0; f++)
        if (ld->layout.field[f].direct)
            rc = complete_field(ld, &ld->layout.field[f], slot, stream, copied);
    return rc;
}
