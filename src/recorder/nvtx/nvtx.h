/*
 * NVTX 3's injection protocol, as far as it is used here, and what the files of our injection
 * share.
 *
 * A program's copy of NVTX hands us a function that gives tables; a module's table holds the
 * addresses of the function pointers which its calls go through.
 * tests/unit/test_record_nvtx_layout.c compares all this with the toolkit's headers where they are.
 *
 * Locks (record_lock): names, starts and threads each alone. A signal handler that interrupts one
 * of our functions is turned away by record_nvtx_busy, so no thread waits for itself.
 */
#ifndef MR_RECORDER_NVTX_NVTX_H
#define MR_RECORDER_NVTX_NVTX_H

#include "recorder/private.h"

#include <wchar.h>

enum nvtx_module { NVTX_CORE = 1, NVTX_CORE2 = 5 };
enum nvtx_export { NVTX_EXPORT_CALLBACKS = 1, NVTX_EXPORT_VERSION = 3 };

enum nvtx_core {
    CORE_MARK_EX = 1,
    CORE_MARK_A,
    CORE_MARK_W,
    CORE_START_EX,
    CORE_START_A,
    CORE_START_W,
    CORE_END,
    CORE_PUSH_EX,
    CORE_PUSH_A,
    CORE_PUSH_W,
    CORE_POP,
    CORE_CATEGORY_A,
    CORE_CATEGORY_W,
    CORE_THREAD_A,
    CORE_THREAD_W
};

enum nvtx_core2 {
    CORE2_MARK_EX = 1,
    CORE2_START_EX,
    CORE2_END,
    CORE2_PUSH_EX,
    CORE2_POP,
    CORE2_RESOURCE,
    CORE2_RESOURCE_DESTROY,
    CORE2_CATEGORY_A,
    CORE2_CATEGORY_W,
    CORE2_STRING_A,
    CORE2_STRING_W,
    CORE2_DOMAIN_A,
    CORE2_DOMAIN_W,
    CORE2_DOMAIN_DESTROY,
    CORE2_INITIALIZE
};

typedef void nvtx_function(void);
typedef const void *nvtx_get_export(uint32_t id);

struct nvtx_callbacks {
    size_t bytes;
    int (*get)(uint32_t module, nvtx_function ****out_table, unsigned *out_size);
};

struct nvtx_version {
    size_t bytes;
    uint32_t version, reserved;
    void (*set)(uint32_t version);
};

enum { NVTX_TEXT_ASCII = 1, NVTX_TEXT_WIDE = 2, NVTX_TEXT_REGISTERED = 3 };
enum { NVTX_COLOR_IS_ARGB = 1 };
enum { NVTX_PAYLOAD_LAST = 6, NVTX_PAYLOAD_FIRST_32_BITS = 4 };

union nvtx_text_of {
    const char *ascii;
    const wchar_t *wide;
    void *registered;
};

struct nvtx_attributes { /* what lies beyond `bytes` is not there */
    uint16_t version, bytes;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t text_type;
    union nvtx_text_of text;
};

#define NVTX_THREAD_NATIVE 0x10003
#define NVTX_THREAD_POSIX  0x10004

struct nvtx_resource {
    uint16_t version, bytes;
    int32_t type;
    uint64_t identifier;
    int32_t text_type;
    union nvtx_text_of text;
};

/* A text that stays: a registered string, or a name. Its number in the part is looked up again in a
 * forked child. */
struct nvtx_text {
    struct nvtx_text *next;
    _Atomic uint64_t number; /* generation + 1 in the high half; 0: never asked */
    uint64_t hash;
    uint32_t bytes;
    char data[];
};

struct nvtx_category {
    struct nvtx_category *next;
    uint32_t category;
    _Atomic(struct nvtx_text *) name;
};

#define N_CATEGORY_LISTS 64
struct nvtx_domain {
    struct nvtx_domain *next;
    struct nvtx_text *name; /* NULL: the default domain */
    uint8_t captures;       /* not 0: the range that opens the capture is one of this domain */
    _Atomic(struct nvtx_category *) categories[N_CATEGORY_LISTS];
};

/* A range's name, with its domain. */
struct nvtx_name {
    struct nvtx_domain *domain;
    struct nvtx_text *text;
};

/* A message as it was given: of the three at most one is used. */
#define MAX_WIDE 4096
struct nvtx_message {
    const char *text; /* NULL: none */
    struct nvtx_text *registered;
    char wide[MAX_WIDE];
};

extern _Thread_local volatile bool record_nvtx_busy;

/* nvtx.c: sets everything up once; whether ranges are recorded in this process. */
bool nvtx_begin(void);

/* record_nvtx_names.c */
void nvtx_message_read(struct nvtx_message *message, int type, union nvtx_text_of text);
uint32_t nvtx_message_number(const struct nvtx_message *message);
struct nvtx_text *nvtx_text_keep(const char *text); /* NULL for NULL, or without memory */
uint32_t nvtx_text_number(struct nvtx_text *text);
struct nvtx_domain *
nvtx_domain_find(const char *name); /* made when it is new; NULL without memory */
struct nvtx_domain *nvtx_domain_of(void *handle);
/* domain: NULL: the default one. NULL without memory. */
struct nvtx_name *nvtx_name_keep(const char *domain, const char *text);
void nvtx_category_name(struct nvtx_domain *domain, uint32_t category, const char *name);
uint32_t nvtx_category_number(struct nvtx_domain *domain, uint32_t category);
void nvtx_names_begin(void); /* reads which range opens the capture */
bool nvtx_names_capture(const struct nvtx_domain *domain, const struct nvtx_message *message);
void nvtx_names_forked(void);

/* record_nvtx_ranges.c; attributes: NULL for none */
void nvtx_mark(struct nvtx_domain *domain, const struct nvtx_attributes *attributes,
               const struct nvtx_message *message);
int nvtx_push(struct nvtx_domain *domain, const struct nvtx_attributes *attributes,
              const struct nvtx_message *message);
int nvtx_pop(struct nvtx_domain *domain);
/* A push that returns the range's number (0: no room), and the pop of that one. */
uint64_t nvtx_push_id(struct nvtx_domain *domain, const struct nvtx_message *message);
void nvtx_pop_id(uint64_t id);
uint64_t nvtx_start(struct nvtx_domain *domain, const struct nvtx_attributes *attributes,
                    const struct nvtx_message *message);
void nvtx_end(uint64_t id);
void nvtx_ranges_begin(void);
void nvtx_ranges_finish(void); /* puts what is open */
void nvtx_ranges_forked(void);

#endif
