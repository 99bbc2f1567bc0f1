/*
 * Data sets by URI: [FORMAT:]PATH[,option=value...].
 *
 * A path may contain colons and commas: it ends at the end of the text or at a comma, such that it
 * is the longest one that exists on disk.
 */
#include "dataset/dataset.h"

#include "base/secret.h"
#include <errno.h>
#include <millrace/text.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The formats that can be opened by URI, in the order in which sniff() asks them. */
static const struct mr_dataset_ops *const formats[] = {
    &mr_dataset_idx,      &mr_dataset_npy,         &mr_dataset_raw,    &mr_dataset_tar,
    &mr_dataset_tfrecord, &mr_dataset_safetensors, &mr_dataset_folder, &mr_dataset_list,
    &mr_dataset_csv,      &mr_dataset_video,       &mr_dataset_npz,    &mr_dataset_mix,
    &mr_dataset_slow,     &mr_dataset_synthetic,
};

const char *mr_format_names(char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < MR_COUNT(formats) && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? ", " : "", formats[i]->name);
    return buf;
}

int mr_dataset_each(int (*fn)(void *user, const char *name, const char *summary,
                              const struct mr_option *options),
                    void *user)
{
    if (!fn)
        return mr_error_null("mr_dataset_each", "a function");
    for (size_t i = 0; i < MR_COUNT(formats); i++) {
        int rc = fn(user, formats[i]->name, formats[i]->summary, formats[i]->options);
        if (rc != 0)
            return rc;
    }
    return 0;
}

const char *mr_dataset_lacks(const char *format)
{
    for (size_t i = 0; format && i < MR_COUNT(formats); i++)
        if (!strcmp(formats[i]->name, format))
            return formats[i]->lacks ? formats[i]->lacks() : NULL;
    return NULL;
}

static bool on_disk(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Bytes up to the first comma outside braces (shards-{a,b}.tar). */
static size_t up_to_comma(const char *text)
{
    size_t n = 0;
    for (int depth = 0; text[n] && (text[n] != ',' || depth > 0); n++)
        depth += text[n] == '{' ? 1 : text[n] == '}' && depth > 0 ? -1 : 0;
    return n;
}

/* Returns whether the text up to its first '=' or ',' names an option of this format (NULL: of
 * any). */
static bool names_option(const struct mr_dataset_ops *ops, const char *text)
{
    size_t length = strcspn(text, "=,");
    for (size_t i = 0; i < MR_COUNT(formats); i++)
        for (const struct mr_option *o = formats[i]->options;
             o->name && (!ops || ops == formats[i]); o++)
            if (strlen(o->name) == length && memcmp(o->name, text, length) == 0)
                return true;
    return false;
}

/* A URL's existence can't be checked: it ends at the first comma that is followed by an option. */
static size_t url_length(const struct mr_dataset_ops *ops, const char *text)
{
    size_t n = up_to_comma(text);
    while (text[n] && !names_option(ops, text + n + 1))
        n += 1 + up_to_comma(text + n + 1);
    return n;
}

/* Finds the end of the path: at a comma or at the end of the text. Returns 0 or -ENOMEM. */
static int path_length(const struct mr_dataset_ops *ops, const char *text, size_t *out)
{
    if (ops && ops->path_length) {
        *out = ops->path_length(text);
        return 0;
    }
    if (mr_store_is_remote(text)) {
        *out = url_length(ops, text);
        return 0;
    }
    char *copy = strdup(text);
    if (!copy)
        return mr_error_nomem("data set", strlen(text) + 1);
    size_t length = strlen(text);
    while (!on_disk(copy)) {
        char *comma = strrchr(copy, ',');
        if (!comma) {
            length = up_to_comma(text);
            break;
        }
        length = (size_t)(comma - copy);
        copy[length] = 0;
    }
    free(copy);
    *out = length;
    return 0;
}

static const struct mr_dataset_ops *find_format(const char *name, size_t length)
{
    for (size_t i = 0; i < MR_COUNT(formats); i++)
        if (strlen(formats[i]->name) == length && memcmp(formats[i]->name, name, length) == 0)
            return formats[i];
    return NULL;
}

/* Finds the format of a path. */
static int sniff(const char *path, const struct mr_dataset_ops **out)
{
    char names[128], shown[512];
    struct stat st;
    bool url = mr_store_is_remote(path);
    bool list = !url && stat(path, &st) != 0 && strpbrk(path, "{*?");
    if (list && mr_dataset_tar.sniff(path)) {
        *out = &mr_dataset_tar;
        return 0;
    }
    if (list && mr_dataset_tfrecord.sniff(path)) {
        *out = &mr_dataset_tfrecord;
        return 0;
    }
    if (!url && stat(path, &st) != 0) {
        int errnum = errno; /* saved, since formatting may change it */
        return mr_error_set(-errnum, "%s: %s (no format was given; formats: %s)", path,
                            mr_strerror(-errnum), mr_format_names(names, sizeof names));
    }
    for (size_t i = 0; i < MR_COUNT(formats); i++)
        if (formats[i]->sniff && formats[i]->sniff(path)) {
            *out = formats[i];
            return 0;
        }
    return mr_error_set(MR_EUNSUPPORTED,
                        "%s: %s whose name does not tell the format: put one in "
                        "front (formats: %s)",
                        mr_url_show(path, shown, sizeof shown),
                        url                   ? "a URL"
                        : S_ISDIR(st.st_mode) ? "a folder"
                                              : "a file",
                        mr_format_names(names, sizeof names));
}

/* Returns whether text begins with "option=" of this format instead of a path. */
static bool starts_with_option(const struct mr_dataset_ops *ops, const char *text)
{
    size_t length = strcspn(text, "=,");
    if (text[length] != '=')
        return false;
    for (const struct mr_option *o = ops->options; o->name; o++)
        if (strlen(o->name) == length && memcmp(o->name, text, length) == 0)
            return true;
    return false;
}

/* The parts of a URI. format NULL: decided by the path. path: malloc'd; NULL if missing. */
struct uri {
    const struct mr_dataset_ops *format;
    char *path;
    const char *options; /* within the text; "" if none */
};

static int split_path(const char *text, struct uri *out)
{
    size_t length = 0;
    int rc = path_length(out->format, text, &length);
    if (rc < 0)
        return rc;
    out->options = text[length] == ',' ? text + length + 1 : "";
    out->path = strndup(text, length);
    return out->path ? 0 : mr_error_nomem("data set", length + 1);
}

/* text: after "FORMAT:". */
static int split_after_format(const char *text, struct uri *out)
{
    const char *name = out->format->name;
    if (!out->format->positional || (starts_with_option(out->format, text) && !on_disk(text))) {
        out->options = text;
        return 0;
    }
    if (text[0] == 0 || text[0] == ',')
        return mr_error_set(MR_EOPTION, "%s: no path: expected %s:PATH[,option=value...]", name,
                            name);
    return split_path(text, out);
}

static int unknown_format(const char *text, size_t prefix)
{
    const char *names[MR_COUNT(formats) + 1] = {NULL};
    char word[64], list[128], shown[512];
    snprintf(word, sizeof word, "%.*s", (int)MR_MIN(prefix, sizeof word - 1), text);
    for (size_t i = 0; i < MR_COUNT(formats); i++)
        names[i] = formats[i]->name;
    const char *nearest = mr_nearest(word, names);
    return mr_error_set(MR_EOPTION, "%s: unknown format '%s'%s%s%s: formats: %s",
                        mr_text_hide(text, shown, sizeof shown), word,
                        nearest ? "; did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "", mr_format_names(list, sizeof list));
}

static int split(const char *text, struct uri *out)
{
    char names[128];
    if (!text || !text[0])
        return mr_error_set(
            MR_EOPTION, "empty data set: expected [FORMAT:]PATH[,option=value...] (formats: %s)",
            mr_format_names(names, sizeof names));
    size_t prefix = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (prefix > 0 && text[prefix] == ':' && !mr_store_is_remote(text)) {
        out->format = find_format(text, prefix);
        bool whole_is_path = on_disk(text) && !on_disk(text + prefix + 1);
        if (out->format && !whole_is_path)
            return split_after_format(text + prefix + 1, out);
        out->format = NULL;
    }
    int rc = split_path(text, out);
    if (rc < 0 || !out->path || mr_store_is_remote(text) || on_disk(out->path) || prefix == 0 ||
        text[prefix] != ':')
        return rc;
    return unknown_format(text, prefix);
}

static int fill(const struct mr_dataset_ops *format, const struct uri *uri, void *opts)
{
    char who[32];
    snprintf(who, sizeof who, "%s:", format->name);
    if (uri->path) {
        int rc = mr_options_set(format->options, opts, who, format->positional[0], uri->path);
        if (rc < 0)
            return rc;
    }
    return uri->options[0] ? mr_options_parse(format->options, opts, who, uri->options, NULL) : 0;
}

/* [out] opts: malloc'd and filled. */
static int make_opts(const struct mr_dataset_ops *format, const struct uri *uri, void **out)
{
    void *opts = malloc(format->opts_size);
    if (!opts)
        return mr_error_nomem(format->name, format->opts_size);
    mr_dataset_opts_fill(format, opts, format->opts_size);
    int rc = fill(format, uri, opts);
    if (rc < 0)
        mr_uri_free(format, opts);
    else
        *out = opts;
    return rc;
}

int mr_uri_parse(const char *text, const struct mr_dataset_ops **out_ops, void **out_opts)
{
    struct uri uri = {.options = ""};
    int rc = split(text, &uri);
    const struct mr_dataset_ops *format = uri.format;
    if (rc < 0)
        goto free_path;
    if (!format) {
        rc = sniff(uri.path, &format);
        if (rc < 0)
            goto free_path;
    }
    rc = make_opts(format, &uri, out_opts);
    if (rc < 0)
        goto free_path;
    *out_ops = format;
free_path:
    free(uri.path);
    return rc;
}

void mr_uri_free(const struct mr_dataset_ops *ops, void *opts)
{
    mr_options_free(ops->options, opts);
    free(opts);
}
