/* What fields are: by their extensions, and by the first sample that has them. */
#include "dataset/tar/state.h"

#include <string.h>

int mr_tar_fields_open(struct mr_dataset *ds, const struct mr_tar_opts *o, const char *archive,
                       const char *const *ext, uint64_t n)
{
    struct mr_tar_state *st = ds->state;
    if (o->fields && o->fields[0])
        return mr_tar_fields_parse(o->fields, st->field);
    int chosen = mr_tar_fields_choose(ext, n, st->field);
    if (chosen > 0)
        return chosen;
    return mr_error_set(
        MR_EFORMAT,
        "%s: no member of the first sample has an extension that can be a field: say which "
        "with fields=NAME:EXTENSION",
        archive);
}

static int spec_of_array(struct mr_dataset *ds, int f, const struct mr_tar_one *one)
{
    const struct mr_tar_member *m = mr_tar_one_member(one, f);
    struct mr_tar_state *st = ds->state;
    struct mr_spec *spec = &ds->field[f];
    char name[MR_TAR_WHO_BYTES];
    int rc = mr_tar_array_parse(mr_tar_who(one, m, name), one->index, m, &st->array[f]);
    if (rc < 0)
        return rc;
    const struct mr_npy_head *h = &st->array[f].head;
    spec->dtype = h->dtype;
    spec->rank = h->rank + (h->length > 0);
    memcpy(spec->dim, h->dim, (size_t)h->rank * sizeof spec->dim[0]);
    if (h->length)
        spec->dim[h->rank] = h->length;
    return 0;
}

int mr_tar_spec_open(struct mr_dataset *ds, const struct mr_tar_opts *o, int f,
                     const struct mr_tar_one *one)
{
    struct mr_tar_state *st = ds->state;
    memcpy(ds->field[f].name, st->field[f].name, MR_NAME_BYTES);
    switch (st->field[f].kind) {
    case MR_TAR_PICTURE:
        mr_picture_declare(ds, f, &o->picture);
        return 0;
    case MR_TAR_LABEL:
        ds->field[f].dtype = MR_I64;
        return 0;
    case MR_TAR_NPY:
        return spec_of_array(ds, f, one);
    default:
        if (o->text) {
            ds->field[f].kind = mr_tar_text_kind(&st->field[f]);
            ds->field[f].var_dims = 1;
        }
        return 0;
    }
}
