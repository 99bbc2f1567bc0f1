/* Collation by a user's callback. */
#include "loader/collate.h"

#include "dataset/user.h"
#include "loader/engine.h"

#include <inttypes.h>
#include <millrace/collate.h>
#include <stdio.h>
#include <string.h>

void mr_collate_fn_fill(struct mr_collate_fn *fn, size_t size)
{
    mr_opts_copy(fn, size, &(struct mr_collate_fn){.size = 0}, sizeof *fn);
}

/* ---- at open ---- */

/* States have the name as a JSON string. */
static bool is_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    bool good = n > 0 && n < MR_COLLATE_NAME_BYTES;
    for (size_t i = 0; good && i < n; i++)
        good = name[i] >= ' ' && name[i] <= '~' && name[i] != '"' && name[i] != '\\';
    return good;
}

static int check(const struct mr_loader *ld, const struct mr_collate_fn *fn)
{
    if (!is_name(fn->name))
        return mr_error_set(MR_EOPTION,
                            "collate_fn: name: expected 1 to %d printable ASCII characters without "
                            "\" and \\",
                            MR_COLLATE_NAME_BYTES - 1);
    if (!fn->collate)
        return mr_error_set(MR_EOPTION, "collate_fn %s: collate is NULL", fn->name);
    if (fn->n_fields < 1 || fn->n_fields > MR_MAX_FIELDS)
        return mr_error_set(MR_EOPTION, "collate_fn %s: n_fields %d: expected 1..%d", fn->name,
                            fn->n_fields, MR_MAX_FIELDS);
    if (ld->opts.collate != MR_COLLATE_STACK)
        return mr_error_set(MR_EOPTION,
                            "collate_fn %s: collate is set as well: expected stack, the default",
                            fn->name);
    if (ld->opts.mask || ld->opts.cu_seqlens || ld->opts.pad_values)
        return mr_error_set(MR_EOPTION,
                            "collate_fn %s: mask, cu_seqlens or pad_values is set as well: the "
                            "callback makes all fields",
                            fn->name);
    if (ld->chain && ld->chain->mix)
        return mr_error_set(MR_EOPTION, "collate_fn %s: the chain mixes rows: expected no %s",
                            fn->name, ld->chain->mix->ops->name);
    return 0;
}

static int check_field(const struct mr_collate_fn *fn, int k, uint64_t *bytes)
{
    const struct mr_spec *spec = &fn->field[k];
    const char *end = memchr(spec->name, '\0', MR_NAME_BYTES);
    bool good = end && end != spec->name && mr_dtype_size(spec->dtype) > 0 && spec->rank >= 0 &&
                spec->rank <= MR_MAX_RANK && spec->var_dims >> spec->rank == 0;
    for (int i = 0; good && i < k; i++)
        good = strcmp(fn->field[i].name, spec->name) != 0;
    if (!good)
        return mr_error_set(MR_EOPTION,
                            "collate_fn %s: field %d: expected a name of its own, a dtype, and "
                            "var_dims within a rank of 0..%d",
                            fn->name, k, MR_MAX_RANK);
    return mr_spec_bytes(spec, bytes);
}

int mr_user_collate_plan(struct mr_loader *ld)
{
    struct mr_user_collate *user = &ld->user_collate;
    const struct mr_collate_fn *fn = ld->opts.collate_fn;
    struct mr_layout *layout = &ld->layout;
    ld->opts.collate_fn = NULL; /* borrowed for this call only */
    int rc = mr_opts_take("collate_fn", fn, &user->fn, sizeof user->fn);
    if (rc < 0)
        return rc;
    rc = check(ld, &user->fn);
    if (rc < 0)
        return rc;
    snprintf(user->name, sizeof user->name, "%s", user->fn.name);
    user->fn.name = user->name;
    layout->n_added = user->fn.n_fields;
    layout->varies = layout->collates = layout->by_user = true;
    for (int k = 0; k < layout->n_added; k++) {
        rc = check_field(&user->fn, k, &layout->added[k].most_bytes);
        if (rc < 0)
            return rc;
        layout->added[k].spec = user->fn.field[k];
        layout->added[k].spec.kind = MR_KIND_TENSOR; /* a copy of a text's spec says it is one */
    }
    return 0;
}

void mr_user_collate_text(const struct mr_loader *ld, char *out, size_t cap)
{
    const struct mr_collate_fn *fn = &ld->user_collate.fn;
    char version[40] = "";
    if (fn->version)
        snprintf(version, sizeof version, ",version=%" PRIu64, fn->version);
    snprintf(out, cap, "collate(%s%s)", fn->name, version);
}

/* ---- a batch ---- */

static int call(const struct mr_worker *w, const struct mr_slot *slot,
                struct mr_collate_out out[MR_MAX_FIELDS])
{
    const struct mr_loader *ld = w->ld;
    const struct mr_layout *layout = &ld->layout;
    const struct mr_collate_fn *fn = &ld->user_collate.fn;
    struct mr_collate_in in[MR_MAX_FIELDS];
    struct mr_collate_context context = {.size = sizeof context,
                                         .n = slot->size,
                                         .epoch = slot->info.epoch,
                                         .batch = slot->info.index,
                                         .seed = ld->opts.seed,
                                         .indices = slot->indices,
                                         .positions = slot->positions,
                                         .items = slot->items,
                                         .worker = w->id};
    for (int f = 0; f < layout->n_fields; f++) {
        in[f].spec = &layout->field[f].out;
        in[f].row = (const void *const *)mr_slot_kept(slot, 0, f);
        in[f].dim = (const uint64_t(*)[MR_MAX_RANK])mr_slot_dims(slot, 0, f);
    }
    char who[160];
    uint64_t errors = mr_error_count();
    int rc = fn->collate(fn->user, &context, layout->n_fields, in, out);
    if (rc == 0)
        return 0;
    snprintf(who, sizeof who, "%.60s: batch %" PRIu64 " of epoch %" PRIu64, fn->name, context.batch,
             context.epoch);
    return mr_callback_error(who, "collate", rc, 0, errors);
}

/* The spec that the callback has left of a field. */
static int take_spec(const struct mr_loader *ld, struct mr_slot *slot, int k, const uint64_t *dim)
{
    const struct mr_spec *most = &ld->layout.added[k].spec;
    struct mr_spec *spec = &slot->spec[k];
    *spec = *most;
    spec->var_dims = 0;
    for (int d = 0; d < most->rank; d++) {
        bool varies = most->var_dims >> d & 1;
        if (varies ? dim[d] > most->dim[d] : dim[d] != most->dim[d])
            return mr_error_set(MR_ECALLBACK,
                                "%s: batch %" PRIu64 " of epoch %" PRIu64
                                ": field '%s': dimension %d is %" PRIu64 ": expected %s%" PRIu64,
                                ld->user_collate.name, slot->info.index, slot->info.epoch,
                                most->name, d, dim[d], varies ? "at most " : "", most->dim[d]);
        spec->dim[d] = dim[d];
    }
    return mr_spec_bytes(spec, &slot->bytes[k]);
}

int mr_user_collate(const struct mr_worker *w, struct mr_slot *slot)
{
    const struct mr_loader *ld = w->ld;
    const struct mr_layout *layout = &ld->layout;
    struct mr_collate_out out[MR_MAX_FIELDS];
    uint64_t at = layout->fixed_bytes;
    for (int k = 0; k < layout->n_added; k++) {
        out[k].data = slot->host + at;
        memcpy(out[k].dim, layout->added[k].spec.dim, sizeof out[k].dim);
        at += mr_round_up(layout->added[k].most_bytes, 256);
    }
    int rc = call(w, slot, out);
    for (int k = 0; k < layout->n_added && rc == 0; k++)
        rc = take_spec(ld, slot, k, out[k].dim);
    if (rc < 0)
        return rc;
    uint64_t to = layout->fixed_bytes;
    for (int k = 0; k < layout->n_added; k++) { /* together: less is copied to the device */
        const unsigned char *from = slot->host + layout->fixed_bytes;
        for (int i = 0; i < k; i++)
            from += mr_round_up(layout->added[i].most_bytes, 256);
        slot->place[k] = to = mr_round_up(to, 256);
        memmove(slot->host + to, from, slot->bytes[k]);
        to += slot->bytes[k];
    }
    slot->end = to;
    return 0;
}
