/* From frame to frame, and the numbers of stacks. */
#include "recorder/sample/sample.h"

#include <string.h>

#define MAX_STACKS (1u << 18) /* of a process */
#define MAX_KNOWN  (1u << 19) /* places of the table: a power of two */
#define DEEPEST    256        /* frames; a stack loses its outermost ones */

struct frame {
    const struct sample_module *module; /* NULL: code of no file */
    uint64_t address;
};

/* A stack that has its number. */
struct known {
    const struct sample_module *module;
    uint64_t address;
    uint32_t parent, id; /* id 0: free */
};

static struct known *table;
static uint32_t n_stacks, generation;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185ull;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44dull;
    return x ^ x >> 33;
}

static struct known *find(uint32_t parent, const struct frame *frame)
{
    uint64_t hash = mix(frame->address ^ mix((uint64_t)(uintptr_t)frame->module ^ parent));
    for (uint32_t i = 0;; i++) { /* at most half of it is full */
        struct known *known = &table[(hash + i) & (MAX_KNOWN - 1)];
        if (!known->id || (known->parent == parent && known->address == frame->address &&
                           known->module == frame->module))
            return known;
    }
}

static bool is_ready(void)
{
    if (!record_start())
        return false;
    if (table && generation == record_generation())
        return true;
    if (table)
        record_unmap(table, MAX_KNOWN * sizeof *table);
    table = record_map(MAX_KNOWN * sizeof *table);
    generation = record_generation();
    n_stacks = 0;
    return table;
}

/* name: of a frame that is of no module. */
static uint32_t add(uint32_t parent, const struct frame *frame, const char *name)
{
    struct known *known = find(parent, frame);
    if (known->id)
        return known->id;
    if (n_stacks >= MAX_STACKS) {
        if (n_stacks++ == MAX_STACKS)
            record_note("warning", MAX_STACKS,
                        "more different stacks than are kept: the last ones are cut");
        return parent;
    }
    const struct sample_module *module = frame->module;
    struct mr_part_stack stack = {
        .id = MR_PART_FIRST_C_STACK + ++n_stacks * MR_PART_C_STACK_STEP,
        .parent = parent,
        .function = module ? 0 : record_string(name),
        .file = module ? record_string(module->path) : 0,
        .build_id = module && module->build_id[0] ? record_string(module->build_id) : 0,
        .is_c = 1,
        .address = module ? frame->address : 0};
    record_put(MR_PART_STACK, &stack);
    *known = (struct known){module, frame->address, parent, stack.id};
    return stack.id;
}

static bool up(const struct frame *frame, const struct unwind_stack *stack,
               struct unwind_registers *registers, bool *outermost, bool *trap)
{
    uint64_t unused, before = registers->value[UNWIND_RSP];
    *outermost = *trap = false;
    if (frame->module && frame->module->has_elf &&
        unwind_by_table(&frame->module->elf, frame->address, stack, registers, outermost, trap))
        return *outermost || registers->value[UNWIND_RSP] > before;
    return unwind_by_pointer(stack, registers) &&
           sample_module_at(registers->value[UNWIND_RIP] - 1, &unused);
}

uint32_t sample_walk(const struct unwind_stack *stack, struct unwind_registers registers,
                     bool caller)
{
    struct frame frames[DEEPEST];
    uint32_t n = 0, id = 0;
    bool outermost = false, trap = false;
    if (!is_ready())
        return 0;
    while (n < DEEPEST && registers.value[UNWIND_RIP]) {
        uint64_t at = registers.value[UNWIND_RIP] - caller;
        struct frame *frame = &frames[n++];
        frame->address = 0;
        frame->module = sample_module_at(at, &frame->address);
        if (!frame->module)
            frame->address = 0;
        if (!up(frame, stack, &registers, &outermost, &trap) || outermost)
            break;
        caller = !trap;
    }
    if (n == 0)
        return 0;
    if (!outermost && registers.value[UNWIND_RIP])
        id = add(0, &(struct frame){NULL, 1}, "[callers not known]");
    while (n-- > 0)
        id = add(id, &frames[n], "[code of no file]");
    return id;
}

uint32_t sample_named(const char *name)
{
    return is_ready() ? add(0, &(struct frame){NULL, (uintptr_t)name}, name) : 0;
}

void sample_walk_forked(void)
{
    generation = 0;
    if (table)
        record_unmap(table, MAX_KNOWN * sizeof *table);
    table = NULL;
}
