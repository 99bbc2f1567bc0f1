/* Grids and blocks of kernels: six numbers that become one, and texts. */
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>

static uint64_t pair_at(struct sqlite3_stmt *stmt, int column)
{
    return (uint64_t)(uint32_t)sqlite3_column_int64(stmt, column) << 32 |
           (uint32_t)sqlite3_column_int64(stmt, column + 1);
}

uint32_t mr_shapes_put(struct mr_shapes *s, struct sqlite3_stmt *stmt, int column)
{
    uint32_t pairs[3] = {0}, shape = MR_NONE;
    bool ok = true;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < 3 && ok; i++) {
        pairs[i] = mr_keymap_put(&s->pairs, (struct mr_key){pair_at(stmt, column + 2 * i), 0});
        ok = pairs[i] != MR_NONE;
    }
    if (ok)
        shape = mr_keymap_put(&s->shapes,
                              (struct mr_key){(uint64_t)pairs[0] << 32 | pairs[1], pairs[2]});
    pthread_mutex_unlock(&s->lock);
    return shape;
}

void mr_shapes_write(const uint32_t v[6], struct mr_shape_text *out)
{
    snprintf(out->grid, sizeof out->grid, "%4" PRIu32 " %4" PRIu32 " %4" PRIu32, v[0], v[1], v[2]);
    snprintf(out->block, sizeof out->block, "%4" PRIu32 " %4" PRIu32 " %4" PRIu32, v[3], v[4],
             v[5]);
}

int mr_shapes_tell(struct mr_shapes *s)
{
    free(s->texts);
    s->texts = malloc((s->shapes.n + 1ull) * sizeof *s->texts);
    if (!s->texts)
        return mr_error_nomem("shapes of kernels", s->shapes.n * sizeof *s->texts);
    for (uint32_t i = 0; i < s->shapes.n; i++) {
        struct mr_key key = s->shapes.keys[i];
        const uint32_t pairs[3] = {(uint32_t)(key.a >> 32), (uint32_t)key.a, (uint32_t)key.b};
        uint32_t values[6];
        for (int k = 0; k < 3; k++) {
            values[2 * k] = (uint32_t)(s->pairs.keys[pairs[k]].a >> 32);
            values[2 * k + 1] = (uint32_t)s->pairs.keys[pairs[k]].a;
        }
        mr_shapes_write(values, &s->texts[i]);
    }
    return 0;
}

void mr_shapes_free(struct mr_shapes *s)
{
    mr_keymap_free(&s->pairs);
    mr_keymap_free(&s->shapes);
    free(s->texts);
    pthread_mutex_destroy(&s->lock);
}
