/*
 * White-box. A trainer's end of a server's socket: a sound welcome, two batches and an end, in
 * which the input changes words, 11 bytes each: what, which word, and to what. Whatever comes, the
 * trainer takes batches whose bytes and numbers are in its memory, or says what is wrong.
 */
#include "memfile.h"
#include "serve/wire.h"

#include <sys/socket.h>

#define PATCH      11
#define SLOT_AT    8192u
#define SLOT_BYTES 4096u
#define SAMPLES    4

struct told {
    struct mr_wire_welcome welcome;
    struct mr_wire_batch batch[2];
    struct mr_wire_end end;
    struct {
        struct mr_wire_note note;
        uint64_t numbers[4 * SAMPLES];
    } memory;
};

static const struct mr_spec spec = {.name = "x", .dtype = MR_U8, .rank = 1, .dim = {16}};

static void fill(struct told *t)
{
    const uint64_t at = sizeof t->memory.note;
    *t = (struct told){.welcome = {.kind = MR_WIRE_WELCOME,
                                   .n_fields = 1,
                                   .mark = MR_SERVE_MARK,
                                   .batches = 2,
                                   .samples = 2ull * SAMPLES,
                                   .ahead = 2,
                                   .field = {spec}},
                       .end = {.kind = MR_WIRE_END, .mark = MR_SERVE_MARK},
                       .memory = {.note = {.n = SAMPLES,
                                           .n_fields = 1,
                                           .indices = at,
                                           .positions = at + 8ull * SAMPLES,
                                           .end = 16ull * SAMPLES,
                                           .field = {{.spec = spec,
                                                      .bytes = 16ull * SAMPLES,
                                                      .offsets = at + 16ull * SAMPLES}}}}};
    for (uint32_t i = 0; i < 2; i++)
        t->batch[i] = (struct mr_wire_batch){.kind = MR_WIRE_BATCH,
                                             .slot = i,
                                             .note = i,
                                             .number = i,
                                             .offset = SLOT_AT,
                                             .bytes = SLOT_BYTES,
                                             .note_bytes = sizeof t->memory};
}

static void patch(struct told *t, const uint8_t *data, size_t size)
{
    const struct {
        void *at;
        size_t bytes;
    } part[] = {{&t->welcome, sizeof t->welcome},
                {t->batch, sizeof t->batch},
                {&t->end, sizeof t->end},
                {&t->memory, sizeof t->memory}};
    for (; size >= PATCH; data += PATCH, size -= PATCH) {
        unsigned p = data[0] % 4, word = data[1] | (unsigned)data[2] << 8;
        memcpy((char *)part[p].at + word % (part[p].bytes / 8) * 8, data + 3, 8);
    }
}

static uint64_t add_up(const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes; i++)
        sum += at[i];
    return sum;
}

static uint64_t look(const struct mr_batch *b)
{
    uint64_t sum = 0;
    if (b->n_fields < 1 || b->n_fields > MR_MAX_FIELDS || (b->n > 0 && !b->indices))
        abort();
    if (b->n > 0)
        sum += add_up(b->indices, b->n * 8) + add_up(b->positions, b->n * 8);
    for (int f = 0; f < b->n_fields; f++) {
        const struct mr_batch_field *field = &b->field[f];
        sum += add_up(field->host, field->bytes);
        if (field->offsets)
            sum += add_up(field->offsets, (b->n + 1) * 8);
        if (field->lengths)
            sum += add_up(field->lengths, b->n * 8);
        if (mr_dtype_size(field->spec.dtype) == 0)
            abort();
    }
    return sum;
}

static void take(struct mr_attached *a)
{
    struct mr_batch b = {.size = sizeof b};
    for (int i = 0; i < 4; i++) {
        int rc = mr_attached_next_for(a, NULL, 0, &b);
        if (rc < 0 && !mr_last_error()[0])
            abort();
        if (rc != 1)
            return;
        volatile uint64_t sum = look(&b);
        (void)sum;
        if (mr_attached_release(a, &b, NULL) < 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct told t;
    struct mr_attach_opts opts;
    struct mr_attached *a = NULL;
    int ends[2], memory = memfd_create("fuzz", MFD_CLOEXEC);
    fill(&t);
    patch(&t, data, size);
    if (memory < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    if (ftruncate(memory, SLOT_AT + SLOT_BYTES) < 0 ||
        pwrite(memory, &t.memory, sizeof t.memory, 0) != sizeof t.memory)
        abort();
    mr_wire_send(ends[0], &t.welcome, sizeof t.welcome, memory);
    for (int i = 0; i < 2; i++)
        mr_wire_send(ends[0], &t.batch[i], sizeof t.batch[i], -1);
    mr_wire_send(ends[0], &t.end, sizeof t.end, -1);
    mr_attach_opts_init(&opts);
    opts.fd = ends[1];
    int rc = mr_loader_attach(NULL, &opts, &a);
    if (rc < 0 && !mr_last_error()[0])
        abort();
    if (rc == 0)
        take(a);
    mr_attached_close(a);
    close(ends[0]);
    close(ends[1]);
    close(memory);
    return 0;
}
