/*
 * ELF files: symbols are looked up, and frames unwound by the tables, of any bytes; within bounds.
 */
#include "recorder/sample/unwind.h"
#include "recording/symbols.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_symbols(const uint8_t *data, size_t size)
{
    struct mr_elf elf;
    if (mr_elf_open(data, size, &elf) < 0)
        return;
    for (uint64_t i = 0; i < elf.n; i++) {
        if (i > 0 && elf.functions[i].address < elf.functions[i - 1].address)
            abort();
        const char *name = mr_elf_function_at(&elf, elf.functions[i].address);
        if (name && ((const uint8_t *)name < data || strlen(name) >= size))
            abort();
    }
    mr_elf_close(&elf);
}

static void check_frames(const uint8_t *data, size_t size)
{
    struct unwind_module module;
    uint64_t words[64], address;
    if (!unwind_module_init(&module, data, size))
        return;
    for (size_t i = 0; i < MR_COUNT(words); i++)
        words[i] = 0x7000 + 8 * ((i * 7) % MR_COUNT(words));
    struct unwind_stack stack = {0x7000, (const unsigned char *)words, sizeof words};
    for (uint64_t offset = 0; offset < size; offset += 1 + size / 64) {
        struct unwind_registers now = {.known = (1u << UNWIND_REGISTERS) - 1};
        bool outermost = false, trap;
        for (unsigned i = 0; i < UNWIND_REGISTERS; i++)
            now.value[i] = 0x7000;
        if (!unwind_module_address(&module, offset, &address))
            continue;
        for (int n = 0; n < 8 && !outermost; n++)
            if (!unwind_by_table(&module, address, &stack, &now, &outermost, &trap))
                break;
        unwind_by_pointer(&stack, &now);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_symbols(data, size);
    check_frames(data, size);
    return 0;
}
