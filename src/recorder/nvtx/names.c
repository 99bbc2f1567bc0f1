/* Names that NVTX programs give and keep: registered strings, domains, categories. All of them stay
 * until the process ends. */
#include "recorder/nvtx/nvtx.h"

#include <string.h>

#define ARENA        (64u << 10)
#define MAX_TEXT     (32u << 10)
#define MAX_BYTES    (128u << 20)
#define N_TEXT_LISTS 4096u

static struct record_lock names; /* guards the four below; readers of categories take none */
static struct nvtx_text *texts[N_TEXT_LISTS];
static struct nvtx_domain *domains;
static struct {
    char *at;
    size_t left, total;
} arena;

static struct nvtx_domain default_domain;
static struct capture {
    char range[256], domain[256]; /* "": none, or the default domain */
} capture[2];                     /* the two readings of what was asked for; constant once begun */

static void *take(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > arena.left) {
        size_t fresh = bytes > ARENA ? bytes : ARENA;
        char *memory = arena.total + fresh <= MAX_BYTES ? record_map(fresh) : NULL;
        if (!memory)
            return NULL;
        arena.at = memory;
        arena.left = fresh;
        arena.total += fresh;
    }
    void *taken = arena.at;
    arena.at += bytes;
    arena.left -= bytes;
    return taken;
}

/* ---- messages ---- */

static size_t put_utf8(char *to, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((0xf00u >> n & 0xf0u) | c);
    return n;
}

static const char *narrow(struct nvtx_message *message, const wchar_t *wide)
{
    size_t n = 0;
    if (!wide)
        return NULL;
    for (; *wide && n + 4 < sizeof message->wide; wide++)
        n += put_utf8(message->wide + n, (uint32_t)*wide);
    message->wide[n] = 0;
    return message->wide;
}

void nvtx_message_read(struct nvtx_message *message, int type, union nvtx_text_of text)
{
    message->text = NULL;
    message->registered = NULL;
    if (type == NVTX_TEXT_ASCII)
        message->text = text.ascii;
    else if (type == NVTX_TEXT_WIDE)
        message->text = narrow(message, text.wide);
    else if (type == NVTX_TEXT_REGISTERED)
        message->registered = text.registered;
}

uint32_t nvtx_message_number(const struct nvtx_message *message)
{
    return message->registered ? nvtx_text_number(message->registered)
                               : record_string(message->text);
}

/* ---- texts that stay ---- */

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

/* Under names. */
static struct nvtx_text *keep(const char *text)
{
    uint32_t bytes = (uint32_t)strnlen(text, MAX_TEXT);
    uint64_t hash = hash_of(text, bytes);
    struct nvtx_text **list = &texts[hash % N_TEXT_LISTS], *found = *list;
    while (found &&
           (found->hash != hash || found->bytes != bytes || memcmp(found->data, text, bytes) != 0))
        found = found->next;
    if (found)
        return found;
    found = take(sizeof *found + bytes + 1);
    if (!found)
        return NULL;
    found->hash = hash;
    found->bytes = bytes;
    memcpy(found->data, text, bytes);
    found->next = *list;
    *list = found;
    return found;
}

struct nvtx_text *nvtx_text_keep(const char *text)
{
    if (!text)
        return NULL;
    record_lock(&names);
    struct nvtx_text *kept = keep(text);
    record_unlock(&names);
    return kept;
}

uint32_t nvtx_text_number(struct nvtx_text *text)
{
    uint64_t generation = (uint64_t)record_generation() + 1;
    uint64_t known = text ? atomic_load_explicit(&text->number, memory_order_relaxed) : 0;
    if (!text || known >> 32 == generation)
        return (uint32_t)known;
    uint32_t number = record_string(text->data);
    if (number)
        atomic_store_explicit(&text->number, generation << 32 | number, memory_order_relaxed);
    return number;
}

/* ---- domains and categories ---- */

struct nvtx_domain *nvtx_domain_of(void *handle)
{
    return handle ? handle : &default_domain;
}

/* Bit i: the range of capture[i] opens the capture in this domain. */
static uint8_t captures_of(const char *domain)
{
    uint8_t captures = 0;
    for (int i = 0; i < 2; i++)
        if (capture[i].range[0] && strcmp(capture[i].domain, domain) == 0)
            captures |= (uint8_t)(1u << i);
    return captures;
}

/* Two domains of one name are one. */
struct nvtx_domain *nvtx_domain_find(const char *name)
{
    if (!name)
        return NULL;
    record_lock(&names);
    struct nvtx_text *kept = keep(name);
    struct nvtx_domain *domain = domains;
    while (kept && domain && domain->name != kept)
        domain = domain->next;
    if (kept && !domain && (domain = take(sizeof *domain))) {
        domain->name = kept;
        domain->captures = captures_of(name);
        domain->next = domains;
        domains = domain;
    }
    record_unlock(&names);
    return kept ? domain : NULL;
}

struct nvtx_name *nvtx_name_keep(const char *domain, const char *text)
{
    struct nvtx_domain *found = nvtx_domain_of(nvtx_domain_find(domain));
    struct nvtx_text *kept = nvtx_text_keep(text);
    if (!kept || (domain && !found->name)) /* without memory */
        return NULL;
    record_lock(&names);
    struct nvtx_name *name = take(sizeof *name);
    if (name)
        *name = (struct nvtx_name){found, kept};
    record_unlock(&names);
    return name;
}

static struct nvtx_category *find_category(struct nvtx_domain *domain, uint32_t category)
{
    struct nvtx_category *found = atomic_load_explicit(
        &domain->categories[category % N_CATEGORY_LISTS], memory_order_acquire);
    while (found && found->category != category)
        found = found->next;
    return found;
}

void nvtx_category_name(struct nvtx_domain *domain, uint32_t category, const char *name)
{
    if (!name)
        return;
    record_lock(&names);
    struct nvtx_text *kept = keep(name);
    struct nvtx_category *found = kept ? find_category(domain, category) : NULL;
    if (found) {
        atomic_store_explicit(&found->name, kept, memory_order_release);
    } else if (kept && (found = take(sizeof *found))) {
        found->category = category;
        atomic_store_explicit(&found->name, kept, memory_order_relaxed);
        found->next = atomic_load_explicit(&domain->categories[category % N_CATEGORY_LISTS],
                                           memory_order_relaxed);
        atomic_store_explicit(&domain->categories[category % N_CATEGORY_LISTS], found,
                              memory_order_release);
    }
    record_unlock(&names);
}

uint32_t nvtx_category_number(struct nvtx_domain *domain, uint32_t category)
{
    struct nvtx_category *found = category ? find_category(domain, category) : NULL;
    return found ? nvtx_text_number(atomic_load_explicit(&found->name, memory_order_acquire)) : 0;
}

/* ---- the range that opens the capture ---- */

static bool read_capture(struct capture *to, const char *range, size_t range_bytes,
                         const char *domain, size_t bytes)
{
    if (range_bytes >= sizeof to->range || bytes >= sizeof to->domain)
        return false;
    memcpy(to->range, range, range_bytes);
    memcpy(to->domain, domain, bytes);
    return true;
}

/* NAME, NAME@DOMAIN (what follows the last '@') or, as reports have it, DOMAIN@NAME: which, only
 * the program's ranges tell. */
void nvtx_names_begin(void)
{
    const char *asked = record_captures_range() ? record_captures_range() : "";
    const char *first = strchr(asked, '@'), *last = strrchr(asked, '@');
    size_t n = strlen(asked);
    bool fits =
        last ? read_capture(&capture[0], asked, (size_t)(last - asked), last + 1, strlen(last + 1))
             : read_capture(&capture[0], asked, n, "", 0);
    if (fits && first)
        fits =
            read_capture(&capture[1], first + 1, strlen(first + 1), asked, (size_t)(first - asked));
    if (!fits) {
        memset(capture, 0, sizeof capture);
        record_note("warning", 0,
                    "the NVTX range of the capture has too long a name: nothing opens the capture");
    }
    default_domain.captures = captures_of("");
}

bool nvtx_names_capture(const struct nvtx_domain *domain, const struct nvtx_message *message)
{
    if (!domain->captures)
        return false;
    const char *text = message->registered ? message->registered->data : message->text;
    for (int i = 0; text && i < 2; i++)
        if (domain->captures >> i & 1 && strcmp(text, capture[i].range) == 0)
            return true;
    return false;
}

void nvtx_names_forked(void)
{
    atomic_store(&names.word, 0);
    arena.left = 0; /* another thread may have been about to take some of it */
}
