/* Names of kernels: as written in C++, and the bare one. */
#include "recording/store.h"

#include <string.h>

/* Past the bracket that closes the one at text[i], or bytes. */
static size_t past_closing(const char *text, size_t bytes, size_t i)
{
    int depth = 0;
    for (; i < bytes; i++) {
        if (strchr("([{<", text[i]) && text[i])
            depth++;
        else if ((strchr(")]}", text[i]) && text[i]) ||
                 (text[i] == '>' && (i == 0 || text[i - 1] != '-')))
            depth--;
        if (depth == 0)
            return i + 1;
    }
    return bytes;
}

/* "void (anonymous namespace)::at::kernel<4, F>(int)": "::" and spaces outside of brackets begin a
 * name anew, the first '<' or '(' ends it, unless the bracket is a part of the way to it, as in
 * "(anonymous namespace)::". */
const char *mr_short_name(const char *text, size_t bytes, size_t *out_bytes)
{
    size_t start = 0, end = 0;
    for (size_t i = 0; i < bytes;) {
        if (strchr("([{<", text[i]) && text[i]) {
            size_t past = past_closing(text, bytes, i);
            bool on_the_way = past + 1 < bytes && text[past] == ':' && text[past + 1] == ':';
            if (!on_the_way && i > start && !end)
                end = i;
            if (!on_the_way && text[i] == '(' && end)
                break;
            i = past;
        } else if (text[i] == ' ' || (text[i] == ':' && i + 1 < bytes && text[i + 1] == ':')) {
            i += text[i] == ' ' ? 1 : 2;
            start = i;
            end = 0;
        } else {
            i++;
        }
    }
    if (!end)
        end = bytes;
    if (start >= end) {
        *out_bytes = bytes;
        return text;
    }
    *out_bytes = end - start;
    return text + start;
}

static int names_grow(struct mr_store *store)
{
    if (store->n_names >= store->texts.n)
        return 0;
    struct mr_store_name *names = realloc(store->names, store->texts.capacity * sizeof(*names));
    if (!names)
        return mr_error_nomem("a recording's names", store->texts.capacity * sizeof(*names));
    memset(names + store->n_names, 0xff, (store->texts.capacity - store->n_names) * sizeof(*names));
    store->names = names;
    store->n_names = store->texts.capacity;
    return 0;
}

static int name_kernel(struct mr_store *store, uint32_t name)
{
    const char *mangled = store->texts.text[name];
    int status = -1;
    char *demangled = store->demangle && !strncmp(mangled, "_Z", 2)
                          ? store->demangle(mangled, NULL, NULL, &status)
                          : NULL;
    const char *text = demangled && status == 0 ? demangled : mangled;
    size_t bytes;
    const char *shorter = mr_short_name(text, strlen(text), &bytes);
    struct mr_store_name numbers;
    int rc = mr_store_text(store, text, strlen(text), &numbers.demangled);
    if (rc < 0)
        goto end;
    rc = mr_store_text(store, shorter, bytes, &numbers.shorter);
    if (rc < 0)
        goto end;
    rc = names_grow(store);
    if (rc < 0)
        goto end;
    store->names[name] = numbers;
end:
    free(demangled);
    return rc;
}

int mr_store_kernel_names(struct mr_store *store, uint32_t name, struct mr_store_name *out)
{
    if (name >= store->texts.n)
        return mr_error_set(MR_EMISUSE, "%s: kernel's name %u is none of this store's %u",
                            store->path, name, store->texts.n);
    int rc = names_grow(store);
    if (rc < 0)
        return rc;
    if (store->names[name].demangled == MR_NONE)
        rc = name_kernel(store, name);
    if (rc < 0)
        return rc;
    *out = store->names[name];
    return 0;
}
