/*
 * White-box. Tables of shards: the first byte says whether checksums are made right, as in a forged
 * file. A table that opens has names that stay in their folder, and each sample in the shard that
 * has it.
 */
#include "dataset/tar/table.h"
#include "memfile.h"

#include <stddef.h>

static void repair_groups(uint8_t *data, size_t size, uint64_t top_at)
{
    for (uint64_t at = top_at; at + 2 * sizeof(struct mr_tar_table_top) <= size;
         at += sizeof(struct mr_tar_table_top)) {
        struct mr_tar_table_top top[2];
        memcpy(top, data + at, sizeof top);
        if (top[0].at >= top[1].at || top[1].at > size || top[1].at - top[0].at < 16)
            continue;
        uint64_t sum = mr_tar_table_sum(data + top[0].at + 8, top[1].at - top[0].at - 8);
        if (top[0].at >= sizeof(struct mr_tar_table_head) && top[1].at <= top_at)
            memcpy(data + top[0].at, &sum, sizeof sum);
    }
}

static void repair(uint8_t *data, size_t size)
{
    struct mr_tar_table_head h;
    if (size < sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    memcpy(h.magic, MR_TAR_TABLE_MAGIC, sizeof h.magic);
    h.version = MR_TAR_TABLE_VERSION;
    h.order = MR_TAR_TABLE_ORDER;
    h.bytes = size;
    if (h.top_at >= sizeof h && h.top_at <= size) {
        repair_groups(data, size, h.top_at);
        h.top_sum = mr_tar_table_sum(data + h.top_at, size - h.top_at);
    }
    h.head_sum = mr_tar_table_sum(&h, offsetof(struct mr_tar_table_head, head_sum));
    memcpy(data, &h, sizeof h);
}

static void look(struct mr_tar_table *table, uint64_t sample)
{
    struct mr_tar_table_entry e, again;
    if (mr_tar_table_find(table, sample, &e) < 0)
        return;
    if (sample < e.first || sample - e.first >= e.samples || !mr_tar_table_name_fits(e.name) ||
        mr_tar_table_get(table, e.number, &again) < 0 || again.first != e.first)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_tar_table *table;
    struct mr_files *files = mr_files_create();
    if (size < 1 || !files)
        goto destroy;
    uint8_t *copy = malloc(size);
    if (!copy)
        goto destroy;
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 1)
        repair(copy, size - 1);
    int file = mr_files_add_memory(files, "fuzz.shards", copy, size - 1, true);
    if (file < 0 || mr_tar_table_open(files, file, &table) < 0)
        goto destroy;
    uint64_t n = mr_tar_table_get_head(table)->n_samples;
    for (uint64_t k = 0; k < 16; k++)
        look(table, k < n ? (k % 2 ? n - 1 - k / 2 : k / 2) : 0);
    look(table, n / 2);
    mr_tar_table_close(table);
destroy:
    mr_files_destroy(files);
    return 0;
}
