/* A text file with one picture path per line, optionally followed by a tab and a label. */
#include "codec/image.h"
#include "dataset/pictures/photos.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct state {
    struct mr_photos photos; /* must be first */
};

struct reading {
    struct mr_dataset *ds;
    const char *path, *root;
    char *text;
    struct mr_slice *labels; /* n of them, within the text; NULL if there are no labels */
    uint64_t n_lines;        /* capacity of labels */
    uint64_t line;
    bool labelled; /* decided by the first picture's line */
};

static bool blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p == end;
}

/* [p, end): a line without its end. */
static int read_line(struct reading *r, const char *p, const char *end)
{
    const char *tab = memchr(p, '\t', (size_t)(end - p));
    uint64_t i = r->ds->n;
    if (i == 0)
        r->labelled = tab != NULL;
    if (r->labelled != (tab != NULL) || (tab && tab + 1 == end))
        return mr_error_set(MR_EFORMAT,
                            "%s:%llu: %s label after a tab: expected one on every line, "
                            "or on none",
                            r->path, (unsigned long long)r->line, r->labelled ? "no" : "a");
    if (tab && memchr(tab + 1, '\t', (size_t)(end - tab - 1)))
        return mr_error_set(MR_EFORMAT,
                            "%s:%llu: two tabs: expected PATH, or PATH, a tab and a label", r->path,
                            (unsigned long long)r->line);
    if (tab)
        r->labels[i] = (struct mr_slice){tab + 1, (size_t)(end - tab - 1)};
    return mr_photos_add(r->ds, r->root, (struct mr_slice){p, (size_t)((tab ? tab : end) - p)},
                         r->path, r->line);
}

static uint64_t count_lines(const char *p, const char *end)
{
    uint64_t n = 1;
    while ((p = memchr(p, '\n', (size_t)(end - p)))) {
        n++;
        p++;
    }
    return n;
}

static int read_lines(struct reading *r, const char *p, const char *end)
{
    r->n_lines = count_lines(p, end);
    r->labels = calloc(r->n_lines, sizeof *r->labels);
    if (!r->labels)
        return mr_error_nomem(r->path, r->n_lines * sizeof *r->labels);
    for (r->line = 1; p < end; r->line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p)), *stop = newline ? newline : end;
        const char *last = stop > p && stop[-1] == '\r' ? stop - 1 : stop;
        int rc = blank(p, last) ? 0 : read_line(r, p, last);
        if (rc < 0)
            return rc;
        p = stop + (newline != NULL);
    }
    return r->ds->n ? 0
                    : mr_error_set(MR_EFORMAT, "%s: no lines: expected a picture's path on each",
                                   r->path);
}

/* Parses an integer; false if anything else is in the text. */
static bool whole(struct mr_slice s, int64_t *out)
{
    char text[24], *end;
    if (s.length == 0 || s.length >= sizeof text || s.text[0] == ' ')
        return false;
    memcpy(text, s.text, s.length);
    text[s.length] = 0;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == 0 && errno == 0;
}

static int add_labels(struct reading *r)
{
    struct mr_spec spec = {.name = "label", .dtype = MR_I64};
    uint64_t n = r->ds->n, i = 0;
    int64_t *labels = malloc(n * sizeof *labels);
    if (!labels)
        return mr_error_nomem(r->path, n * sizeof *labels);
    while (i < n && whole(r->labels[i], &labels[i]))
        i++;
    int rc = i < n ? mr_photos_classes(r->ds, r->labels, n, labels) : 0;
    if (rc < 0) {
        free(labels);
        return rc;
    }
    return mr_photos_add_field(r->ds, &spec, labels);
}

static int open_list(struct mr_dataset *ds, const void *options)
{
    const struct mr_list_opts *o = options;
    if (!o->path || !o->path[0])
        return mr_error_set(MR_EOPTION, "list: no path: expected list:FILE");
    uint64_t n = 0, skip = 0;
    struct reading r = {.ds = ds, .path = o->path};
    char *folder = mr_photos_folder(o->path), text[80];
    if (!folder)
        return -ENOMEM;
    r.root = o->root && o->root[0] ? o->root : folder;
    mr_photos_declare(ds, &o->picture);
    int rc = mr_photos_read_text(o->path, &r.text, &n, &skip);
    if (rc < 0)
        goto free_folder;
    rc = mr_photos_root(ds, r.root, o->links);
    if (rc < 0)
        goto free_text;
    rc = read_lines(&r, r.text + skip, r.text + n);
    if (rc < 0)
        goto no_root;
    rc = r.labelled ? add_labels(&r) : 0;
    if (rc < 0)
        goto no_root;
    mr_photos_hash(ds);
    snprintf(ds->text, sizeof ds->text, "list: %.60s: %s", mr_base_name(o->path),
             mr_photos_text(ds, text, sizeof text));
no_root:
    mr_files_no_root(ds->files);
    free(r.labels);
free_text:
    free(r.text);
free_folder:
    free(folder);
    return rc;
}

#define AT(member) offsetof(struct mr_list_opts, member)
static const struct mr_option options_table[] = {
    {"path", 0, MR_OPT_STRING, AT(path), .meta = "FILE",
     .help = "A text file with one picture's path per line, and optionally a tab and its label: "
             "a whole number or a name"},
    {"root", 0, MR_OPT_STRING, AT(root), .meta = "DIR",
     .help = "Folder that paths are relative to and must be in; default: the list's folder"},
    {"links", 0, MR_OPT_ENUM, AT(links), .choices = mr_photos_links, .initial = "refuse",
     .help = "Symbolic links from inside the root to outside: refuse such a picture, or read it"},
    MR_PICTURE_OPTIONS(struct mr_list_opts, picture),
    {NULL},
};

static const char *const positional[] = {"path", NULL};

const struct mr_dataset_ops mr_dataset_list = {
    .name = "list",
    .isolates = true,
    .summary = "pictures whose paths are the lines of a text file",
    .options = options_table,
    .positional = positional,
    .opts_size = sizeof(struct mr_list_opts),
    .state_size = sizeof(struct state),
    .lacks = mr_image_lacks,
    .open = open_list,
    .close = mr_photos_close,
    .locate = mr_photos_locate,
    .decode = mr_photos_decode,
    .get_field = mr_photos_get_field,
};

void mr_list_opts_fill(struct mr_list_opts *opts, size_t size)
{
    mr_dataset_opts_fill(&mr_dataset_list, opts, size);
}

int mr_dataset_open_list(const struct mr_list_opts *opts, struct mr_dataset **out)
{
    return mr_dataset_make(&mr_dataset_list, opts, out);
}
