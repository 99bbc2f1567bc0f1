/* Helpers for all ops: errors, random numbers, sizes of shapes, filling. Calls nothing else in this
 * room. */
#include "transform/transform.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int mr_op_error(const struct mr_op *op, int code, const char *fmt, ...)
{
    char what[MR_ERROR_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return mr_error_set(code, "transform %u: %.200s: %.800s", op->place, op->text, what);
}

int mr_op_callback_error(const struct mr_op *op, const struct mr_at *at, int rc, uint64_t errors)
{
    char who[160];
    snprintf(who, sizeof who, "transform %u: %.80s: sample %llu", op->place, op->text,
             (unsigned long long)at->index);
    return mr_callback_error(who, "apply", rc, 0, errors);
}

int mr_op_misfit(const struct mr_op *op, const struct mr_spec *spec, const char *what)
{
    char text[200];
    return mr_op_error(op, MR_ESHAPE, "%s %s", what, mr_spec_format(spec, text, sizeof text));
}

void mr_op_draw(const struct mr_op *op, const struct mr_at *at, uint32_t k, uint32_t out[4])
{
    mr_draw4(at->seed, MR_DRAW_TRANSFORM, at->index, at->epoch, op->place | k << 8, out);
}

uint64_t mr_dims_after(const uint64_t *dim, int rank, int d)
{
    uint64_t n = 1;
    for (d++; d < rank; d++)
        n *= dim[d];
    return n;
}

/* Doubles what is filled: few calls for any element size. */
char *mr_op_fill(char *to, uint64_t n, const unsigned char *value, size_t element)
{
    bool bytes = true;
    for (size_t i = 1; i < element; i++)
        bytes = bytes && value[i] == value[0];
    if (bytes) {
        memset(to, value[0], n);
        return to + n;
    }
    uint64_t done = MR_MIN(element, n);
    memcpy(to, value, done);
    for (; done < n; done += MR_MIN(done, n - done))
        memcpy(to + done, to, MR_MIN(done, n - done));
    return to + n;
}
