#include "recorder/sample/expression.h"

#include <string.h>

#define DEEPEST 16
#define LONGEST 256 /* operations */

uint64_t unwind_number(struct unwind_bytes *from, unsigned bytes)
{
    uint64_t value = 0; /* the machine's byte order is the file's */
    if ((size_t)(from->end - from->at) < bytes) {
        from->failed = true;
        from->at = from->end;
        return 0;
    }
    memcpy(&value, from->at, bytes);
    from->at += bytes;
    return value;
}

uint64_t unwind_uleb(struct unwind_bytes *from)
{
    uint64_t value = 0, byte = 0x80;
    for (unsigned shift = 0; byte & 0x80 && !from->failed; shift += 7) {
        byte = unwind_number(from, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    return value;
}

int64_t unwind_sleb(struct unwind_bytes *from)
{
    uint64_t value = 0, byte = 0x80;
    unsigned shift = 0;
    for (; byte & 0x80 && !from->failed; shift += 7) {
        byte = unwind_number(from, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    if (byte & 0x40 && shift < 64)
        value |= ~0ull << shift;
    return (int64_t)value;
}

bool unwind_word(const struct unwind_stack *stack, uint64_t at, uint64_t *out)
{
    if (at < stack->at || stack->bytes < 8 || at - stack->at > stack->bytes - 8)
        return false;
    memcpy(out, stack->data + (at - stack->at), 8);
    return true;
}

struct machine {
    uint64_t value[DEEPEST];
    unsigned n;
    bool failed;
};

static void push(struct machine *m, uint64_t value)
{
    if (m->n < DEEPEST)
        m->value[m->n++] = value;
    else
        m->failed = true;
}

static uint64_t pop(struct machine *m)
{
    if (m->n)
        return m->value[--m->n];
    m->failed = true;
    return 0;
}

/* Operations that take two. */
static bool binary(struct machine *m, unsigned code)
{
    uint64_t b = pop(m), a = pop(m);
    int64_t sa = (int64_t)a, sb = (int64_t)b;
    switch (code) {
    case 0x1a:
        push(m, a & b);
        return true;
    case 0x1c:
        push(m, a - b);
        return true;
    case 0x1e:
        push(m, a * b);
        return true;
    case 0x21:
        push(m, a | b);
        return true;
    case 0x22:
        push(m, a + b);
        return true;
    case 0x24:
        push(m, b < 64 ? a << b : 0);
        return true;
    case 0x25:
        push(m, b < 64 ? a >> b : 0);
        return true;
    case 0x27:
        push(m, a ^ b);
        return true;
    case 0x29:
        push(m, a == b);
        return true;
    case 0x2a:
        push(m, sa >= sb);
        return true;
    case 0x2b:
        push(m, sa > sb);
        return true;
    case 0x2c:
        push(m, sa <= sb);
        return true;
    case 0x2d:
        push(m, sa < sb);
        return true;
    case 0x2e:
        push(m, a != b);
        return true;
    default:
        return false;
    }
}

static bool constant(struct machine *m, struct unwind_bytes *in, unsigned code)
{
    switch (code) {
    case 0x08:
        push(m, unwind_number(in, 1));
        return true;
    case 0x09:
        push(m, (uint64_t)(int64_t)(int8_t)unwind_number(in, 1));
        return true;
    case 0x0a:
        push(m, unwind_number(in, 2));
        return true;
    case 0x0b:
        push(m, (uint64_t)(int64_t)(int16_t)unwind_number(in, 2));
        return true;
    case 0x0c:
        push(m, unwind_number(in, 4));
        return true;
    case 0x0d:
        push(m, (uint64_t)(int64_t)(int32_t)unwind_number(in, 4));
        return true;
    case 0x0e:
    case 0x0f:
        push(m, unwind_number(in, 8));
        return true;
    case 0x10:
        push(m, unwind_uleb(in));
        return true;
    case 0x11:
        push(m, (uint64_t)unwind_sleb(in));
        return true;
    default:
        return false;
    }
}

static bool of_register(struct machine *m, const struct unwind_registers *now, uint64_t number,
                        int64_t offset)
{
    if (number >= UNWIND_REGISTERS || !(now->known >> number & 1))
        return false;
    push(m, now->value[number] + (uint64_t)offset);
    return true;
}

static bool operate(struct machine *m, struct unwind_bytes *in, unsigned code,
                    const struct unwind_stack *stack, const struct unwind_registers *now)
{
    uint64_t a;
    if (code >= 0x30 && code <= 0x4f) {
        push(m, code - 0x30);
        return true;
    }
    if (code >= 0x70 && code <= 0x8f)
        return of_register(m, now, code - 0x70, unwind_sleb(in));
    if (code >= 0x08 && code <= 0x11)
        return constant(m, in, code);
    switch (code) {
    case 0x06: /* deref */
        if (!unwind_word(stack, pop(m), &a))
            return false;
        push(m, a);
        return true;
    case 0x12: /* dup */
        a = pop(m);
        push(m, a);
        push(m, a);
        return true;
    case 0x13: /* drop */
        pop(m);
        return true;
    case 0x1f: /* neg */
        push(m, 0 - pop(m));
        return true;
    case 0x20: /* not */
        push(m, ~pop(m));
        return true;
    case 0x23: /* plus_uconst */
        a = pop(m);
        push(m, a + unwind_uleb(in));
        return true;
    case 0x96: /* nop */
        return true;
    default:
        return binary(m, code);
    }
}

bool unwind_expression(struct unwind_bytes code, const uint64_t *first,
                       const struct unwind_stack *stack, const struct unwind_registers *now,
                       uint64_t *out)
{
    struct machine m = {.n = 0};
    if (first)
        push(&m, *first);
    for (unsigned i = 0; code.at < code.end; i++) {
        unsigned operation = (unsigned)unwind_number(&code, 1);
        if (i == LONGEST || !operate(&m, &code, operation, stack, now) || m.failed || code.failed)
            return false;
    }
    *out = pop(&m);
    return !m.failed;
}
