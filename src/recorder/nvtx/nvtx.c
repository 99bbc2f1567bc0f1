/* The functions that NVTX calls: each reads its arguments and goes on to names or ranges. */
#include "recorder/nvtx/nvtx.h"

#include <pthread.h>
#include <string.h>

_Thread_local volatile bool record_nvtx_busy;

/* False in a signal handler that interrupted us, and within the recorder itself. */
static inline bool enter(void)
{
    if (record_nvtx_busy)
        return false;
    record_nvtx_busy = true;
    return true;
}

static inline void leave(void)
{
    record_nvtx_busy = false;
}

/* Attributes of an older version are shorter. */
static const struct nvtx_attributes *read_attributes(const struct nvtx_attributes *given,
                                                     struct nvtx_attributes *copy,
                                                     struct nvtx_message *message)
{
    if (given && given->bytes < sizeof *given) {
        memset(copy, 0, sizeof *copy);
        memcpy(copy, given, given->bytes);
        given = copy;
    }
    nvtx_message_read(message, given ? given->text_type : 0,
                      given ? given->text : (union nvtx_text_of){NULL});
    return given;
}

/* ---- events, in a domain or the default one ---- */

static void domain_mark(void *domain, const struct nvtx_attributes *attributes)
{
    struct nvtx_attributes copy;
    struct nvtx_message message;
    if (!enter())
        return;
    attributes = read_attributes(attributes, &copy, &message);
    nvtx_mark(nvtx_domain_of(domain), attributes, &message);
    leave();
}

static uint64_t domain_start(void *domain, const struct nvtx_attributes *attributes)
{
    struct nvtx_attributes copy;
    struct nvtx_message message;
    if (!enter())
        return 0;
    attributes = read_attributes(attributes, &copy, &message);
    uint64_t id = nvtx_start(nvtx_domain_of(domain), attributes, &message);
    leave();
    return id;
}

static void domain_end(void *domain, uint64_t id)
{
    (void)domain; /* the number says it */
    if (!enter())
        return;
    nvtx_end(id);
    leave();
}

static int domain_push(void *domain, const struct nvtx_attributes *attributes)
{
    struct nvtx_attributes copy;
    struct nvtx_message message;
    if (!enter())
        return -1;
    attributes = read_attributes(attributes, &copy, &message);
    int level = nvtx_push(nvtx_domain_of(domain), attributes, &message);
    leave();
    return level;
}

static int domain_pop(void *domain)
{
    if (!enter())
        return -1;
    int level = nvtx_pop(nvtx_domain_of(domain));
    leave();
    return level;
}

static void mark_text(int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return;
    nvtx_message_read(&message, type, text);
    nvtx_mark(nvtx_domain_of(NULL), NULL, &message);
    leave();
}

static uint64_t start_text(int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return 0;
    nvtx_message_read(&message, type, text);
    uint64_t id = nvtx_start(nvtx_domain_of(NULL), NULL, &message);
    leave();
    return id;
}

static int push_text(int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return -1;
    nvtx_message_read(&message, type, text);
    int level = nvtx_push(nvtx_domain_of(NULL), NULL, &message);
    leave();
    return level;
}

#define ASCII(pointer)                                                                             \
    NVTX_TEXT_ASCII, (union nvtx_text_of)                                                          \
    {                                                                                              \
        .ascii = (pointer)                                                                         \
    }
#define WIDE(pointer)                                                                              \
    NVTX_TEXT_WIDE, (union nvtx_text_of)                                                           \
    {                                                                                              \
        .wide = (pointer)                                                                          \
    }

static void core_mark(const struct nvtx_attributes *attributes)
{
    domain_mark(NULL, attributes);
}
static void core_mark_a(const char *text)
{
    mark_text(ASCII(text));
}
static void core_mark_w(const wchar_t *text)
{
    mark_text(WIDE(text));
}
static uint64_t core_start(const struct nvtx_attributes *attributes)
{
    return domain_start(NULL, attributes);
}
static uint64_t core_start_a(const char *text)
{
    return start_text(ASCII(text));
}
static uint64_t core_start_w(const wchar_t *text)
{
    return start_text(WIDE(text));
}
static void core_end(uint64_t id)
{
    domain_end(NULL, id);
}
static int core_push(const struct nvtx_attributes *attributes)
{
    return domain_push(NULL, attributes);
}
static int core_push_a(const char *text)
{
    return push_text(ASCII(text));
}
static int core_push_w(const wchar_t *text)
{
    return push_text(WIDE(text));
}
static int core_pop(void)
{
    return domain_pop(NULL);
}

/* ---- names ---- */

static void name_category(void *domain, uint32_t category, int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return;
    nvtx_message_read(&message, type, text);
    nvtx_category_name(nvtx_domain_of(domain), category, message.text);
    leave();
}

static void name_thread(uint32_t tid, int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return;
    nvtx_message_read(&message, type, text);
    struct mr_part_thread thread = {tid, nvtx_message_number(&message)};
    if (thread.name && record_ever_wants(MR_TRACE_NVTX))
        record_put(MR_PART_THREAD, &thread);
    leave();
}

static void *register_text(int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return NULL;
    nvtx_message_read(&message, type, text);
    void *handle = nvtx_text_keep(message.text);
    leave();
    return handle;
}

static void *create_domain(int type, union nvtx_text_of text)
{
    struct nvtx_message message;
    if (!enter())
        return NULL;
    nvtx_message_read(&message, type, text);
    void *handle = nvtx_domain_find(message.text);
    leave();
    return handle;
}

static void core_category_a(uint32_t category, const char *name)
{
    name_category(NULL, category, ASCII(name));
}
static void core_category_w(uint32_t category, const wchar_t *name)
{
    name_category(NULL, category, WIDE(name));
}
static void core_thread_a(uint32_t tid, const char *name)
{
    name_thread(tid, ASCII(name));
}
static void core_thread_w(uint32_t tid, const wchar_t *name)
{
    name_thread(tid, WIDE(name));
}
static void domain_category_a(void *domain, uint32_t category, const char *name)
{
    name_category(domain, category, ASCII(name));
}
static void domain_category_w(void *domain, uint32_t category, const wchar_t *name)
{
    name_category(domain, category, WIDE(name));
}
static void *domain_string_a(void *domain, const char *text)
{
    (void)domain; /* equal texts are one, whoever registers them */
    return register_text(ASCII(text));
}
static void *domain_string_w(void *domain, const wchar_t *text)
{
    (void)domain;
    return register_text(WIDE(text));
}
static void *domain_create_a(const char *name)
{
    return create_domain(ASCII(name));
}
static void *domain_create_w(const wchar_t *name)
{
    return create_domain(WIDE(name));
}

/* Domains and resources stay: their events may still be open. */
static void keep_on(void *handle)
{
    (void)handle;
}

/* Of all resources only threads have a place in a recording. */
static void *domain_resource(void *domain, const struct nvtx_resource *resource)
{
    (void)domain;
    if (!resource || resource->bytes < sizeof *resource)
        return NULL;
    if (resource->type == NVTX_THREAD_NATIVE)
        name_thread((uint32_t)resource->identifier, resource->text_type, resource->text);
    else if (resource->type == NVTX_THREAD_POSIX &&
             resource->identifier == (uint64_t)pthread_self())
        name_thread(record_tid(), resource->text_type, resource->text);
    return NULL;
}

static void initialize(const void *reserved)
{
    (void)reserved;
}

/* ---- attaching ---- */

static nvtx_function *const core_functions[] = {
    [CORE_MARK_EX] = (nvtx_function *)core_mark,
    [CORE_MARK_A] = (nvtx_function *)core_mark_a,
    [CORE_MARK_W] = (nvtx_function *)core_mark_w,
    [CORE_START_EX] = (nvtx_function *)core_start,
    [CORE_START_A] = (nvtx_function *)core_start_a,
    [CORE_START_W] = (nvtx_function *)core_start_w,
    [CORE_END] = (nvtx_function *)core_end,
    [CORE_PUSH_EX] = (nvtx_function *)core_push,
    [CORE_PUSH_A] = (nvtx_function *)core_push_a,
    [CORE_PUSH_W] = (nvtx_function *)core_push_w,
    [CORE_POP] = (nvtx_function *)core_pop,
    [CORE_CATEGORY_A] = (nvtx_function *)core_category_a,
    [CORE_CATEGORY_W] = (nvtx_function *)core_category_w,
    [CORE_THREAD_A] = (nvtx_function *)core_thread_a,
    [CORE_THREAD_W] = (nvtx_function *)core_thread_w,
};

static nvtx_function *const core2_functions[] = {
    [CORE2_MARK_EX] = (nvtx_function *)domain_mark,
    [CORE2_START_EX] = (nvtx_function *)domain_start,
    [CORE2_END] = (nvtx_function *)domain_end,
    [CORE2_PUSH_EX] = (nvtx_function *)domain_push,
    [CORE2_POP] = (nvtx_function *)domain_pop,
    [CORE2_RESOURCE] = (nvtx_function *)domain_resource,
    [CORE2_RESOURCE_DESTROY] = (nvtx_function *)keep_on,
    [CORE2_CATEGORY_A] = (nvtx_function *)domain_category_a,
    [CORE2_CATEGORY_W] = (nvtx_function *)domain_category_w,
    [CORE2_STRING_A] = (nvtx_function *)domain_string_a,
    [CORE2_STRING_W] = (nvtx_function *)domain_string_w,
    [CORE2_DOMAIN_A] = (nvtx_function *)domain_create_a,
    [CORE2_DOMAIN_W] = (nvtx_function *)domain_create_w,
    [CORE2_DOMAIN_DESTROY] = (nvtx_function *)keep_on,
    [CORE2_INITIALIZE] = (nvtx_function *)initialize,
};

static bool attach(const struct nvtx_callbacks *callbacks, uint32_t module,
                   nvtx_function *const *functions, size_t n)
{
    nvtx_function ***table = NULL;
    unsigned size = 0;
    if (!callbacks->get(module, &table, &size) || !table)
        return false;
    for (unsigned i = 1; i < n && i < size; i++)
        if (table[i])
            *table[i] = functions[i];
    return true;
}

static void forked(void)
{
    record_nvtx_busy = false;
    nvtx_names_forked();
    nvtx_ranges_forked();
}

static void begin(void)
{
    nvtx_names_begin();
    nvtx_ranges_begin();
    pthread_atfork(NULL, NULL, forked);
    record_on_finish(nvtx_ranges_finish);
}

bool nvtx_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!record_ever_wants(MR_TRACE_NVTX) && !record_captures_range())
        return false;
    pthread_once(&once, begin);
    return true;
}

/* Called once by each copy of NVTX in the process; 0 makes all its functions empty. */
RECORD_EXPORT int InitializeInjectionNvtx2(nvtx_get_export *get_export);
RECORD_EXPORT int InitializeInjectionNvtx2(nvtx_get_export *get_export)
{
    const struct nvtx_callbacks *callbacks = get_export ? get_export(NVTX_EXPORT_CALLBACKS) : NULL;
    const struct nvtx_version *version = get_export ? get_export(NVTX_EXPORT_VERSION) : NULL;
    if (!record_ever_wants(MR_TRACE_NVTX) && !record_captures_range())
        return 0;
    if (!callbacks || callbacks->bytes < sizeof *callbacks || !callbacks->get) {
        record_note("no_nvtx", 0, "the program's NVTX speaks another protocol than version 3's");
        return 0;
    }
    nvtx_begin();
    if (version && version->bytes >= sizeof *version && version->set)
        version->set(3);
    bool core = attach(callbacks, NVTX_CORE, core_functions,
                       sizeof core_functions / sizeof core_functions[0]);
    bool core2 = attach(callbacks, NVTX_CORE2, core2_functions,
                        sizeof core2_functions / sizeof core2_functions[0]);
    return core || core2;
}

/* Where a program links NVTX's loader without dlopen(), or asks for what was injected before. */
typedef int nvtx_initialize(nvtx_get_export *get_export);
RECORD_EXPORT extern nvtx_initialize *const InitializeInjectionNvtx2_fnptr;
nvtx_initialize *const InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
RECORD_EXPORT nvtx_initialize InitializeInjectionNvtx2Preinject;
RECORD_EXPORT int InitializeInjectionNvtx2Preinject(nvtx_get_export *get_export)
{
    return InitializeInjectionNvtx2(get_export);
}

/* libnvToolsExt.so, of NVTX 2 and older: its protocol was never published. */
RECORD_EXPORT int InitializeInjectionNvtx(const void *tables);
RECORD_EXPORT int InitializeInjectionNvtx(const void *tables)
{
    (void)tables;
    if (record_ever_wants(MR_TRACE_NVTX))
        record_note("no_nvtx", 0,
                    "a library of the program uses NVTX 2; only NVTX 3's ranges are recorded");
    return 0;
}
