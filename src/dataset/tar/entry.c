/* Entries of an archive, one after the other: names, long names, what is refused. */
#include "dataset/tar/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_EXTENDED (1u << 20) /* upper bound of a long name or of pax records, in bytes */

static int bad_name(const struct mr_tar_entries *e, uint64_t at, const char *name, const char *why)
{
    return mr_error_set(MR_EFORMAT, "%s: header at byte %llu: '%.200s': %s", e->archive,
                        (unsigned long long)at, name, why);
}

static int check_name(const struct mr_tar_entries *e, uint64_t at, const char *name)
{
    if (!name[0])
        return bad_name(e, at, name, "a member without a name");
    if (name[0] == '/')
        return bad_name(
            e, at, name,
            "an absolute path: expected members named relative to the archive's folder");
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == 0))
            return bad_name(e, at, name,
                            "a path with '..': expected members within the archive's folder");
    }
    return 0;
}

static int refuse_type(const struct mr_tar_entries *e, uint64_t at, const char *name, char type)
{
    unsigned long long o = at;
    const char *archive = e->archive;
    switch (type) {
    case '1':
    case '2':
        return mr_error_set(
            MR_EFORMAT,
            "%s: header at byte %llu: '%.200s' is a link: expected files alone (tar's "
            "--dereference and "
            "--hard-dereference store them)",
            archive, o, name);
    case 'S':
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: header at byte %llu: '%.200s' is a sparse file: pack it again "
                            "without tar's --sparse",
                            archive, o, name);
    case 'M':
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: header at byte %llu: '%.200s' continues from "
                            "another volume",
                            archive, o, name);
    default:
        return mr_error_set(MR_EFORMAT,
                            "%s: header at byte %llu: '%.200s' is of type '%c' (byte %02x): "
                            "expected files and folders",
                            archive, o, name, type >= ' ' && type < 127 ? type : '?',
                            (unsigned char)type);
    }
}

int mr_tar_extended_begin(const struct mr_tar_entries *e, uint64_t at,
                          const struct mr_tar_entry *entry, char **text)
{
    if (entry->bytes > MAX_EXTENDED)
        return mr_error_set(
            MR_ELIMIT,
            "%s: header at byte %llu: a name or pax record of %llu bytes: expected at most %u",
            e->archive, (unsigned long long)at, (unsigned long long)entry->bytes, MAX_EXTENDED);
    *text = malloc(entry->bytes + 1);
    if (!*text)
        return mr_error_nomem(e->archive, entry->bytes + 1);
    (*text)[entry->bytes] = 0;
    return 0;
}

int mr_tar_extended_end(struct mr_tar_entries *e, uint64_t at, const struct mr_tar_entry *entry,
                        char *text)
{
    struct mr_tar_pax all = {0}; /* global records: only checked for errors */
    int rc = 0;
    if (entry->header.type == 'L') {
        free(e->pax.path);
        e->pax.path = text;
        return 0;
    }
    if (entry->header.type == 'g')
        rc = mr_tar_pax_parse(e->archive, at, text, entry->bytes, &all);
    else if (entry->header.type == 'x')
        rc = mr_tar_pax_parse(e->archive, at, text, entry->bytes, &e->pax);
    free(all.path);
    free(text);
    return rc;
}

int mr_tar_entry_parse(const struct mr_tar_entries *e, uint64_t at,
                       const unsigned char block[MR_TAR_BLOCK], struct mr_tar_entry *out)
{
    int rc = mr_tar_header_parse(e->archive, at, block, &out->header);
    if (rc < 0)
        return rc;
    char type = out->header.type;
    bool empty = type >= '1' && type <= '6'; /* links, devices, folders */
    out->extended = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    out->bytes = !out->extended && e->pax.has_bytes ? e->pax.bytes : out->header.bytes;
    if (empty)
        out->bytes = 0;
    return 0;
}

int mr_tar_entry_name(const struct mr_tar_entries *e, uint64_t at, const struct mr_tar_entry *entry,
                      const char **out)
{
    const char *name = e->pax.path ? e->pax.path : entry->header.name;
    char type = entry->header.type;
    if (type == 'V') /* volume label */
        return 0;
    while (name[0] == '.' && name[1] == '/')
        name += 2 + strspn(name + 2, "/");
    size_t n = strlen(name);
    bool plain = type == '0' || type == 0 || type == '7';
    bool folder = type == '5' || type == 'D' || (type == 0 && n > 0 && name[n - 1] == '/');
    int rc = folder && (n == 0 || strcmp(name, ".") == 0) ? 0 : check_name(e, at, name);
    if (rc < 0)
        return rc;
    if (!plain && !folder)
        return refuse_type(e, at, name, type);
    *out = name;
    return !folder;
}

void mr_tar_entry_end(struct mr_tar_entries *e)
{
    free(e->pax.path);
    e->pax = (struct mr_tar_pax){0};
}

bool mr_tar_entries_half(const struct mr_tar_entries *e)
{
    return e->pax.path || e->pax.has_bytes;
}

bool mr_tar_is_end(const unsigned char *block)
{
    return block[0] == 0 && memcmp(block, block + 1, MR_TAR_BLOCK - 1) == 0;
}
