/*
 * Any bytes as a chain's text: the first byte chooses the fields' shapes. What parses must read
 * back from its own text; what binds must do the same fused and op by op, within its buffers.
 */
#include "transform/transform.h"

#include <string.h>

#define MOST (1 << 20) /* bytes of any field: larger results are not computed */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_fields(uint8_t choice, struct mr_spec fields[2])
{
    static const uint64_t shapes[8][3] = {{7, 9, 3},   {28, 28, 0}, {3, 12, 10}, {1, 5, 5},
                                          {16, 16, 4}, {64, 0, 0},  {3, 3, 3},   {40, 1, 2}};
    const uint64_t *shape = shapes[choice & 7];
    fields[0] =
        (struct mr_spec){.name = "image", .dtype = (enum mr_dtype)((choice >> 3) % MR_N_DTYPES)};
    for (int d = 0; d < 3 && shape[d]; d++)
        fields[0].dim[fields[0].rank++] = shape[d];
    if (choice & 128)
        fields[0].var_dims = 1u << (fields[0].rank - 1);
    fields[1] = (struct mr_spec){.name = "label", .dtype = MR_U8};
}

static int apply(const struct mr_transform *chain, int field, const struct mr_spec *in_spec,
                 const uint64_t *dim, char **out, uint64_t *out_bytes)
{
    uint64_t in_bytes = mr_dims_after(dim, in_spec->rank, -1) * mr_dtype_size(in_spec->dtype),
             bytes;
    uint64_t scratch_bytes = mr_transform_scratch_bytes(chain), out_dim[MR_MAX_RANK];
    const struct mr_spec *spec = &mr_transform_specs(chain)[field];
    *out = NULL;
    if (mr_spec_bytes(spec, &bytes) || bytes > MOST || scratch_bytes > 4 * MOST)
        return 1;
    char *in = malloc(in_bytes + 1), *scratch = aligned_alloc(64, scratch_bytes + 64);
    *out = calloc(1, bytes + 1);
    if (!in || !scratch || !*out)
        abort();
    for (uint64_t i = 0; i < in_bytes; i++)
        in[i] = (char)(in_spec->dtype == MR_BOOL ? i & 1 : mr_mix64(i + 1));
    int rc = mr_transform_apply(chain, field, 1, 2, 3, in, dim, *out, out_dim, scratch);
    *out_bytes = rc ? 0 : mr_dims_after(out_dim, spec->rank, -1) * mr_dtype_size(spec->dtype);
    if (*out_bytes > bytes)
        abort();
    free(in);
    free(scratch);
    return rc;
}

static void compare(const struct mr_transform *fast, const struct mr_transform *plain,
                    const struct mr_spec *fields)
{
    for (int f = 0; f < 2; f++)
        for (uint64_t cut = 0; cut < 2; cut++) {
            uint64_t dim[MR_MAX_RANK], a_bytes, b_bytes;
            char *a, *b;
            memcpy(dim, fields[f].dim, sizeof dim);
            for (int d = 0; d < fields[f].rank; d++)
                dim[d] -= fields[f].var_dims >> d & 1 ? cut : 0;
            int rc_a = apply(fast, f, &fields[f], dim, &a, &a_bytes);
            int rc_b = apply(plain, f, &fields[f], dim, &b, &b_bytes);
            if (rc_a != 1 && rc_b != 1 &&
                (rc_a != rc_b || a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0))
                abort();
            free(a);
            free(b);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct mr_spec fields[2];
    make_fields(data[0], fields);
    char *text = calloc(1, size);
    struct mr_transform *fast, *plain;
    if (!text || mr_transform_create(&fast) || mr_transform_create(&plain))
        abort();
    memcpy(text, data + 1, size - 1);
    int rc = mr_transform_add(fast, text);
    if (rc == 0 && (mr_transform_add(plain, mr_transform_text(fast)) ||
                    strcmp(mr_transform_text(fast), mr_transform_text(plain)) != 0))
        abort();
    if (rc == 0 && mr_transform_bind(fast, fields, 2) == 0) {
        if (mr_transform_bind_as(plain, fields, 2, true))
            abort();
        compare(fast, plain, fields);
    } else if (!*mr_last_error()) {
        abort();
    }
    mr_transform_destroy(fast);
    mr_transform_destroy(plain);
    free(text);
    return 0;
}
