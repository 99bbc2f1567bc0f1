/* The texts of a batch: bytes and strings, one sample at a time. */
#include "base/base.h"
#include <millrace/loader.h>

static int check(const struct mr_batch *batch, int field, uint64_t i)
{
    if (field < 0 || field >= batch->n_fields)
        return mr_error_set(MR_EMISUSE, "mr_batch_text: field %d: the batch has %d", field,
                            batch->n_fields);
    const struct mr_batch_field *bf = &batch->field[field];
    if (bf->spec.kind == MR_KIND_TENSOR || !bf->offsets || !bf->host)
        return mr_error_set(MR_EMISUSE, "mr_batch_text: field '%s' has neither bytes nor strings",
                            bf->spec.name);
    if (i >= batch->n)
        return mr_error_set(MR_EMISUSE, "mr_batch_text: sample %llu: the batch has %llu",
                            (unsigned long long)i, (unsigned long long)batch->n);
    return 0;
}

const char *mr_batch_text(const struct mr_batch *batch, int field, uint64_t i, uint64_t *n_bytes)
{
    if (n_bytes)
        *n_bytes = 0;
    if (!batch || !n_bytes) {
        mr_error_null("mr_batch_text", "a batch and a place for the number of bytes");
        return NULL;
    }
    if (check(batch, field, i) < 0)
        return NULL;
    const struct mr_batch_field *bf = &batch->field[field];
    *n_bytes = bf->offsets[i + 1] - bf->offsets[i];
    return (const char *)bf->host + bf->offsets[i];
}
