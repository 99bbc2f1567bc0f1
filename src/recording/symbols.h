/*
 * Names of places in compiled code: functions by the symbol tables of ELF files (.symtab, else
 * .dynsym); with libdw (elfutils), where it is installed, also source lines, inlined functions, and
 * the symbols of debug files beside (/usr/lib/debug/.build-id). Nothing is fetched from a network.
 * Threads: none of its own; a struct mr_symbols is one thread's.
 */
#ifndef MR_RECORDING_SYMBOLS_H
#define MR_RECORDING_SYMBOLS_H

#include "base/base.h"

struct mr_symbol {
    const char *function; /* perhaps mangled */
    const char *file;     /* source, or the module where that is not known */
    uint32_t line;        /* 0: not known */
};

struct mr_symbols;

/* NULL: no memory. */
struct mr_symbols *mr_symbols_create(void);
void mr_symbols_destroy(struct mr_symbols *symbols);

/*
 * What stands at an address of a module: the innermost function first, then those that it was
 * inlined into. build_id: hexadecimal digits; a file with another one is not looked at ("": any).
 * [out] out: texts hold until the next call. Returns how many, from 1 to max; a place without a
 * symbol is "libx.so+0x1234".
 */
uint32_t mr_symbols_find(struct mr_symbols *symbols, const char *module, const char *build_id,
                         uint64_t address, struct mr_symbol *out, uint32_t max);

/* ---- elf.c ---- */

/* The functions of an ELF file of 64 bits. */
struct mr_elf {
    const unsigned char *data;
    size_t bytes;
    struct mr_elf_function {
        uint64_t address, size;
        uint32_t name; /* where in the file */
    } * functions;     /* by address */
    uint64_t n;
    char build_id[129];
};

/* Reads the tables; data must stay. Returns 0; MR_EFORMAT: it is no such file; -ENOMEM. A damaged
 * table is left out. */
int mr_elf_open(const void *data, size_t bytes, struct mr_elf *out);
void mr_elf_close(struct mr_elf *elf);

/* The function at this address; NULL: there is none. */
const char *mr_elf_function_at(const struct mr_elf *elf, uint64_t address);

/* ---- dwarf.c ---- */

struct mr_dwarf;

/* Lines of a file; NULL: libdw is not there, or does not read it. */
struct mr_dwarf *mr_dwarf_open(const char *path);
void mr_dwarf_close(struct mr_dwarf *dwarf);

/* As mr_symbols_find(); 0: nothing is known of this place. */
uint32_t mr_dwarf_find(struct mr_dwarf *dwarf, uint64_t address, struct mr_symbol *out,
                       uint32_t max);

#endif
