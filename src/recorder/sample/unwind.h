/*
 * Stacks from a copy of their bytes: the caller of a frame is found by its code's unwind table
 * (.eh_frame, which x86-64 compilers write without being asked), or by the frame pointer where code
 * has none. Nothing here reads memory but what it is given, whatever those bytes are.
 */
#ifndef MR_RECORDER_SAMPLE_UNWIND_H
#define MR_RECORDER_SAMPLE_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_REGISTERS 17 /* DWARF's numbers */
enum { UNWIND_RBX = 3, UNWIND_RBP = 6, UNWIND_RSP = 7, UNWIND_R12 = 12, UNWIND_RIP = 16 };

struct unwind_registers {
    uint64_t value[UNWIND_REGISTERS];
    uint32_t known; /* bits */
};

struct unwind_stack { /* what stood at [at, at + bytes) */
    uint64_t at;
    const unsigned char *data;
    size_t bytes;
};

/* The bytes of an ELF file, and what of it is needed here. */
struct unwind_module {
    const unsigned char *data;
    size_t bytes;
    uint64_t segments, n_segments, segment_bytes; /* program headers: offset, number, size */
    uint64_t table;                               /* address of .eh_frame_hdr; 0: none */
    unsigned char build_id[20];
    uint32_t build_id_bytes;
};

/* False: no such file for this machine. */
bool unwind_module_init(struct unwind_module *module, const void *data, size_t bytes);

/* The address, as in symbol tables, of a byte of the file; false: it is not loaded. */
bool unwind_module_address(const struct unwind_module *module, uint64_t offset, uint64_t *out);

/*
 * To the caller of the frame whose code is at `address` of the module (of a caller: the last byte
 * of its call). False: there is no entry for it, or it needs what is not known; the registers are
 * then as before. [out] outermost: the table says that there is no caller. [out] trap: the frame is
 * that of a signal, so that the caller's address is no return address.
 */
bool unwind_by_table(const struct unwind_module *module, uint64_t address,
                     const struct unwind_stack *stack, struct unwind_registers *registers,
                     bool *outermost, bool *trap);

/* The same by the chain of frame pointers. */
bool unwind_by_pointer(const struct unwind_stack *stack, struct unwind_registers *registers);

#endif
