/* White-box: frames by unwind tables against the C library's backtrace(), by frame pointers on made
 * stacks, and symbols of ELF files: this program's own, cut and damaged. */
#include "unit.h"

#include "recorder/sample/expression.h"
#include "recording/symbols.h"

#include <alloca.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define DEEP 24

static unsigned char *self;
static size_t self_bytes;
static uint64_t self_base, self_code_end;

static int find_base(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)bytes, (void)unused;
    self_base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
            self_code_end = self_base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    return 1; /* the first one is the program */
}

static int read_self(void **state)
{
    (void)state;
    FILE *file = fopen("/proc/self/exe", "rb");
    dl_iterate_phdr(find_base, NULL);
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return -1;
    self_bytes = (size_t)ftell(file);
    self = malloc(self_bytes);
    rewind(file);
    bool ok = self && fread(self, 1, self_bytes, file) == self_bytes;
    fclose(file);
    return ok ? 0 : -1;
}

static int free_self(void **state)
{
    (void)state;
    free(self);
    return 0;
}

/* ---- symbols ---- */

static void own_functions_have_names(void **state)
{
    (void)state;
    struct mr_elf elf;
    assert_int_equal(mr_elf_open(self, self_bytes, &elf), 0);
    assert_true(elf.n > 10);
    const char *name = mr_elf_function_at(&elf, (uint64_t)(uintptr_t)find_base - self_base);
    assert_non_null(name);
    assert_string_equal(name, "find_base");
    name = mr_elf_function_at(&elf, (uint64_t)(uintptr_t)read_self - self_base + 5);
    assert_string_equal(name, "read_self");
    assert_null(mr_elf_function_at(&elf, 0));
    mr_elf_close(&elf);
}

static void use(const void *data, size_t bytes)
{
    static const uint64_t at[] = {0, 1, 0x1000, 0x40000, UINT64_MAX - 1};
    struct unwind_module module;
    struct mr_elf elf;
    int rc = mr_elf_open(data, bytes, &elf);
    assert_true(rc == 0 || rc == MR_EFORMAT);
    for (size_t i = 0; rc == 0 && i < MR_COUNT(at); i++) {
        const char *name = mr_elf_function_at(&elf, at[i]);
        assert_true(!name || strlen(name) < bytes);
    }
    mr_elf_close(&elf);
    if (!unwind_module_init(&module, data, bytes))
        return;
    for (size_t i = 0; i < MR_COUNT(at); i++) {
        uint64_t words[32] = {0}, address;
        bool outermost, trap;
        struct unwind_stack stack = {0x1000, (const unsigned char *)words, sizeof words};
        struct unwind_registers now = {.known = (1u << UNWIND_REGISTERS) - 1};
        now.value[UNWIND_RSP] = 0x1000;
        unwind_module_address(&module, at[i], &address);
        unwind_by_table(&module, at[i], &stack, &now, &outermost, &trap);
    }
}

static void broken_files_do_no_harm(void **state)
{
    (void)state;
    Elf64_Ehdr head;
    memcpy(&head, self, sizeof head);
    for (size_t bytes = 0; bytes < self_bytes; bytes += bytes < 256 ? 1 : self_bytes / 61) {
        unsigned char *cut = malloc(bytes + 1); /* so that what is behind is found */
        memcpy(cut, self, bytes);
        use(cut, bytes);
        free(cut);
    }
    unsigned char *copy = malloc(self_bytes);
    const size_t spots[] = {0, head.e_phoff, head.e_shoff};
    for (size_t s = 0; s < MR_COUNT(spots); s++)
        for (size_t i = 0; i < 200; i++) {
            if (spots[s] + i >= self_bytes)
                break;
            memcpy(copy, self, self_bytes);
            copy[spots[s] + i] ^= (unsigned char)(i % 3 ? 0xff : 0x81);
            use(copy, self_bytes);
        }
    free(copy);
    struct mr_elf elf;
    assert_int_equal(mr_elf_open("#!/bin/sh\n", 10, &elf), MR_EFORMAT);
}

static void places_without_symbols_are_numbers(void **state)
{
    (void)state;
    struct mr_symbol at[4];
    struct mr_symbols *symbols = mr_symbols_create();
    assert_int_equal(mr_symbols_find(symbols, "/no/such/libx.so", "", 0x1234, at, 4), 1);
    assert_string_equal(at[0].function, "libx.so+0x1234");
    assert_string_equal(at[0].file, "/no/such/libx.so");
    assert_int_equal(at[0].line, 0);
    uint64_t own = (uint64_t)(uintptr_t)find_base - self_base;
    /* another build of the same file */
    assert_int_equal(mr_symbols_find(symbols, "/proc/self/exe", "00ff", own, at, 4), 1);
    assert_null(strstr(at[0].function, "find_base"));
    assert_true(mr_symbols_find(symbols, "/proc/self/exe", "", own, at, 4) >= 1);
    assert_string_equal(at[0].function, "find_base");
    mr_symbols_destroy(symbols);
}

/* ---- frames ---- */

static void chains_of_pointers(void **state)
{
    (void)state;
    /* a frame: the caller's pointer, the return address */
    uint64_t words[] = {0x1020, 0xa1, 7, 7, 0x1040, 0xa2, 7, 7, 0x1010, 0xa3, 7, 7};
    struct unwind_stack stack = {0x1000, (const unsigned char *)words, sizeof words};
    struct unwind_registers now = {.known = 1u << UNWIND_RBP | 1u << UNWIND_RSP};
    now.value[UNWIND_RBP] = now.value[UNWIND_RSP] = 0x1000;
    for (uint64_t i = 1; i <= 3; i++) {
        assert_true(unwind_by_pointer(&stack, &now));
        assert_int_equal(now.value[UNWIND_RIP], 0xa0 + i);
        assert_int_equal(now.value[UNWIND_RSP], 0x1000 + 0x20 * (i - 1) + 16);
    }
    assert_false(unwind_by_pointer(&stack, &now)); /* it goes back */
    now.value[UNWIND_RBP] = 0x1058;                /* half a frame */
    now.value[UNWIND_RSP] = 0x1000;
    assert_false(unwind_by_pointer(&stack, &now));
    now.value[UNWIND_RBP] = UINT64_MAX - 4;
    assert_false(unwind_by_pointer(&stack, &now));
    now.known = 1u << UNWIND_RSP;
    assert_false(unwind_by_pointer(&stack, &now));
}

#ifdef __x86_64__
static ucontext_t context;
static unsigned char bytes[64 * 1024];
static struct unwind_stack taken = {0, bytes, 0};
static uint64_t end_of_stack; /* of what is taken */
static void *truth[64];
static int n_truth;

__attribute__((noinline, no_sanitize("address"))) static void take(void)
{
    n_truth = backtrace(truth, 64);
    getcontext(&context);
    taken.at = (uint64_t)context.uc_mcontext.gregs[REG_RSP];
    taken.bytes = end_of_stack - taken.at;
    for (size_t i = 0; i < taken.bytes; i++)
        bytes[i] = ((const volatile unsigned char *)(uintptr_t)taken.at)[i];
}

/* Some frames with, some without a frame pointer. */
__attribute__((noinline)) static int down(int n, int seed)
{
    volatile char fixed[8], *some = n % 3 ? fixed : alloca(100 + (size_t)seed);
    some[0] = (char)n;
    if (n == 0)
        take();
    else
        seed = down(n - 1, seed);
    return seed + some[0];
}

static bool is_own(uint64_t at)
{
    return at >= self_base && at < self_code_end;
}

static void tables_agree_with_backtrace(void **state)
{
    (void)state;
    static const int numbers[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                  REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    struct unwind_registers now = {.known = 0};
    struct unwind_module module;
    bool outermost, trap;
    int n = 1; /* of truth: 0 is in take() */
    end_of_stack = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    down(DEEP, 3);
    assert_true(unwind_module_init(&module, self, self_bytes));
    for (unsigned i = 0; i < UNWIND_REGISTERS; i++)
        now.value[i] = (uint64_t)context.uc_mcontext.gregs[numbers[i]];
    now.known = (1u << UNWIND_REGISTERS) - 1;
    for (; n <= DEEP && is_own(now.value[UNWIND_RIP]) && n < n_truth; n++) {
        assert_true(unwind_by_table(&module, now.value[UNWIND_RIP] - self_base - 1, &taken, &now,
                                    &outermost, &trap));
        assert_false(outermost || trap);
        if (n == 1) /* a sanitizer's backtrace() has a frame of its own */
            n += now.value[UNWIND_RIP] != (uint64_t)(uintptr_t)truth[1];
        assert_int_equal(now.value[UNWIND_RIP], (uint64_t)(uintptr_t)truth[n]);
    }
    assert_true(n > DEEP);
    /* without what the frames stand on there is no caller */
    now.value[UNWIND_RIP] = (uint64_t)context.uc_mcontext.gregs[REG_RIP];
    now.known = 0;
    assert_false(unwind_by_table(&module, now.value[UNWIND_RIP] - self_base, &taken, &now,
                                 &outermost, &trap));
}
#endif

static void expressions(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        size_t bytes;
        bool works;
        uint64_t result;
    } all[] = {
        /* of a PLT: rsp + 8 + ((rip & 15) >= 11) * 8 */
        {"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", 11, true, 0x1008 + 8},
        {"\x77\x08\x06", 3, true, 0x22},                            /* the word there */
        {"\x08\xff\x09\xff\x22", 5, true, 254},                     /* 255 + -1 */
        {"\x11\x7f\x23\x03", 4, true, 2},                           /* -1 + 3 */
        {"\x76\x00", 2, false, 0},                                  /* rbp is not known */
        {"\x0e\x01", 2, false, 0},                                  /* cut */
        {"\x22", 1, false, 0},                                      /* nothing to add */
        {"\x0e\xff\xff\xff\xff\xff\xff\xff\xff\x06", 10, false, 0}, /* far away */
        {"\x2f\xfd\xff", 3, false, 0},                              /* a jump */
        {"\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31\x31", 17, false, 0},
        {"", 0, false, 0},
    };
    uint64_t words[] = {0x11, 0x22};
    struct unwind_stack stack = {0x1000, (const unsigned char *)words, sizeof words};
    struct unwind_registers now = {.known = 1u << UNWIND_RSP | 1u << UNWIND_RIP};
    now.value[UNWIND_RSP] = 0x1000;
    now.value[UNWIND_RIP] = 0x500b;
    for (size_t i = 0; i < MR_COUNT(all); i++) {
        const unsigned char *code = (const unsigned char *)all[i].code;
        uint64_t result = 0;
        bool works = unwind_expression((struct unwind_bytes){code, code + all[i].bytes, false},
                                       NULL, &stack, &now, &result);
        assert_int_equal(works, all[i].works);
        if (works)
            assert_int_equal(result, all[i].result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_functions_have_names),
        cmocka_unit_test(broken_files_do_no_harm),
        cmocka_unit_test(places_without_symbols_are_numbers),
        cmocka_unit_test(chains_of_pointers),
#ifdef __x86_64__
        cmocka_unit_test(tables_agree_with_backtrace),
#endif
        cmocka_unit_test(expressions),
    };
    return cmocka_run_group_tests(tests, read_self, free_self);
}
