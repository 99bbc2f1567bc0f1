/* millrace inspect --sheet: samples, as they are or through a chain, on a contact sheet. */
#include "inspect/inspect.h"
#include "inspect/sheet.h"
#include "pipeline.h"
#include "png.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROW_BYTES (1ull << 32)

/* Which fields are drawn; points -1: none. */
struct fields {
    int picture, points;
};

static bool is_points(const struct mr_spec *spec)
{
    return strcmp(spec->name, "points") == 0 && spec->dtype == MR_F32 && spec->rank == 2 &&
           spec->dim[1] == 2;
}

/* specs[f] of one sample. */
static int find_fields(const struct mr_spec *const *specs, int n, struct fields *out)
{
    char text[256];
    *out = (struct fields){-1, -1};
    for (int f = n - 1; f >= 0; f--) {
        if (is_points(specs[f]))
            out->points = f;
        else if (sheet_drawable(specs[f]))
            out->picture = f;
    }
    if (out->picture >= 0)
        return CLI_OK;
    cli_fail("--sheet: no field is a picture; the first is %s",
             mr_spec_format(specs[0], text, sizeof text));
    return CLI_FAILED;
}

/* at: a tile; of clips, a row. */
static void draw(struct sheet *sheet, uint32_t at, const struct fields *fields,
                 const struct mr_spec *const *specs, void *const *data,
                 uint64_t (*dim)[MR_MAX_RANK])
{
    if (sheet_is_clip(specs[fields->picture])) {
        sheet_draw_strip(sheet, at, specs[fields->picture], dim[fields->picture],
                         data[fields->picture]);
        return;
    }
    const float *points = fields->points >= 0 ? data[fields->points] : NULL;
    sheet_draw(sheet, at, specs[fields->picture], dim[fields->picture], data[fields->picture],
               points, points ? dim[fields->points][0] : 0);
}

/* ---- samples as they are ---- */

static int make_rows(const struct mr_spec *const *specs, int n, void **row)
{
    for (int f = 0; f < n; f++) {
        uint64_t bytes;
        int rc = mr_spec_bytes(specs[f], &bytes);
        if (rc)
            return cli_error(rc);
        row[f] = bytes <= MAX_ROW_BYTES ? malloc(bytes ? bytes : 1) : NULL;
        if (!row[f])
            return cli_fail("out of memory (%llu bytes for one sample)", (unsigned long long)bytes);
    }
    return CLI_OK;
}

static void tell_bad(uint64_t index, const char *reason, uint64_t *n_bad)
{
    cli_warn("sample %llu is bad: %s", (unsigned long long)index, reason);
    ++*n_bad;
}

static int draw_plain(struct mr_dataset *ds, const struct inspect_sheet *o, struct sheet *sheet,
                      uint64_t n, uint64_t *n_bad)
{
    const struct mr_spec *specs[MR_MAX_FIELDS] = {NULL};
    void *row[MR_MAX_FIELDS] = {NULL};
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    struct fields fields;
    int n_fields = 0;
    while (n_fields < MR_MAX_FIELDS && (specs[n_fields] = mr_dataset_field(ds, n_fields)))
        n_fields++;
    int code = find_fields(specs, n_fields, &fields);
    if (code == CLI_OK)
        code = make_rows(specs, n_fields, row);
    for (uint64_t i = 0; code == CLI_OK && i < n; i++) {
        int rc = mr_dataset_read(ds, o->index + i, row, dim);
        if (rc == MR_ECANCELLED)
            code = cli_error(rc);
        else if (rc < 0)
            tell_bad(o->index + i, mr_last_error(), n_bad);
        else
            draw(sheet, (uint32_t)i, &fields, specs, row, dim);
    }
    for (int f = 0; f < n_fields; f++)
        free(row[f]);
    return code;
}

/* ---- samples through a chain ---- */

static int open_feed(struct mr_dataset *ds, const struct inspect_sheet *o, uint64_t n,
                     uint64_t epochs, struct cli_pipeline *p)
{
    struct mr_sampler_opts order;
    struct mr_loader_opts opts = *o->loader;
    mr_sampler_opts_init(&order);
    uint64_t *indices = malloc(n * sizeof *indices);
    if (!indices)
        return mr_error_set(-ENOMEM, "out of memory");
    for (uint64_t i = 0; i < n; i++)
        indices[i] = o->index + i;
    order.kind = MR_SAMPLER_SUBSET;
    order.indices = indices;
    order.n_indices = n;
    opts.batch_size = 1;
    opts.epochs = epochs;
    opts.bad = MR_BAD_SKIP;
    *p = (struct cli_pipeline){.ds = ds, .shared = true};
    int rc = cli_pipeline_chain(p, o->transform);
    if (rc < 0)
        goto out;
    rc = mr_sampler_create(&order, mr_dataset_length(ds), &p->sampler);
    if (rc < 0)
        goto out;
    rc = cli_pipeline_start(p, &opts);
out:
    free(indices);
    return rc;
}

/* One sample's picture of a batch of one. */
static void draw_batch(const struct mr_batch *batch, struct mr_loader *loader,
                       const struct fields *fields, uint32_t at, struct sheet *sheet)
{
    const struct mr_spec *specs[MR_MAX_FIELDS] = {NULL};
    void *data[MR_MAX_FIELDS] = {NULL};
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK] = {{0}};
    for (int f = 0; f < batch->n_fields; f++) {
        specs[f] = mr_loader_field(loader, f);
        data[f] = batch->field[f].data;
        memcpy(dim[f], batch->field[f].spec.dim + 1, sizeof dim[f] - sizeof dim[f][0]);
    }
    draw(sheet, at, fields, specs, data, dim);
}

/* vary: row r shows sample r in as many epochs as there are columns; of clips, the first one in as
 * many as there are rows. */
static int draw_changed(struct mr_dataset *ds, const struct inspect_sheet *o, struct sheet *sheet,
                        uint64_t n, bool clips, uint64_t *n_bad)
{
    struct cli_pipeline feed = {0};
    const struct mr_spec *specs[MR_MAX_FIELDS] = {NULL};
    struct fields fields;
    struct mr_batch batch = {.size = sizeof batch};
    uint64_t samples = !o->vary ? n : clips ? 1 : n > o->rows ? o->rows : n;
    uint64_t epochs = !o->vary ? 1 : clips ? o->rows : o->columns;
    int n_fields = 0, rc = open_feed(ds, o, samples, epochs, &feed);
    int code = rc < 0 ? cli_error(rc) : CLI_OK;
    while (code == CLI_OK && n_fields < MR_MAX_FIELDS &&
           (specs[n_fields] = mr_loader_field(feed.loader, n_fields)))
        n_fields++;
    if (code == CLI_OK)
        code = find_fields(specs, n_fields, &fields);
    while (code == CLI_OK && (rc = mr_loader_next(feed.loader, NULL, &batch)) > 0) {
        uint64_t i = batch.index;
        if (batch.n == 1)
            draw_batch(&batch, feed.loader, &fields,
                       (uint32_t)(!o->vary ? i
                                  : clips  ? batch.epoch
                                           : i * o->columns + batch.epoch),
                       sheet);
        mr_loader_release(feed.loader, &batch, NULL);
        if (cli_interrupted())
            code = cli_fail("interrupted");
    }
    if (code == CLI_OK && rc < 0)
        code = cli_error(rc);
    struct mr_bad_sample bad = {.size = sizeof bad};
    for (uint64_t i = 0; code == CLI_OK && mr_loader_bad(feed.loader, i, &bad) == 1; i++)
        tell_bad(bad.index, bad.reason, n_bad);
    cli_pipeline_close(&feed);
    return code;
}

/* Frames of a sample, when what is drawn are clips; else 0. */
static uint64_t clip_frames(const struct mr_dataset *ds)
{
    for (int f = 0; f < mr_dataset_fields(ds); f++) {
        const struct mr_spec *spec = mr_dataset_field(ds, f);
        if (sheet_drawable(spec))
            return sheet_is_clip(spec) ? spec->dim[0] : 0;
    }
    return 0;
}

int inspect_draw_sheet(struct mr_dataset *ds, const struct inspect_sheet *o)
{
    struct sheet sheet;
    uint64_t frames = clip_frames(ds), length = mr_dataset_length(ds), n_bad = 0;
    uint64_t n = frames ? o->rows : (uint64_t)o->rows * o->columns;
    bool changed = (o->transform && o->transform[0]) || (frames && o->vary);
    if (o->index >= length)
        return cli_misuse("--index %llu: there are %llu samples", (unsigned long long)o->index,
                          (unsigned long long)length);
    n = n < length - o->index ? n : length - o->index;
    uint32_t rows = frames && !o->vary && n < o->rows ? (uint32_t)n : o->rows;
    uint32_t columns = frames && frames < o->columns ? (uint32_t)frames : o->columns;
    int code = sheet_create(&sheet, rows, columns, o->tile);
    if (code == CLI_OK)
        code = changed ? draw_changed(ds, o, &sheet, n, frames > 0, &n_bad)
                       : draw_plain(ds, o, &sheet, n, &n_bad);
    if (code == CLI_OK)
        code =
            cli_png_write(o->path, o->force, sheet.rgb, sheet_height(&sheet), sheet_width(&sheet));
    sheet_destroy(&sheet);
    return code == CLI_OK && n_bad > 0 ? CLI_FAILED : code;
}
