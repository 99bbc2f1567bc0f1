/* What the frame of the experiments writes: the table, the JSON object, the chart. */
#include "bench/frame.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *bench_cell(const struct bench_column *c, double v, char buf[CLI_HUMAN])
{
    if (isnan(v))
        return "-";
    switch (c->format) {
    case BENCH_COUNT:
        return cli_count(v, buf);
    case BENCH_BYTES:
        return cli_bytes(v > 0 ? (uint64_t)v : 0, buf);
    case BENCH_RATE:
        return cli_rate(v, buf);
    case BENCH_SHARE:
        return cli_fixed(100 * v, c->digits ? c->digits : 1, "%", buf);
    default:
        return cli_fixed(v, c->digits, c->suffix ? c->suffix : "", buf);
    }
}

bool bench_is_shown(const struct bench_column *c, int part)
{
    return c->head && (!c->parts || c->parts >> part & 1);
}

static struct cli_table *create_table(const struct bench *b, int part)
{
    char heads[512];
    size_t used = 0;
    bool first = true;
    for (int c = 0; c < b->n_columns; c++) {
        if (!bench_is_shown(&b->columns[c], part) || used >= sizeof heads)
            continue;
        used += (size_t)snprintf(heads + used, sizeof heads - used, "%s%s", first ? "" : "\t",
                                 b->columns[c].head);
        first = false;
    }
    return cli_table_create(heads);
}

static void add_row(const struct bench *b, struct cli_table *table, const struct bench_row *row)
{
    char line[1024], buf[CLI_HUMAN];
    size_t used = 0;
    bool first = true;
    for (int c = 0; c < b->n_columns; c++) {
        const struct bench_column *column = &b->columns[c];
        const char *text = column->format != BENCH_TEXT ? bench_cell(column, row->v[c], buf)
                           : row->text[c]               ? row->text[c]
                                                        : "";
        if (!bench_is_shown(column, row->part) || used >= sizeof line)
            continue;
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", first ? "" : "\t", text);
        first = false;
    }
    cli_table_row(table, "%s", line);
}

bool bench_is_empty(const struct bench *b, int part)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].part == part && !b->rows[i].left_out[0])
            return false;
    return true;
}

static void print_part(const struct bench *b, int part)
{
    if (bench_is_empty(b, part))
        return;
    struct cli_table *table = create_table(b, part);
    if (b->parts)
        printf("%s%s\n", part ? "\n" : "", b->parts[part]);
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].part == part && !b->rows[i].left_out[0])
            add_row(b, table, &b->rows[i]);
    cli_table_print(table, stdout, 2);
}

bool bench_left_out(const struct bench *b, int i, char *names, size_t bytes)
{
    const char *why = b->rows[i].left_out;
    size_t used = 0;
    if (!why[0])
        return false;
    for (int k = 0; k < i; k++)
        if (strcmp(b->rows[k].left_out, why) == 0)
            return false;
    names[0] = 0;
    for (int k = i; k < b->n_rows && used < bytes; k++) {
        bool said = strcmp(b->rows[k].left_out, why) != 0;
        for (int j = i; j < k && !said; j++)
            said = strcmp(b->rows[j].left_out, why) == 0 &&
                   strcmp(b->rows[j].name, b->rows[k].name) == 0;
        if (!said)
            used += (size_t)snprintf(names + used, bytes - used, "%s%s", used ? "; " : "",
                                     b->rows[k].name);
    }
    return true;
}

static int print_text(const struct bench *b)
{
    char names[BENCH_LEFT_OUT];
    b->above(b);
    printf("\n");
    for (int part = 0; b->parts ? b->parts[part] != NULL : part == 0; part++)
        print_part(b, part);
    printf("\n");
    for (int i = 0; i < b->n_rows && !b->interrupted; i++)
        if (bench_left_out(b, i, names, sizeof names))
            printf("  %s left out: %s\n", names, b->rows[i].left_out);
    if (b->below && !b->interrupted)
        b->below(b);
    if (b->verdict[0])
        printf("%s\n", b->verdict);
    return CLI_OK;
}

static void json_value(struct mr_json *json, const char *key, const struct bench_column *c,
                       double v, const char *text)
{
    if (c->format == BENCH_TEXT) {
        mr_json_string(json, key, text);
    } else if (isnan(v)) {
        mr_json_null(json, key);
    } else if (c->format == BENCH_FLAG) {
        mr_json_bool(json, key, v != 0);
    } else if ((c->format == BENCH_BYTES || c->format == BENCH_COUNT) && v >= 0 && v < 0x1p53 &&
               v == floor(v)) {
        mr_json_uint(json, key, (uint64_t)v);
    } else {
        mr_json_double(json, key, v);
    }
}

/* Unknown, and no null of JSON's. */
static bool is_left_out(const struct bench_column *c, double v, const char *text)
{
    return !c->null && (c->format == BENCH_TEXT ? !text : isnan(v) != 0);
}

/* Members of one object, "busy_ms.h2d", "busy_ms.d2h", follow each other. */
static void json_row(const struct bench *b, struct mr_json *json, const struct bench_row *row)
{
    char open[64] = "";
    mr_json_object(json, NULL);
    for (int c = 0; c < b->n_columns; c++) {
        const char *key = b->columns[c].key, *dot = key ? strchr(key, '.') : NULL;
        size_t n = dot ? (size_t)(dot - key) : 0;
        if (!key || is_left_out(&b->columns[c], row->v[c], row->text[c]))
            continue;
        if (open[0] && (strlen(open) != n || strncmp(open, key, n) != 0)) {
            mr_json_object_end(json);
            open[0] = 0;
        }
        if (n && !open[0]) {
            snprintf(open, sizeof open, "%.*s", (int)n, key);
            mr_json_object(json, open);
        }
        json_value(json, dot ? dot + 1 : key, &b->columns[c], row->v[c], row->text[c]);
    }
    if (open[0])
        mr_json_object_end(json);
    if (row->left_out[0])
        mr_json_string(json, "left_out", row->left_out);
    mr_json_object_end(json);
}

static int print_json(const struct bench *b)
{
    struct mr_json *json = cli_json_begin(b->command->name);
    if (!json)
        return CLI_FAILED;
    if (b->info.name[0]) {
        mr_json_string(json, "device", b->info.name);
        mr_json_string(json, "model", b->info.model);
    }
    mr_json_array(json, b->rows_key);
    for (int i = 0; i < b->n_rows; i++)
        json_row(b, json, &b->rows[i]);
    mr_json_array_end(json);
    if (b->interrupted)
        mr_json_bool(json, "interrupted", true);
    if (b->json)
        b->json(b, json);
    return cli_json_end_config(json, b->command->options, b->values);
}

int bench_show(const struct bench *b)
{
    int code = b->plot ? bench_draw(b) : CLI_OK;
    return code != CLI_OK ? code : cli.json ? print_json(b) : print_text(b);
}

void bench_print_device(const struct bench *b)
{
    printf("%s%s%s", b->info.name, b->info.model[0] ? ": " : "", b->info.model);
}
