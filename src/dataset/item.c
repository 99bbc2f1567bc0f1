/* Items: samples of iterable data sets between source and row. */
#include "dataset/iterable.h"

#include <string.h>

#define MAX_ITEM_BYTES (1ull << 40)

int mr_item_reserve(struct mr_item *item, uint64_t n)
{
    if (n <= item->space)
        return 0;
    if (n > MAX_ITEM_BYTES)
        return mr_error_nomem("sample", n);
    uint64_t space = mr_round_up(MR_MAX(n, item->space + item->space / 4), MR_CACHE_LINE);
    unsigned char *data = aligned_alloc(MR_CACHE_LINE, space);
    if (!data)
        return mr_error_nomem("sample", space);
    if (item->bytes > 0)
        memcpy(data, item->data, item->bytes);
    free(item->data);
    item->data = data;
    item->space = space;
    return 0;
}

void mr_item_destroy(struct mr_item *item)
{
    if (!item)
        return;
    free(item->data);
    free(item->error);
    free(item);
}

int mr_dataset_check_random(const struct mr_dataset *ds)
{
    if (!ds->ops->iterable)
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "%s: an iterable data set: its samples come one after the other and cannot "
                        "be read by index; read them with a loader",
                        ds->text);
}
