/* From text to ops: "cast(f32), label.one_hot(10)". */
#include "transform/transform.h"

#include <stdio.h>
#include <string.h>

static const struct mr_op_ops *const known[] = {
    &mr_op_cast,         &mr_op_scale,          &mr_op_normalize,
    &mr_op_layout,       &mr_op_flatten,        &mr_op_one_hot,
    &mr_op_pad,          &mr_op_crop,           &mr_op_random_crop,
    &mr_op_center_crop,  &mr_op_resize,         &mr_op_random_resized_crop,
    &mr_op_hflip,        &mr_op_vflip,          &mr_op_rotate,
    &mr_op_color_jitter, &mr_op_to_gray,        &mr_op_gaussian_blur,
    &mr_op_erase,        &mr_op_mixup,          &mr_op_cutmix,
    &mr_op_truncate,     &mr_op_pad_to,         &mr_op_shift,
    &mr_op_random_span,  &mr_op_drop,           &mr_op_keep,
    &mr_op_copy,         &mr_op_attention_mask, NULL,
};

const struct mr_op_ops *const *mr_ops_known(void)
{
    return known;
}

void mr_op_destroy(struct mr_op *op)
{
    if (op->args && op->ops->options)
        mr_options_free(op->ops->options, op->args);
    free(op->args);
    free(op->field);
    free(op->prefix);
    if (op->fn.close)
        op->fn.close(op->fn.user);
    if (op->multi && op->multi->fn.close)
        op->multi->fn.close(op->multi->fn.user);
    for (int i = 0; op->multi && i < op->multi->n_names; i++)
        free(op->multi->names[i]);
    if (op->multi)
        free(op->multi->names);
    free(op->multi);
    free(op->text);
    *op = (struct mr_op){0};
}

struct span {
    const char *p, *end;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct span trim(struct span s)
{
    while (s.p < s.end && blank(*s.p))
        s.p++;
    while (s.p < s.end && blank(s.end[-1]))
        s.end--;
    return s;
}

static char *copy(struct span s)
{
    return strndup(s.p, (size_t)(s.end - s.p));
}

static int width(struct span s) /* for %.*s in errors */
{
    return (int)MR_MIN(s.end - s.p, 80);
}

/* Finds the end of the op at p: a comma outside brackets, or the end of the text; NULL if brackets
 * do not match. */
static const char *op_end(const char *p)
{
    int depth = 0;
    for (; *p && (*p != ',' || depth > 0); p++) {
        depth += *p == '(' || *p == '[';
        depth -= *p == ')' || *p == ']';
        if (depth < 0)
            return NULL;
    }
    return depth == 0 ? p : NULL;
}

static int unknown_op(struct span name, uint32_t place)
{
    const char *names[MR_COUNT(known)] = {NULL};
    char word[64];
    snprintf(word, sizeof word, "%.*s", width(name), name.p);
    for (size_t i = 0; known[i]; i++)
        names[i] = known[i]->name;
    return mr_error_no_such(word, names, "", "transform %u: '%.*s': no such op", place, width(name),
                            name.p);
}

static const struct mr_op_ops *find_op(struct span name, uint32_t place)
{
    for (size_t i = 0; known[i]; i++) {
        size_t n = strlen(known[i]->name);
        if (n == (size_t)(name.end - name.p) && memcmp(name.p, known[i]->name, n) == 0)
            return known[i];
    }
    unknown_op(name, place);
    return NULL;
}

/* args: what stands between the brackets, or empty. */
static int parse_args(struct mr_op *op, struct span args)
{
    const struct mr_op_ops *ops = op->ops;
    op->args = calloc(1, ops->args_bytes ? ops->args_bytes : 1);
    char *text = copy(args);
    char who[64];
    snprintf(who, sizeof who, "transform %u: %s: ", op->place, ops->name);
    int rc = 0;
    if (!op->args || !text)
        rc = mr_error_nomem("transform", ops->args_bytes);
    if (!rc)
        rc = mr_options_init(ops->options, op->args);
    if (!rc && ops->preset)
        ops->preset(op->args);
    if (!rc && *text)
        rc = mr_options_parse(ops->options, op->args, who, text, ops->positional);
    if (!rc && ops->check)
        rc = ops->check(op);
    free(text);
    return rc;
}

/* One op of the text: "field+field.name(args)". */
struct item {
    struct span all, fields, name, args;
};

static int split(struct span all, uint32_t place, struct item *out)
{
    const char *open = memchr(all.p, '(', (size_t)(all.end - all.p));
    struct span head = trim((struct span){all.p, open ? open : all.end});
    *out = (struct item){all, {head.p, head.p}, head, {all.end, all.end}};
    if (open && all.end[-1] != ')')
        return mr_error_set(
            MR_EOPTION,
            "transform %u: '%.*s': expected name(arguments), and a comma before the next op", place,
            width(all), all.p);
    if (open)
        out->args = trim((struct span){open + 1, all.end - 1});
    for (const char *p = head.p; p < head.end; p++)
        if (*p == '.') {
            out->fields.end = p;
            out->name.p = p + 1;
        }
    if (out->name.p == head.end)
        return mr_error_set(MR_EOPTION, "transform %u: '%.*s': not the name of an op", place,
                            width(all), all.p);
    return 0;
}

/* The op on one of its fields, which may be empty; out is zeroed. The caller destroys it, also on
 * failure. */
static int parse_op(const struct item *item, struct span field, uint32_t place, struct mr_op *out)
{
    out->place = place;
    out->ops = find_op(item->name, place);
    if (!out->ops)
        return MR_EOPTION;
    out->text = copy((struct span){item->name.p, item->all.end});
    out->field = field.end > field.p ? copy(field) : NULL;
    if (!out->text || (field.end > field.p && !out->field))
        return mr_error_nomem("transform", (uint64_t)(item->all.end - item->all.p));
    return parse_args(out, item->args);
}

/* The first of an op's fields, up to a '+'. */
static struct span first_field(struct span fields)
{
    const char *plus = memchr(fields.p, '+', (size_t)(fields.end - fields.p));
    return trim((struct span){fields.p, plus ? plus : fields.end});
}

/* An op on several fields is as many ops of one place. */
static int parse_fields(const struct item *item, uint32_t place, struct mr_op *out, uint32_t cap,
                        uint32_t *n_out)
{
    struct span rest = item->fields;
    bool several = memchr(rest.p, '+', (size_t)(rest.end - rest.p)) != NULL;
    for (bool more = true; more; out++) {
        struct span field = first_field(rest);
        const char *plus = memchr(rest.p, '+', (size_t)(rest.end - rest.p));
        more = plus != NULL;
        if (several && field.p == field.end)
            return mr_error_set(MR_EOPTION, "transform %u: '%.*s': a field is missing beside a '+'",
                                place, width(item->all), item->all.p);
        if (cap-- == 0)
            return mr_error_set(MR_ELIMIT,
                                "transform %u: a chain has at most %d ops, each counted once for "
                                "each of its fields",
                                place, MR_MAX_OPS);
        *out = (struct mr_op){.follows = rest.p != item->fields.p};
        ++*n_out;
        int rc = parse_op(item, field, place, out);
        if (rc < 0)
            return rc;
        if (several && !out->ops->several)
            return mr_op_error(out, MR_EOPTION,
                               "does not work on several fields at once: write it once for each");
        rest.p = more ? plus + 1 : rest.end;
    }
    return 0;
}

/* The fields of an op as they were written, for the chain's text. */
static int keep_prefix(const struct item *item, struct mr_op *op)
{
    op->prefix = op->field ? copy(item->fields) : NULL;
    return op->field && !op->prefix ? mr_error_nomem("transform", 0) : 0;
}

int mr_ops_parse(const char *text, uint32_t place, struct mr_op *out, uint32_t cap, uint32_t *n_out)
{
    *n_out = 0;
    if (trim((struct span){text, text + strlen(text)}).p == text + strlen(text))
        return 0; /* nothing but blanks: no ops */
    for (const char *p = text;; p++) {
        const char *end = op_end(p);
        struct item item;
        if (!end)
            return mr_error_set(MR_EOPTION, "transform %u: '%.80s': brackets do not match", place,
                                p);
        struct span all = trim((struct span){p, end});
        if (all.p == all.end)
            return mr_error_set(MR_EOPTION,
                                "transform %u: an op is missing at byte %zu of '%.200s'", place,
                                (size_t)(p - text), text);
        int rc = split(all, place, &item);
        uint32_t first = *n_out;
        if (rc == 0)
            rc = parse_fields(&item, place, out + first, cap - first, n_out);
        if (rc == 0)
            rc = keep_prefix(&item, &out[first]);
        if (rc < 0)
            return rc;
        place++;
        p = end;
        if (!*p)
            return 0;
    }
}
