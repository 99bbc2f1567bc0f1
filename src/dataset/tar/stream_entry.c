/* Tar archives read once: headers, and contents that are skipped or read. */
#include "dataset/tar/stream_private.h"

#include <string.h>

static int ends_early(const struct mr_tar_stream *s, const char *what, uint64_t end)
{
    return mr_error_set(
        MR_ETRUNCATED,
        "%s: truncated: the %s at byte %llu ends at %llu, but the data ended at %llu",
        mr_tar_stream_name(s), what, (unsigned long long)s->header_at, (unsigned long long)end,
        (unsigned long long)mr_tar_input_at(s->input));
}

int mr_tar_stream_read(struct mr_tar_stream *s, void *to, uint64_t n, const char *what)
{
    uint64_t got, end;
    if (!mr_add(mr_tar_input_at(s->input), n, &end))
        end = UINT64_MAX;
    int rc = mr_tar_input_read(s->input, to, n, &got);
    return rc < 0 || got == n ? rc : ends_early(s, what, end);
}

int mr_tar_stream_pad(struct mr_tar_stream *s)
{
    uint64_t at = mr_tar_input_at(s->input), got;
    /* the last member's padding may be missing */
    return mr_tar_input_read(s->input, NULL, mr_round_up(at, MR_TAR_BLOCK) - at, &got);
}

static int take_extended(struct mr_tar_stream *s, const struct mr_tar_entry *entry)
{
    char *text;
    int rc = mr_tar_extended_begin(&s->entries, s->header_at, entry, &text);
    if (rc < 0)
        return rc;
    rc = mr_tar_stream_read(s, text, entry->bytes, "member");
    if (rc < 0) {
        free(text);
        return rc;
    }
    rc = mr_tar_extended_end(&s->entries, s->header_at, entry, text);
    return rc < 0 ? rc : mr_tar_stream_pad(s);
}

int mr_tar_stream_skip(struct mr_tar_stream *s, uint64_t bytes)
{
    int rc = mr_tar_stream_read(s, NULL, bytes, "member");
    return rc < 0 ? rc : mr_tar_stream_pad(s);
}

/* Reads a header. Returns 1 and [out] block, or 0 at the end of the archive. A pipe may bring
 * another archive behind an end mark. */
static int read_header(struct mr_tar_stream *s, unsigned char block[MR_TAR_BLOCK])
{
    uint64_t got;
    while (!s->ended) {
        s->header_at = mr_tar_input_at(s->input);
        int rc = mr_tar_input_read(s->input, block, MR_TAR_BLOCK, &got);
        if (rc < 0)
            return rc;
        if (got > 0 && got < MR_TAR_BLOCK)
            return ends_early(s, "header", s->header_at + MR_TAR_BLOCK);
        bool mark = got > 0 && mr_tar_is_end(block);
        if ((got == 0 || mark) && mr_tar_entries_half(&s->entries))
            return ends_early(s, "long name", s->header_at);
        if (got == 0 && s->header_at == 0)
            return mr_error_set(MR_ETRUNCATED, "%s: no data: expected a tar archive",
                                mr_tar_stream_name(s));
        if (got == 0 && !s->marked)
            mr_log(MR_LOG_WARNING,
                   "%s: the archive has no end mark: it may have been cut off between members",
                   mr_tar_stream_name(s));
        if (got > 0 && !mark) {
            s->marked = false;
            return 1;
        }
        s->ended = got == 0 || !s->pipe;
        if (!s->ended && !s->marked) { /* samples do not go on in another archive */
            s->marked = true;
            return 2;
        }
    }
    return 0;
}

static int keep_waiting(struct mr_tar_stream *s, const char *name, uint64_t bytes)
{
    free(s->waiting);
    s->waiting = strdup(name);
    if (!s->waiting)
        return mr_error_nomem(mr_tar_stream_name(s), strlen(name) + 1);
    s->waiting_bytes = bytes;
    s->waits = true;
    return 1;
}

int mr_tar_stream_member(struct mr_tar_stream *s)
{
    unsigned char block[MR_TAR_BLOCK];
    for (;;) {
        struct mr_tar_entry entry;
        const char *name = NULL;
        int rc = read_header(s, block);
        if (rc != 1)
            return rc;
        rc = mr_tar_entry_parse(&s->entries, s->header_at, block, &entry);
        if (rc < 0)
            return rc;
        if (entry.extended) {
            rc = take_extended(s, &entry);
            if (rc < 0)
                return rc;
            continue;
        }
        rc = mr_tar_entry_name(&s->entries, s->header_at, &entry, &name);
        bool part = rc > 0 && mr_tar_extension(name);
        if (part)
            rc = keep_waiting(s, name, entry.bytes);
        mr_tar_entry_end(&s->entries);
        if (rc < 0 || part)
            return rc;
        rc = mr_tar_stream_skip(s, entry.bytes);
        if (rc < 0)
            return rc;
    }
}
