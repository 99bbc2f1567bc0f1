/*
 * White-box. Index files of archives: 4 bytes that say how the body is divided and how many blocks
 * the archive has, then the body, under a head with right checksums, as a forged file has it. It is
 * refused, or all its members are in the archive.
 */
#include "dataset/tar/tar.h"
#include "memfile.h"

#include <stddef.h>
#include <sys/stat.h>

/* As in index_file.c. */
struct head {
    char magic[8];
    uint32_t version, order;
    uint64_t archive_bytes;
    int64_t mtime_ns;
    uint64_t n, names_bytes, small_bytes;
    uint64_t sum;
    uint64_t head_sum;
};

static char archive[64], file[72];

static void remove_folder(void)
{
    unlink(file);
    *strrchr(archive, '/') = 0;
    rmdir(archive);
}

static bool make_folder(void)
{
    char folder[32] = "/dev/shm/fuzz-XXXXXX";
    if (archive[0])
        return true;
    if (!mkdtemp(folder)) {
        strcpy(folder, "/tmp/fuzz-XXXXXX");
        if (!mkdtemp(folder))
            return false;
    }
    snprintf(archive, sizeof archive, "%s/a.tar", folder);
    snprintf(file, sizeof file, "%s.idx", archive);
    atexit(remove_folder);
    return true;
}

static struct head head_of(const uint8_t *by, size_t size, uint64_t archive_bytes)
{
    struct head h = {.magic = {'M', 'R', 'T', 'A', 'R', 'I', 'D', 'X'},
                     .version = 1,
                     .order = 0x01020304,
                     .archive_bytes = archive_bytes};
    h.n = by[0] % (size / sizeof(struct mr_tar_member) + 1);
    uint64_t rest = size - h.n * sizeof(struct mr_tar_member);
    h.names_bytes = by[1] % (rest + 1);
    h.small_bytes = rest - h.names_bytes;
    return h;
}

static bool write_index(const struct head *head, const uint8_t *data, size_t size)
{
    struct head h = *head;
    struct mr_tar_index x = {.n = h.n, .names_bytes = h.names_bytes, .small_bytes = h.small_bytes};
    uint64_t members = h.n * sizeof *x.member;
    x.member = malloc(members + 1); /* aligned */
    if (!x.member)
        return false;
    memcpy(x.member, data, members);
    x.names = (char *)(uintptr_t)data + members;
    x.small = (void *)(uintptr_t)(data + members + h.names_bytes);
    h.sum = mr_tar_index_sum(&x);
    free(x.member);
    h.head_sum = mr_mix64(mr_hash(MR_HASH_START, &h, offsetof(struct head, head_sum)));
    FILE *f = fopen(file, "wbe");
    if (!f)
        return false;
    bool fine = fwrite(&h, 1, sizeof h, f) == sizeof h && fwrite(data, 1, size, f) == size;
    return !fclose(f) && fine;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_index_identity id = {.path = archive};
    struct mr_tar_index x;
    if (size < 4 || !make_folder())
        return 0;
    id.bytes = (data[2] | (uint64_t)data[3] << 8) * 512;
    struct head h = head_of(data, size - 4, id.bytes);
    if (!write_index(&h, data + 4, size - 4) || !mr_tar_index_load(&id, MR_INDEX_KEEP_BESIDE, &x))
        return 0;
    for (uint64_t i = 0; i < x.n; i++) {
        const struct mr_tar_member *m = &x.member[i];
        if (m->offset + m->bytes > id.bytes || m->name >= x.names_bytes ||
            !memchr(x.names + m->name, 0, x.names_bytes - m->name))
            abort();
    }
    mr_tar_index_free(&x);
    return 0;
}
