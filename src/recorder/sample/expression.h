/* Numbers and expressions of unwind tables: each read is within bounds. */
#ifndef MR_RECORDER_SAMPLE_EXPRESSION_H
#define MR_RECORDER_SAMPLE_EXPRESSION_H

#include "recorder/sample/unwind.h"

struct unwind_bytes {
    const unsigned char *at, *end;
    bool failed; /* something was beyond the end, and taken for 0 */
};

uint64_t unwind_number(struct unwind_bytes *from, unsigned bytes); /* 1, 2, 4 or 8 */
uint64_t unwind_uleb(struct unwind_bytes *from);
int64_t unwind_sleb(struct unwind_bytes *from);

/* A word of the stack; false: it is not in the copy. */
bool unwind_word(const struct unwind_stack *stack, uint64_t at, uint64_t *out);

/* first: what is on the expression's stack when it begins; NULL: nothing. */
bool unwind_expression(struct unwind_bytes code, const uint64_t *first,
                       const struct unwind_stack *stack, const struct unwind_registers *now,
                       uint64_t *out);

#endif
