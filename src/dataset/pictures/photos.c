/* Pictures that are one file each: file names, class names, and the rows of the other fields. */
#include "dataset/pictures/photos.h"

#include "base/secret.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct mr_photos *photos(const struct mr_dataset *ds)
{
    return ds->state;
}

void mr_photos_declare(struct mr_dataset *ds, const struct mr_picture_opts *opts)
{
    mr_picture_declare(ds, 0, opts);
    strcpy(ds->field[0].name, "image");
    ds->n_fields = 1;
}

int mr_photos_add_field(struct mr_dataset *ds, const struct mr_spec *spec, void *rows)
{
    int f = ds->n_fields;
    uint64_t bytes;
    int rc = mr_spec_bytes(spec, &bytes);
    if (rc < 0)
        goto fail;
    if (f == MR_MAX_FIELDS) {
        rc = mr_error_set(MR_EMISUSE, "%s: more than %d fields", spec->name, MR_MAX_FIELDS);
        goto fail;
    }
    ds->field[f] = *spec;
    photos(ds)->field[f].rows = rows;
    photos(ds)->field[f].bytes = bytes;
    ds->n_fields++;
    return 0;
fail:
    free(rows);
    return rc;
}

int mr_photos_add_text(struct mr_dataset *ds, const struct mr_spec *spec, char *text, uint64_t *at)
{
    int rc = mr_photos_add_field(ds, spec, text);
    if (rc < 0)
        free(at);
    else
        photos(ds)->field[ds->n_fields - 1].at = at;
    return rc;
}

/* ---- names ---- */

bool mr_photos_named(const char *name, size_t length)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png", ".webp"};
    for (size_t i = 0; i < MR_COUNT(ends); i++) {
        size_t n = strlen(ends[i]);
        if (length > n && strncasecmp(name + length - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

/* Returns whether the path has a component "..". */
static bool climbs(struct mr_slice name)
{
    const char *p = name.text, *end = name.text + name.length;
    while (p < end) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        size_t n = (size_t)((slash ? slash : end) - p);
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return true;
        p += n + 1;
    }
    return false;
}

/* The length of root without trailing slashes; 0 for "/". */
static size_t root_length(const char *root)
{
    size_t n = strlen(root);
    while (n > 0 && root[n - 1] == '/')
        n--;
    return n;
}

/* The part of a name below the root: the name itself unless it begins with the root. */
static struct mr_slice below(const char *root, struct mr_slice name)
{
    size_t n = root_length(root);
    if ((root[0] == '/' || strstr(root, "://")) && name.length > n + 1 &&
        memcmp(name.text, root, n) == 0 && name.text[n] == '/')
        return (struct mr_slice){name.text + n + 1, name.length - n - 1};
    return name;
}

static bool has_scheme(struct mr_slice name)
{
    return memmem(name.text, name.length, "://", 3) != NULL;
}

/* The same if the root is a URL with hidden credentials, which the URLs in the list contain in
 * full. */
static struct mr_slice below_url(const char *root, struct mr_slice name)
{
    struct mr_slice rest = below(root, name);
    if (rest.text != name.text || !has_scheme(name))
        return rest;
    char *url = mr_url_reveal(root);
    if (url)
        rest = below(url, name);
    free(url);
    return rest;
}

/* Reports an invalid name with file and line. path_bytes: length of the full path. */
static int refuse(const char *root, struct mr_slice name, const char *file, uint64_t line,
                  int path_bytes)
{
    char at[32] = "", shown[200];
    mr_secret_mask(name.text, name.length, shown, sizeof shown);
    if (line)
        snprintf(at, sizeof at, ":%llu", (unsigned long long)line);
    if (name.length == 0)
        return mr_error_set(MR_EFORMAT, "%s%s: no path: expected a picture's", file, at);
    if (path_bytes)
        return mr_error_set(MR_ELIMIT, "%s%s: '%s...': a path of %d bytes: expected at most %d",
                            file, at, shown, path_bytes, PATH_MAX - 1);
    return mr_error_set(MR_EFORMAT,
                        "%s%s: '%s' is outside the root folder '%s': expected a path below it, "
                        "without '..' (root=DIR sets another)",
                        file, at, shown, root);
}

/* Writes root/rest. Below an http root a name is percent-encoded, unless the list gave the whole
 * URL. Returns the length, which may exceed the buffer, or a negative error. */
static int join(const char *root, struct mr_slice rest, bool was_url, char path[PATH_MAX])
{
    int front = (int)MR_MIN(root_length(root), PATH_MAX),
        bytes = (int)MR_MIN(rest.length, INT_MAX / 4);
    if (strncmp(root, "http://", 7) != 0 && strncmp(root, "https://", 8) != 0)
        return snprintf(path, PATH_MAX, "%.*s/%.*s", front, root, bytes, rest.text);
    char *encoded = mr_url_encode(rest.text, (size_t)bytes, was_url ? MR_URL_WHOLE : MR_URL_PATH);
    if (!encoded)
        return mr_error_nomem(root, rest.length);
    int n = snprintf(path, PATH_MAX, "%.*s/%s", front, root, encoded);
    free(encoded);
    return n;
}

const char *const mr_photos_links[] = {"refuse", "follow", NULL};

int mr_photos_root(struct mr_dataset *ds, const char *root, int links)
{
    bool none = links == MR_LINKS_FOLLOW || mr_store_is_remote(root);
    return none ? 0 : mr_files_set_root(ds->files, root);
}

int mr_photos_add(struct mr_dataset *ds, const char *root, struct mr_slice name, const char *file,
                  uint64_t line)
{
    char path[PATH_MAX];
    struct mr_slice rest = below_url(root, name);
    bool was_url = rest.text != name.text;
    if (rest.length == 0 || rest.text[0] == '/' || climbs(rest) || has_scheme(rest))
        return refuse(root, name, file, line, 0);
    int bytes = mr_interrupt_check(file);
    if (bytes == 0)
        bytes = join(root, rest, was_url, path);
    if (bytes < 0)
        return bytes;
    if (bytes >= PATH_MAX)
        return refuse(root, name, file, line, bytes);
    int id = mr_files_add_lazy(ds->files, path);
    if (id < 0)
        return id;
    if (ds->n == 0)
        photos(ds)->first = id;
    ds->n++;
    ds->fingerprint = was_url && strncmp(root, "http", 4) == 0
                          ? mr_url_hash(ds->fingerprint, rest.text, rest.length)
                          : mr_hash(ds->fingerprint, rest.text, rest.length);
    ds->fingerprint = mr_hash(ds->fingerprint, "", 1);
    return 0;
}

char *mr_photos_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash          ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    if (!folder)
        mr_error_nomem(path, strlen(path));
    return folder;
}

/* ---- classes ---- */

static int by_text(const void *a, const void *b)
{
    const struct mr_slice *x = *(const struct mr_slice *const *)a,
                          *y = *(const struct mr_slice *const *)b;
    int order = memcmp(x->text, y->text, MR_MIN(x->length, y->length));
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* order: indices sorted by name. Sets each sample's label. Returns the number of classes and the
 * total length of their names. */
static uint64_t number(const struct mr_slice *names, const struct mr_slice *const *order,
                       uint64_t n, int64_t *labels, uint64_t *bytes)
{
    uint64_t classes = 0;
    *bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (i == 0 || by_text(&order[i - 1], &order[i]) != 0) {
            classes++;
            *bytes += order[i]->length + 1;
        }
        labels[order[i] - names] = (int64_t)classes - 1;
    }
    return classes;
}

int mr_photos_classes(struct mr_dataset *ds, const struct mr_slice *names, uint64_t n,
                      int64_t *labels)
{
    struct mr_photos *p = photos(ds);
    uint64_t bytes, n_classes;
    const struct mr_slice **order =
        n < SIZE_MAX / sizeof(void *) ? malloc(MR_MAX(n, 1) * sizeof(void *)) : NULL;
    if (!order)
        return mr_error_nomem(ds->ops->name, n * sizeof(void *));
    for (uint64_t i = 0; i < n; i++)
        order[i] = &names[i];
    qsort(order, n, sizeof(void *), by_text);
    n_classes = number(names, order, n, labels, &bytes);
    p->class = calloc(MR_MAX(n_classes, 1), sizeof *p->class);
    p->class_text = malloc(MR_MAX(bytes, 1));
    char *at = p->class_text;
    if (!p->class || !at) {
        free(order);
        return mr_error_nomem(ds->ops->name, bytes + n_classes * sizeof *p->class);
    }
    for (uint64_t i = 0; i < n; i++) {
        struct mr_class *c = &p->class[labels[order[i] - names]];
        if (c->n++ > 0)
            continue;
        c->name = memcpy(at, order[i]->text, order[i]->length);
        at += order[i]->length;
        *at++ = 0;
    }
    free(order);
    ds->class = p->class;
    ds->n_classes = n_classes;
    return 0;
}

/* ---- text ---- */

const char *mr_photos_text(const struct mr_dataset *ds, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%llu picture%s", (unsigned long long)ds->n, ds->n == 1 ? "" : "s");
    if (ds->n_classes > 0 && n > 0 && (size_t)n < cap)
        snprintf(buf + n, cap - (size_t)n, " of %llu class%s", (unsigned long long)ds->n_classes,
                 ds->n_classes == 1 ? "" : "es");
    return buf;
}

static int read_all(struct mr_files *files, const char *path, char **text, uint64_t *n)
{
    struct mr_host_memory_info memory = {.size = sizeof memory};
    int id = mr_files_add_lazy(files, path);
    int rc = id < 0 ? id : mr_files_size(files, id, n);
    if (rc < 0)
        return rc;
    mr_host_memory_query(&memory);
    if (*n >= memory.available_bytes)
        return mr_error_set(MR_ELIMIT,
                            "%s: %llu bytes, read as a whole: only %llu bytes of "
                            "memory are free",
                            path, (unsigned long long)*n,
                            (unsigned long long)memory.available_bytes);
    *text = malloc(*n + 1);
    if (!*text)
        return mr_error_nomem(path, *n);
    (*text)[*n] = 0;
    return *n ? mr_files_read(files, id, 0, *text, *n) : 0;
}

static int check_text(const char *path, const char *text, uint64_t n)
{
    if (n >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
        return mr_error_set(MR_EFORMAT, "%s: UTF-16: expected UTF-8 (iconv -f utf-16 -t utf-8)",
                            path);
    const char *zero = memchr(text, 0, n);
    return zero ? mr_error_set(MR_EFORMAT, "%s: a byte 0 at byte %llu: expected text", path,
                               (unsigned long long)(zero - text))
                : 0;
}

int mr_photos_read_text(const char *path, char **text, uint64_t *n, uint64_t *skip)
{
    struct mr_files *files = mr_files_create();
    *text = NULL;
    if (!files)
        return mr_error_nomem(path, 0);
    int rc = read_all(files, path, text, n);
    mr_files_destroy(files);
    if (rc < 0)
        goto fail;
    rc = check_text(path, *text, *n);
    if (rc < 0)
        goto fail;
    *skip = *n >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    return 0;
fail:
    free(*text);
    *text = NULL;
    return rc;
}

/* ---- samples ---- */

void mr_photos_hash(struct mr_dataset *ds)
{
    const struct mr_photos *p = photos(ds);
    for (int f = 1; f < ds->n_fields; f++) {
        const uint64_t *at = p->field[f].at;
        uint64_t bytes = at ? at[ds->n] : ds->n * p->field[f].bytes;
        ds->fingerprint = mr_hash(ds->fingerprint, p->field[f].rows, bytes);
        if (at)
            ds->fingerprint = mr_hash(ds->fingerprint, at, (ds->n + 1) * sizeof *at);
    }
    for (uint64_t k = 0; k < ds->n_classes; k++)
        ds->fingerprint =
            mr_hash(ds->fingerprint, ds->class[k].name, strlen(ds->class[k].name) + 1);
}

int mr_photos_locate(const struct mr_dataset *ds, uint64_t index,
                     struct mr_extent out[MR_MAX_EXTENTS])
{
    out[0] =
        (struct mr_extent){.file = photos(ds)->first + (int)index, .field = -1, .bytes = MR_WHOLE};
    return 1;
}

static void give(const struct mr_photos *p, uint64_t index, int f, struct mr_sample *out)
{
    const uint64_t *at = p->field[f].at;
    uint64_t from = at ? at[index] : index * p->field[f].bytes;
    out->field[f].data = (const char *)p->field[f].rows + from;
    if (at)
        out->field[f].dim[0] = at[index + 1] - from;
}

int mr_photos_decode(const struct mr_dataset *ds, uint64_t index, const struct mr_bytes in[],
                     struct mr_sample *out)
{
    const struct mr_photos *p = photos(ds);
    for (int f = 1; f < ds->n_fields; f++)
        give(p, index, f, out);
    return mr_sample_decode(ds, mr_files_name(ds->files, p->first + (int)index), in, out);
}

int mr_photos_get_field(const struct mr_dataset *ds, uint64_t index, int f, struct mr_sample *out,
                        void **owned)
{
    const struct mr_photos *p = photos(ds);
    (void)owned;
    if (!p->field[f].rows)
        return 0;
    give(p, index, f, out);
    return 1;
}

void mr_photos_close(struct mr_dataset *ds)
{
    struct mr_photos *p = photos(ds);
    for (int f = 0; f < MR_MAX_FIELDS; f++) {
        free(p->field[f].rows);
        free(p->field[f].at);
    }
    free(p->class);
    free(p->class_text);
}
