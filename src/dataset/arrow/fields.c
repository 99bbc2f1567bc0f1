/* Which columns of an Arrow table are read, and as which fields. */
#include "dataset/arrow/arrow.h"

#include <stdio.h>
#include <string.h>

static int check_schema(const char *name, const struct ArrowSchema *schema)
{
    if (!schema || !schema->release)
        return mr_error_set(MR_EMISUSE, "%s: the schema is NULL or released", name);
    if (!schema->format || strcmp(schema->format, "+s") != 0)
        return mr_error_set(MR_EUNSUPPORTED,
                            "%s: Arrow format \"%.20s\": expected a table, a struct \"+s\"", name,
                            schema->format ? schema->format : "");
    if (schema->n_children < 1 || schema->n_children > INT32_MAX || !schema->children)
        return mr_error_set(MR_ELIMIT, "%s: %lld columns: expected 1 or more", name,
                            (long long)schema->n_children);
    for (int64_t c = 0; c < schema->n_children; c++)
        if (!schema->children[c] || !schema->children[c]->release)
            return mr_error_set(MR_EMISUSE, "%s: the schema of column %lld is NULL or released",
                                name, (long long)c);
    return 0;
}

static int find_child(const struct ArrowSchema *schema, const char *name, size_t bytes)
{
    for (int64_t c = 0; c < schema->n_children; c++) {
        const char *has = schema->children[c] ? schema->children[c]->name : NULL;
        if (has && strlen(has) == bytes && memcmp(has, name, bytes) == 0)
            return (int)c;
    }
    return -1;
}

/* "image.bytes": column and member. Returns whether there are both. */
static bool find_member(const struct ArrowSchema *schema, const char *path, int *column,
                        int *member)
{
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        int c = find_child(schema, path, (size_t)(dot - path));
        const struct ArrowSchema *in = c >= 0 ? schema->children[c] : NULL;
        if (!in || !in->format || strcmp(in->format, "+s") != 0 || in->n_children < 1 ||
            in->n_children > INT32_MAX || !in->children)
            continue;
        *column = c;
        *member = find_child(in, dot + 1, strlen(dot + 1));
        if (*member >= 0)
            return true;
    }
    return false;
}

static int find_column(const char *name, const struct ArrowSchema *schema,
                       const struct mr_arrow_column *wanted, uint64_t k, int *column, int *member)
{
    *member = -1;
    if (!wanted->path)
        return mr_error_set(MR_EMISUSE, "%s: column[%llu].path is NULL", name,
                            (unsigned long long)k);
    *column = find_child(schema, wanted->path, strlen(wanted->path));
    if (*column >= 0 || find_member(schema, wanted->path, column, member))
        return 0;
    return mr_error_set(MR_EMISUSE,
                        "%s: no column '%.80s': expected one of the table's %lld: '%.40s', ...",
                        name, wanted->path, (long long)schema->n_children,
                        schema->children[0]->name ? schema->children[0]->name : "");
}

/* Cuts a name at a character's boundary. n: the field's number, which makes it unlike the others.
 */
static int set_name(const char *name, struct mr_spec field[], int n, const char *from)
{
    size_t most = MR_NAME_BYTES - 1, bytes = strlen(from);
    bool cut = bytes > most;
    if (bytes == 0)
        return mr_error_set(MR_ELIMIT, "%s: column %d: expected a name of 1 byte or more", name, n);
    bytes = MR_MIN(bytes, most);
    while (cut && bytes > 0 && ((unsigned char)from[bytes] & 0xc0) == 0x80)
        bytes--;
    memset(field[n].name, 0, MR_NAME_BYTES);
    memcpy(field[n].name, from, bytes);
    for (int f = 0; f < n; f++) {
        if (strcmp(field[f].name, field[n].name) != 0)
            continue;
        if (!cut) /* both have this name, or the other one is cut to it: the user decides */
            return mr_error_set(MR_EMISUSE, "%s: two fields have the name '%s'", name,
                                field[n].name);
        bytes = MR_MIN(bytes, most - 3);
        while (bytes > 0 && ((unsigned char)from[bytes] & 0xc0) == 0x80)
            bytes--;
        snprintf(field[n].name + bytes, MR_NAME_BYTES - bytes, "~%d", n);
        f = -1;
        cut = false;
    }
    return 0;
}

static int set_picture(struct mr_dataset *ds, const struct mr_arrow_opts *o, int f,
                       const char *name, struct mr_arrow_type *type)
{
    if (ds->field[f].kind != MR_KIND_BYTES || ds->picture >= 0)
        return mr_error_set(MR_EMISUSE,
                            "%s: column '%s' as a picture: expected one column of binary", name,
                            ds->field[f].name);
    type->picture = true;
    ds->field[f].kind = MR_KIND_TENSOR;
    mr_picture_declare(ds, f, &o->picture);
    return 0;
}

static int open_field(struct mr_dataset *ds, const struct mr_arrow_opts *o, int f,
                      struct mr_arrow_fields *fields)
{
    const struct mr_arrow_column *wanted = o->column ? &o->column[f] : NULL;
    struct mr_arrow_type *type = &fields->type[f];
    int column = f, member = -1, rc;
    if (wanted &&
        (rc = find_column(fields->name, o->schema, wanted, (uint64_t)f, &column, &member)) < 0)
        return rc;
    const struct ArrowSchema *schema = o->schema->children[column];
    const char *path = wanted ? wanted->path : schema->name ? schema->name : "";
    rc = mr_arrow_type_read(fields->name, path, member < 0 ? schema : schema->children[member],
                            type, &ds->field[f]);
    if (rc < 0)
        return rc;
    type->column = column;
    type->member = member;
    type->n_members = member < 0 ? 0 : schema->n_children;
    rc = set_name(fields->name, ds->field, f, wanted && wanted->name ? wanted->name : path);
    if (rc < 0)
        return rc;
    fields->range[f] = (struct mr_arrow_range){UINT64_MAX, 0};
    return wanted && wanted->picture ? set_picture(ds, o, f, fields->name, type) : 0;
}

int mr_arrow_fields_open(struct mr_dataset *ds, const struct mr_arrow_opts *o,
                         struct mr_arrow_fields *fields)
{
    const char *name = o->name && o->name[0] ? o->name : "arrow";
    fields->name = strdup(name);
    if (!fields->name)
        return mr_error_nomem(name, strlen(name) + 1);
    int rc = check_schema(name, o->schema);
    if (rc < 0)
        return rc;
    uint64_t n = o->column ? o->n_columns : (uint64_t)o->schema->n_children;
    if (n < 1 || n > MR_MAX_FIELDS)
        return mr_error_set(MR_ELIMIT, "%s: %llu columns: expected 1 to %d%s", name,
                            (unsigned long long)n, MR_MAX_FIELDS,
                            o->column ? "" : "; choose some of them");
    fields->n = ds->n_fields = (int)n;
    fields->n_columns = o->schema->n_children;
    for (int f = 0; f < fields->n; f++) {
        rc = open_field(ds, o, f, fields);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void mr_arrow_fields_close(struct mr_arrow_fields *fields)
{
    free(fields->name);
}
