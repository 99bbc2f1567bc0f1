/* Symbol tables of ELF files. Each number of the file is checked before it is used. */
#include "recording/symbols.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SECTIONS 65536u

static bool has(const struct mr_elf *elf, uint64_t offset, uint64_t bytes)
{
    return offset <= elf->bytes && bytes <= elf->bytes - offset;
}

static bool section_at(const struct mr_elf *elf, const Elf64_Ehdr *head, uint64_t i,
                       Elf64_Shdr *out)
{
    if (head->e_shentsize < sizeof *out || i >= MAX_SECTIONS || head->e_shoff > elf->bytes ||
        !has(elf, head->e_shoff + i * head->e_shentsize, sizeof *out))
        return false;
    memcpy(out, elf->data + head->e_shoff + i * head->e_shentsize, sizeof *out);
    return true;
}

static bool is_function(const Elf64_Sym *symbol)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
           symbol->st_value != 0;
}

/* A name ends within its table. */
static bool name_is_whole(const struct mr_elf *elf, const Elf64_Shdr *names, uint32_t name)
{
    return name < names->sh_size &&
           memchr(elf->data + names->sh_offset + name, 0, names->sh_size - name) &&
           names->sh_offset + name <= UINT32_MAX && elf->data[names->sh_offset + name];
}

static int add_symbols(struct mr_elf *elf, uint64_t *room, const Elf64_Shdr *table,
                       const Elf64_Shdr *names)
{
    if (!has(elf, table->sh_offset, table->sh_size) || !has(elf, names->sh_offset, names->sh_size))
        return 0;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, elf->data + table->sh_offset + i * sizeof symbol, sizeof symbol);
        if (!is_function(&symbol) || !name_is_whole(elf, names, symbol.st_name))
            continue;
        if (mr_grow("symbols", &elf->functions, room, elf->n + 1, sizeof *elf->functions) < 0)
            return -ENOMEM;
        elf->functions[elf->n++] = (struct mr_elf_function){
            symbol.st_value, symbol.st_size, (uint32_t)(names->sh_offset + symbol.st_name)};
    }
    return 0;
}

static int read_table(struct mr_elf *elf, const Elf64_Ehdr *head, uint64_t n, uint32_t type,
                      uint64_t *room)
{
    Elf64_Shdr table, names;
    int rc = 0;
    for (uint64_t i = 0; i < n && rc == 0 && section_at(elf, head, i, &table); i++)
        if (table.sh_type == type && table.sh_link < n &&
            section_at(elf, head, table.sh_link, &names) && names.sh_type == SHT_STRTAB)
            rc = add_symbols(elf, room, &table, &names);
    return rc;
}

static void read_build_id(struct mr_elf *elf, const Elf64_Ehdr *head, uint64_t n)
{
    Elf64_Shdr section;
    Elf64_Nhdr note;
    for (uint64_t i = 0; i < n && section_at(elf, head, i, &section); i++) {
        if (section.sh_type != SHT_NOTE || section.sh_size < sizeof note + 4 ||
            !has(elf, section.sh_offset, section.sh_size))
            continue;
        const unsigned char *at = elf->data + section.sh_offset;
        memcpy(&note, at, sizeof note);
        if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || note.n_descsz > 64 ||
            section.sh_size - sizeof note - 4 < note.n_descsz)
            continue;
        for (uint32_t k = 0; k < note.n_descsz; k++)
            snprintf(elf->build_id + (size_t)2 * k, 3, "%02x", at[sizeof note + 4 + k]);
    }
}

static int by_address(const void *a, const void *b)
{
    const struct mr_elf_function *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

int mr_elf_open(const void *data, size_t bytes, struct mr_elf *out)
{
    Elf64_Ehdr head;
    Elf64_Shdr first;
    *out = (struct mr_elf){.data = data, .bytes = bytes};
    if (!has(out, 0, sizeof head))
        return MR_EFORMAT;
    memcpy(&head, data, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB)
        return MR_EFORMAT;
    uint64_t n = head.e_shnum, room = 0;
    if (n == 0 && head.e_shoff && section_at(out, &head, 0, &first))
        n = first.sh_size; /* too many for the header */
    n = MR_MIN(n, MAX_SECTIONS);
    read_build_id(out, &head, n);
    int rc = read_table(out, &head, n, SHT_SYMTAB, &room);
    if (rc == 0 && out->n == 0)
        rc = read_table(out, &head, n, SHT_DYNSYM, &room);
    if (rc < 0)
        mr_elf_close(out);
    else if (out->n > 1)
        qsort(out->functions, out->n, sizeof *out->functions, by_address);
    return rc;
}

void mr_elf_close(struct mr_elf *elf)
{
    free(elf->functions);
    *elf = (struct mr_elf){0};
}

/* A function without a size, as of assembly, goes to the next one. */
const char *mr_elf_function_at(const struct mr_elf *elf, uint64_t address)
{
    uint64_t low = 0, high = elf->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (elf->functions[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const struct mr_elf_function *found = &elf->functions[low - 1];
    if (found->size && address - found->address >= found->size)
        return NULL;
    return (const char *)elf->data + found->name;
}
