/* Maps the members of a sample to fields, by extension. */
#include "dataset/dataset.h"
#include "dataset/tar/tar.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *mr_tar_extension(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strchr(base, '.');
    size_t n = strlen(base);
    /* WebDataset's metadata */
    bool about = n >= 4 && memcmp(base, "__", 2) == 0 && strcmp(base + n - 2, "__") == 0;
    return !dot || dot == base || !dot[1] || about ? NULL : dot + 1;
}

static bool is_one_of(const char *ext, const char *const *words)
{
    const char *last = strrchr(ext, '.');
    last = last ? last + 1 : ext;
    for (; *words; words++)
        if (strcasecmp(last, *words) == 0)
            return true;
    return false;
}

static enum mr_tar_kind kind_of(const char *ext)
{
    static const char *const pictures[] = {"jpg", "jpeg", "png", "webp", NULL};
    static const char *const numbers[] = {"cls",   "cls2", "class", "count",
                                          "index", "inx",  "id",    NULL};
    static const char *const arrays[] = {"npy", NULL};
    if (is_one_of(ext, pictures))
        return MR_TAR_PICTURE;
    if (is_one_of(ext, numbers))
        return MR_TAR_LABEL;
    return is_one_of(ext, arrays) ? MR_TAR_NPY : MR_TAR_RAW;
}

enum mr_kind mr_tar_text_kind(const struct mr_tar_field *field)
{
    static const char *const strings[] = {"txt", "text", "json", "jsonl", NULL};
    for (int i = 0; i < field->n_ext; i++)
        if (!is_one_of(field->ext[i], strings))
            return MR_KIND_BYTES;
    return MR_KIND_STRING;
}

bool mr_tar_is_label(const char *ext)
{
    return kind_of(ext) == MR_TAR_LABEL;
}

bool mr_tar_is_cls(const char *ext)
{
    return strcasecmp(ext, "cls") == 0;
}

int mr_tar_field_rank(const struct mr_tar_field *field, const char *ext)
{
    for (int i = 0; i < field->n_ext; i++)
        if (strcasecmp(field->ext[i], ext) == 0)
            return i;
    return -1;
}

/* ---- fields from the option ---- */

static int bad_fields(const char *text, const char *what)
{
    return mr_error_set(
        MR_EOPTION,
        "tar: fields=%.200s: %s: expected NAME:EXTENSION[;EXTENSION...], fields between commas, "
        "e.g. fields=[image:jpg;png,label:cls]",
        text, what);
}

/* Copies one word, [from, from + n), into `to`. */
static bool take_word(const char *from, size_t n, bool small, char to[MR_NAME_BYTES])
{
    while (small && n > 0 && *from == '.') /* ".jpg" means "jpg" */
        from++, n--;
    if (n == 0 || n >= MR_NAME_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        to[i] = small ? (char)tolower((unsigned char)from[i]) : from[i];
    to[n] = 0;
    return true;
}

static int parse_field(const char *text, const char *from, size_t n, struct mr_tar_field *out)
{
    const char *colon = memchr(from, ':', n), *end = from + n;
    *out = (struct mr_tar_field){.kind = MR_TAR_RAW};
    if (!colon || !take_word(from, (size_t)(colon - from), false, out->name))
        return bad_fields(text, "a field without a name, or one too long");
    for (const char *p = colon + 1; p <= end;) {
        const char *stop = memchr(p, ';', (size_t)(end - p));
        stop = stop ? stop : end;
        if (out->n_ext == MR_TAR_EXTENSIONS)
            return bad_fields(text, "more than 8 extensions of one field");
        if (!take_word(p, (size_t)(stop - p), true, out->ext[out->n_ext]))
            return bad_fields(text, "an extension that is empty or too long");
        enum mr_tar_kind kind = kind_of(out->ext[out->n_ext]);
        if (out->n_ext++ > 0 && kind != out->kind)
            return bad_fields(
                text,
                "extensions of different kinds (pictures, numbers, arrays, bytes) in one field");
        out->kind = kind;
        p = stop + 1;
    }
    return 0;
}

int mr_tar_fields_parse(const char *text, struct mr_tar_field out[MR_MAX_FIELDS])
{
    const char *from = text, *end = text + strlen(text);
    int n = 0, pictures = 0;
    if (end - from >= 2 && *from == '[' && end[-1] == ']')
        from++, end--;
    while (from <= end) {
        const char *stop = memchr(from, ',', (size_t)(end - from));
        stop = stop ? stop : end;
        if (n == MR_MAX_FIELDS)
            return bad_fields(text, "too many fields");
        int rc = parse_field(text, from, (size_t)(stop - from), &out[n]);
        if (rc < 0)
            return rc;
        pictures += out[n++].kind == MR_TAR_PICTURE;
        from = stop + 1;
    }
    if (pictures > 1)
        return bad_fields(text, "more than one field of pictures");
    return n;
}

/* ---- fields from the first sample ---- */

/* "x.npy" names the field x. */
static void name_npy(struct mr_tar_field *f)
{
    size_t n = strlen(f->ext[0]);
    if (n > 4)
        snprintf(f->name, sizeof f->name, "%.*s", (int)(n - 4), f->ext[0]);
}

static bool add(struct mr_tar_field *out, int *n, const char *ext, enum mr_tar_kind kind,
                const char *name)
{
    if (*n == MR_MAX_FIELDS || strlen(ext) >= MR_NAME_BYTES)
        return false;
    struct mr_tar_field *f = &out[*n];
    *f = (struct mr_tar_field){.kind = kind, .n_ext = 1};
    take_word(ext, strlen(ext), true, f->ext[0]);
    snprintf(f->name, sizeof f->name, "%s", name ? name : f->ext[0]);
    if (kind == MR_TAR_NPY && strcmp(f->ext[0], "npy") == 0)
        snprintf(f->name, sizeof f->name, "x");
    else if (kind == MR_TAR_NPY)
        name_npy(f);
    for (int i = 0; i < *n; i++)
        if (strcmp(out[i].name, f->name) == 0)
            return false;
    ++*n;
    return true;
}

static void add_kind(const char *const *ext, uint64_t n_ext, enum mr_tar_kind kind,
                     const char *name, bool first, struct mr_tar_field *out, int *n)
{
    for (uint64_t i = 0; i < n_ext; i++)
        if (kind_of(ext[i]) == kind && add(out, n, ext[i], kind, name) && first)
            return;
}

int mr_tar_fields_choose(const char *const *ext, uint64_t n_ext,
                         struct mr_tar_field out[MR_MAX_FIELDS])
{
    static const char *const usual[] = {"jpg", "jpeg", "png", "webp"};
    int n = 0;
    add_kind(ext, n_ext, MR_TAR_PICTURE, "image", true, out, &n);
    /* samples of one data set may have pictures of different formats */
    if (n == 1 && !strchr(out[0].ext[0], '.'))
        for (size_t i = 0; i < MR_COUNT(usual); i++)
            if (strcmp(usual[i], out[0].ext[0]) != 0)
                strcpy(out[0].ext[out[0].n_ext++], usual[i]);
    add_kind(ext, n_ext, MR_TAR_NPY, NULL, false, out, &n);
    bool data = n > 0;
    if (!data)
        add_kind(ext, n_ext, MR_TAR_RAW, NULL, false, out, &n);
    for (uint64_t i = 0; i < n_ext; i++)
        if (mr_tar_is_cls(ext[i]))
            add(out, &n, ext[i], MR_TAR_LABEL, "label");
    return n;
}
