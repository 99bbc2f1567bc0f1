/* Option tables that take rows of the loader's table, and the structs that they fill. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A table with its rows filled in. Made once, on first use, and kept: help, man pages and JSON read
 * it, too. The main thread's. */
struct built {
    const struct mr_option *from;
    struct built *next;
    struct mr_option row[];
};

static struct built *all;

static bool is_of_loader(const struct mr_option *row)
{
    return row->type == CLI_LOADER;
}

static bool has(const struct mr_option *table, const char *name, char key)
{
    for (; table->name; table++)
        if ((name && strcmp(table->name, name) == 0) || (key && table->key == key))
            return true;
    return false;
}

static bool excluded(const struct mr_option *rest, const char *name)
{
    for (const char *const *x = rest->choices; x && *x; x++)
        if (strcmp(*x, name) == 0)
            return true;
    return false;
}

/* The loader's row, with what the command's says differently. */
static struct mr_option merge(const struct mr_option *of, const struct mr_option *with)
{
    struct mr_option row = *of;
    row.offset += with->offset;
    row.key = with->key ? with->key : row.key;
    row.initial = with->initial ? with->initial : row.initial;
    row.max = with->max > 0 ? with->max : row.max;
    row.help = with->help ? with->help : row.help;
    row.group = with->group ? with->group : row.group;
    return row;
}

/* The rows that no row of the table names. A key that the command has is the command's. */
static size_t add_rest(struct mr_option *out, const struct mr_option *table,
                       const struct mr_option *rest)
{
    size_t n = 0;
    for (const struct mr_option *o = mr_loader_options(); o->name; o++) {
        if (has(table, o->name, 0) || excluded(rest, o->name))
            continue;
        out[n] = merge(o, rest);
        if (has(table, NULL, out[n].key))
            out[n].key = 0;
        n++;
    }
    return n;
}

static size_t add(struct mr_option *out, const struct mr_option *table, const struct mr_option *row)
{
    const struct mr_option *of = mr_loader_options();
    if (!is_of_loader(row)) {
        *out = *row;
        return 1;
    }
    if (strcmp(row->name, CLI_REST) == 0)
        return add_rest(out, table, row);
    while (of->name && strcmp(of->name, row->name) != 0)
        of++;
    if (!of->name)
        abort(); /* a misspelled row: each test of the command finds it */
    *out = merge(of, row);
    return 1;
}

static size_t count(const struct mr_option *table)
{
    size_t n = 0;
    while (table[n].name)
        n++;
    return n;
}

const struct mr_option *cli_options(const struct mr_option *table)
{
    size_t n = 0, at = 0;
    while (table[n].name && !is_of_loader(&table[n]))
        n++;
    if (!table[n].name)
        return table;
    for (const struct built *b = all; b; b = b->next)
        if (b->from == table)
            return b->row;
    size_t room = count(table) + count(mr_loader_options()) + 1;
    struct built *b = calloc(1, sizeof *b + room * sizeof b->row[0]);
    if (!b) {
        mr_error_set(-ENOMEM, "out of memory");
        return NULL;
    }
    for (const struct mr_option *row = table; row->name; row++)
        at += add(&b->row[at], table, row);
    b->from = table;
    b->next = all;
    all = b;
    return b->row;
}

int cli_options_init(const struct mr_option *table, void *values)
{
    const struct mr_option *built = cli_options(table), *row = table;
    if (!built)
        return -ENOMEM;
    while (row->name && !is_of_loader(row))
        row++;
    if (row->name) /* what has no row, too */
        mr_loader_opts_init((struct mr_loader_opts *)((char *)values + row->offset));
    return mr_options_init(built, values);
}
