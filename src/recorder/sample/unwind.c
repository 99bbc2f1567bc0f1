/* Frames by the tables of their modules. "DWARF 5", 6.4, and the x86-64 psABI say what stands in
 * them; "Linux Standard Base", 10.6, what is different in .eh_frame. */
#include "recorder/sample/unwind.h"

#include "recorder/sample/expression.h"

#include <elf.h>
#include <string.h>

#define MAX_SAVED 8 /* DW_CFA_remember_state within one another */

static bool has(const struct unwind_module *module, uint64_t offset, uint64_t bytes)
{
    return offset <= module->bytes && bytes <= module->bytes - offset;
}

static bool segment_at(const struct unwind_module *module, uint64_t i, Elf64_Phdr *out)
{
    uint64_t at = module->segments + i * module->segment_bytes;
    if (!has(module, at, sizeof *out))
        return false;
    memcpy(out, module->data + at, sizeof *out);
    return true;
}

bool unwind_module_address(const struct unwind_module *module, uint64_t offset, uint64_t *out)
{
    Elf64_Phdr segment;
    for (uint64_t i = 0; i < module->n_segments && segment_at(module, i, &segment); i++)
        if (segment.p_type == PT_LOAD && offset >= segment.p_offset &&
            offset - segment.p_offset < segment.p_filesz) {
            *out = segment.p_vaddr + (offset - segment.p_offset);
            return true;
        }
    return false;
}

/* [out] end: of the bytes of this segment. */
static bool offset_of(const struct unwind_module *module, uint64_t address, uint64_t *out,
                      uint64_t *end)
{
    Elf64_Phdr segment;
    for (uint64_t i = 0; i < module->n_segments && segment_at(module, i, &segment); i++)
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz) {
            *out = segment.p_offset + (address - segment.p_vaddr);
            *end = segment.p_offset + segment.p_filesz;
            if (*end > module->bytes || *end < segment.p_offset)
                *end = module->bytes;
            return *out < *end;
        }
    return false;
}

static void find_build_id(struct unwind_module *module, const Elf64_Phdr *segment)
{
    uint64_t at = segment->p_offset, end = at + segment->p_filesz;
    Elf64_Nhdr note;
    if (!has(module, at, segment->p_filesz))
        return;
    while (end - at > sizeof note) {
        memcpy(&note, module->data + at, sizeof note);
        uint64_t name = at + sizeof note, text = name + ((note.n_namesz + 3ull) & ~3ull);
        uint64_t next = text + ((note.n_descsz + 3ull) & ~3ull);
        if (next > end)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(module->data + name, "GNU", 4) == 0 &&
            note.n_descsz <= sizeof module->build_id) {
            memcpy(module->build_id, module->data + text, note.n_descsz);
            module->build_id_bytes = note.n_descsz;
        }
        at = next;
    }
}

bool unwind_module_init(struct unwind_module *module, const void *data, size_t bytes)
{
    Elf64_Ehdr head;
    *module = (struct unwind_module){.data = data, .bytes = bytes};
    if (!has(module, 0, sizeof head))
        return false;
    memcpy(&head, data, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != EM_X86_64 ||
        head.e_phentsize < sizeof(Elf64_Phdr))
        return false;
    module->segments = head.e_phoff;
    module->n_segments = head.e_phnum;
    module->segment_bytes = head.e_phentsize;
    Elf64_Phdr segment;
    for (uint64_t i = 0; i < module->n_segments && segment_at(module, i, &segment); i++) {
        if (segment.p_type == PT_GNU_EH_FRAME)
            module->table = segment.p_vaddr;
        if (segment.p_type == PT_NOTE && !module->build_id_bytes)
            find_build_id(module, &segment);
    }
    return true;
}

/* ---- the table's encodings ---- */

enum {
    ABSOLUTE = 0,
    ULEB = 1,
    UDATA2 = 2,
    UDATA4 = 3,
    UDATA8 = 4,
    SDATA2 = 10,
    SDATA4 = 11,
    SDATA8 = 12
};
enum { PC_RELATIVE = 0x10, DATA_RELATIVE = 0x30, INDIRECT = 0x80, OMITTED = 0xff };

static uint64_t number_in(struct unwind_bytes *from, unsigned format)
{
    switch (format) {
    case ULEB:
        return unwind_uleb(from);
    case UDATA2:
        return unwind_number(from, 2);
    case UDATA4:
        return unwind_number(from, 4);
    case SDATA2:
        return (uint64_t)(int64_t)(int16_t)unwind_number(from, 2);
    case SDATA4:
        return (uint64_t)(int64_t)(int32_t)unwind_number(from, 4);
    case ABSOLUTE:
    case UDATA8:
    case SDATA8:
        return unwind_number(from, 8);
    default:
        from->failed = true;
        return 0;
    }
}

/* Where the next byte is loaded to. */
static uint64_t address_here(const struct unwind_module *module, const struct unwind_bytes *from)
{
    uint64_t address = 0;
    unwind_module_address(module, (uint64_t)(from->at - module->data), &address);
    return address;
}

static uint64_t encoded(const struct unwind_module *module, struct unwind_bytes *from,
                        unsigned encoding, uint64_t data_base)
{
    uint64_t base = 0;
    if ((encoding & 0x70) == PC_RELATIVE)
        base = address_here(module, from);
    else if ((encoding & 0x70) == DATA_RELATIVE)
        base = data_base;
    else if (encoding & 0x70 || encoding & INDIRECT)
        from->failed = true;
    return number_in(from, encoding & 0x0f) + base;
}

static bool bytes_at(const struct unwind_module *module, uint64_t address, struct unwind_bytes *out)
{
    uint64_t offset, end;
    if (!offset_of(module, address, &offset, &end))
        return false;
    *out = (struct unwind_bytes){module->data + offset, module->data + end, false};
    return true;
}

/* ---- entries ---- */

struct entry { /* an FDE with its CIE */
    uint64_t begin, length;
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_register;
    bool is_signal;
    struct unwind_bytes initial, instructions;
};

/* The body of the record at an address; `id` is the word behind its length. */
static bool record_at(const struct unwind_module *module, uint64_t address, uint64_t *id,
                      uint64_t *id_address, struct unwind_bytes *out)
{
    if (!bytes_at(module, address, out))
        return false;
    uint64_t length = unwind_number(out, 4);
    *id_address = address + 4;
    if (length == 0xffffffffu) {
        length = unwind_number(out, 8);
        *id_address = address + 12;
    }
    if (out->failed || length < 4 || length > (uint64_t)(out->end - out->at))
        return false;
    out->end = out->at + length;
    *id = unwind_number(out, 4);
    return !out->failed;
}

/* [out] encoding: of the FDE's addresses; has_size: its augmentation has one. */
static bool read_common(const struct unwind_module *module, uint64_t address, struct entry *entry,
                        unsigned *encoding, bool *has_size)
{
    uint64_t id, id_address;
    struct unwind_bytes in;
    if (!record_at(module, address, &id, &id_address, &in) || id != 0)
        return false;
    uint64_t version = unwind_number(&in, 1);
    const char *augmentation = (const char *)in.at;
    size_t n = strnlen(augmentation, (size_t)(in.end - in.at));
    if (n == (size_t)(in.end - in.at) || (version != 1 && version != 3))
        return false;
    in.at += n + 1;
    entry->code_factor = unwind_uleb(&in);
    entry->data_factor = unwind_sleb(&in);
    entry->return_register = version == 1 ? unwind_number(&in, 1) : unwind_uleb(&in);
    *has_size = augmentation[0] == 'z';
    if (n && !*has_size)
        return false;
    uint64_t size = *has_size ? unwind_uleb(&in) : 0;
    if (in.failed || size > (uint64_t)(in.end - in.at))
        return false;
    struct unwind_bytes more = {in.at, in.at + size, false};
    in.at += size;
    for (const char *c = augmentation + *has_size; *c && !more.failed; c++) {
        if (*c == 'R') {
            *encoding = (unsigned)unwind_number(&more, 1);
        } else if (*c == 'P') { /* of the personality routine only the size matters */
            unsigned kind = (unsigned)unwind_number(&more, 1);
            number_in(&more, kind & 0x0f);
        } else if (*c == 'L') {
            unwind_number(&more, 1);
        } else if (*c == 'S') {
            entry->is_signal = true;
        } else {
            return false;
        }
    }
    entry->initial = in;
    return !in.failed && !more.failed;
}

static bool read_entry(const struct unwind_module *module, uint64_t address, struct entry *out)
{
    uint64_t id, id_address;
    unsigned encoding = ABSOLUTE;
    bool has_size = false;
    struct unwind_bytes in;
    *out = (struct entry){0};
    if (!record_at(module, address, &id, &id_address, &in) || id == 0 ||
        !read_common(module, id_address - id, out, &encoding, &has_size))
        return false;
    out->begin = encoded(module, &in, encoding, 0);
    out->length = number_in(&in, encoding & 0x0f);
    uint64_t size = has_size ? unwind_uleb(&in) : 0;
    if (in.failed || size > (uint64_t)(in.end - in.at))
        return false;
    in.at += size;
    out->instructions = in;
    return true;
}

/* By the sorted table of .eh_frame_hdr: the last function that begins at or before the address. */
static bool find_entry(const struct unwind_module *module, uint64_t address, struct entry *out)
{
    struct unwind_bytes in;
    if (!module->table || !bytes_at(module, module->table, &in))
        return false;
    unsigned version = (unsigned)unwind_number(&in, 1), frames = (unsigned)unwind_number(&in, 1);
    unsigned counts = (unsigned)unwind_number(&in, 1), kind = (unsigned)unwind_number(&in, 1);
    if (version != 1 || kind != (DATA_RELATIVE | SDATA4) || counts == OMITTED)
        return false;
    encoded(module, &in, frames, module->table);
    uint64_t n = encoded(module, &in, counts, module->table);
    if (in.failed || n == 0 || n > (uint64_t)(in.end - in.at) / 8)
        return false;
    int64_t wanted = (int64_t)(address - module->table);
    uint64_t low = 0, high = n;
    int32_t pair[2];
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        memcpy(pair, in.at + middle * 8, sizeof pair);
        if (pair[0] <= wanted)
            low = middle;
        else
            high = middle;
    }
    memcpy(pair, in.at + low * 8, sizeof pair);
    if (pair[0] > wanted || !read_entry(module, module->table + (uint64_t)(int64_t)pair[1], out))
        return false;
    return address >= out->begin && address - out->begin < out->length;
}

/* ---- instructions ---- */

enum rule_kind { SAME, UNDEFINED, OFFSET, VALUE_OFFSET, REGISTER, EXPRESSION, VALUE_EXPRESSION };

struct rule {
    enum rule_kind kind;
    int64_t offset; /* or the register */
    struct unwind_bytes expression;
};

struct row {
    uint64_t cfa_register;
    int64_t cfa_offset;
    bool cfa_is_expression;
    struct unwind_bytes cfa;
    struct rule rules[UNWIND_REGISTERS];
};

struct run {
    const struct unwind_module *module;
    const struct entry *entry;
    struct row row, initial, saved[MAX_SAVED];
    unsigned n_saved;
    uint64_t location, wanted;
};

static void set_rule(struct run *run, uint64_t number, enum rule_kind kind, int64_t offset)
{
    if (number < UNWIND_REGISTERS)
        run->row.rules[number] = (struct rule){.kind = kind, .offset = offset};
}

static struct unwind_bytes block(struct unwind_bytes *in)
{
    uint64_t n = unwind_uleb(in);
    struct unwind_bytes out = {in->at, in->at, false};
    if (in->failed || n > (uint64_t)(in->end - in->at)) {
        in->failed = true;
        return out;
    }
    out.end = in->at += n;
    return out;
}

static void set_expression(struct run *run, struct unwind_bytes *in, enum rule_kind kind)
{
    uint64_t number = unwind_uleb(in);
    struct unwind_bytes expression = block(in);
    if (number < UNWIND_REGISTERS)
        run->row.rules[number] = (struct rule){.kind = kind, .expression = expression};
}

static void set_cfa(struct run *run, uint64_t number, int64_t offset)
{
    run->row.cfa_register = number;
    run->row.cfa_offset = offset;
    run->row.cfa_is_expression = false;
}

static void restore(struct run *run, uint64_t number)
{
    if (number < UNWIND_REGISTERS)
        run->row.rules[number] = run->initial.rules[number];
}

/* Offsets of a broken file wrap around. */
static int64_t scaled(const struct run *run, uint64_t number)
{
    return (int64_t)(number * (uint64_t)run->entry->data_factor);
}

/* Those whose code is in the two high bits. */
static void run_short(struct run *run, struct unwind_bytes *in, unsigned code)
{
    unsigned low = code & 0x3f;
    if (code >> 6 == 1)
        run->location += low * run->entry->code_factor;
    else if (code >> 6 == 2)
        set_rule(run, low, OFFSET, scaled(run, unwind_uleb(in)));
    else
        restore(run, low);
}

static bool run_saved(struct run *run, unsigned code)
{
    if (code == 0x0a && run->n_saved < MAX_SAVED) {
        run->saved[run->n_saved++] = run->row;
        return true;
    }
    if (code != 0x0b || run->n_saved == 0)
        return false;
    run->row = run->saved[--run->n_saved];
    return true;
}

static bool run_one(struct run *run, struct unwind_bytes *in, unsigned code)
{
    uint64_t step = run->entry->code_factor, number;
    switch (code) {
    case 0x00: /* nop */
        return true;
    case 0x01: /* set_loc: not written by compilers for x86-64 */
        return false;
    case 0x02:
        run->location += unwind_number(in, 1) * step;
        return true;
    case 0x03:
        run->location += unwind_number(in, 2) * step;
        return true;
    case 0x04:
        run->location += unwind_number(in, 4) * step;
        return true;
    case 0x05: /* offset_extended */
        number = unwind_uleb(in);
        set_rule(run, number, OFFSET, scaled(run, unwind_uleb(in)));
        return true;
    case 0x06:
        restore(run, unwind_uleb(in));
        return true;
    case 0x07:
        set_rule(run, unwind_uleb(in), UNDEFINED, 0);
        return true;
    case 0x08:
        set_rule(run, unwind_uleb(in), SAME, 0);
        return true;
    case 0x09: /* register */
        number = unwind_uleb(in);
        set_rule(run, number, REGISTER, (int64_t)unwind_uleb(in));
        return true;
    case 0x0a:
    case 0x0b:
        return run_saved(run, code);
    case 0x0c: /* def_cfa */
        number = unwind_uleb(in);
        set_cfa(run, number, (int64_t)unwind_uleb(in));
        return true;
    case 0x0d:
        run->row.cfa_register = unwind_uleb(in);
        return true;
    case 0x0e:
        run->row.cfa_offset = (int64_t)unwind_uleb(in);
        return true;
    case 0x0f:
        run->row.cfa = block(in);
        run->row.cfa_is_expression = true;
        return true;
    case 0x10:
        set_expression(run, in, EXPRESSION);
        return true;
    case 0x11: /* offset_extended_sf */
        number = unwind_uleb(in);
        set_rule(run, number, OFFSET, scaled(run, (uint64_t)unwind_sleb(in)));
        return true;
    case 0x12: /* def_cfa_sf */
        number = unwind_uleb(in);
        set_cfa(run, number, scaled(run, (uint64_t)unwind_sleb(in)));
        return true;
    case 0x13:
        run->row.cfa_offset = scaled(run, (uint64_t)unwind_sleb(in));
        return true;
    case 0x14:
        number = unwind_uleb(in);
        set_rule(run, number, VALUE_OFFSET, scaled(run, unwind_uleb(in)));
        return true;
    case 0x16:
        set_expression(run, in, VALUE_EXPRESSION);
        return true;
    case 0x2e: /* GNU_args_size */
        unwind_uleb(in);
        return true;
    default:
        return false;
    }
}

/* Up to the row that holds at the wanted address. */
static bool run_all(struct run *run, struct unwind_bytes in)
{
    while (in.at < in.end && run->location <= run->wanted) {
        unsigned code = (unsigned)unwind_number(&in, 1);
        if (code >> 6)
            run_short(run, &in, code);
        else if (!run_one(run, &in, code))
            return false;
        if (in.failed)
            return false;
    }
    return true;
}

/* ---- a frame ---- */

static bool value_by(const struct rule *rule, unsigned number, uint64_t cfa,
                     const struct unwind_stack *stack, const struct unwind_registers *now,
                     uint64_t *out)
{
    uint64_t of = rule->kind == REGISTER ? (uint64_t)rule->offset : number, at;
    switch (rule->kind) {
    case SAME:
    case REGISTER:
        *out = of < UNWIND_REGISTERS ? now->value[of] : 0;
        return of < UNWIND_REGISTERS && now->known >> of & 1;
    case OFFSET:
        return unwind_word(stack, cfa + (uint64_t)rule->offset, out);
    case VALUE_OFFSET:
        *out = cfa + (uint64_t)rule->offset;
        return true;
    case EXPRESSION:
        return unwind_expression(rule->expression, &cfa, stack, now, &at) &&
               unwind_word(stack, at, out);
    case VALUE_EXPRESSION:
        return unwind_expression(rule->expression, &cfa, stack, now, out);
    default:
        return false;
    }
}

static bool find_cfa(const struct row *row, const struct unwind_stack *stack,
                     const struct unwind_registers *now, uint64_t *out)
{
    if (row->cfa_is_expression)
        return unwind_expression(row->cfa, NULL, stack, now, out);
    if (row->cfa_register >= UNWIND_REGISTERS || !(now->known >> row->cfa_register & 1))
        return false;
    *out = now->value[row->cfa_register] + (uint64_t)row->cfa_offset;
    return true;
}

static bool apply(const struct run *run, const struct unwind_stack *stack,
                  struct unwind_registers *registers, bool *outermost)
{
    struct unwind_registers next = {.known = 0};
    uint64_t cfa, return_register = run->entry->return_register;
    if (return_register >= UNWIND_REGISTERS || !find_cfa(&run->row, stack, registers, &cfa))
        return false;
    if (run->row.rules[return_register].kind == UNDEFINED) {
        *outermost = true;
        return true;
    }
    for (unsigned i = 0; i < UNWIND_REGISTERS; i++)
        if (value_by(&run->row.rules[i], i, cfa, stack, registers, &next.value[i]))
            next.known |= 1u << i;
    if (run->row.rules[UNWIND_RSP].kind == SAME) {
        next.value[UNWIND_RSP] = cfa;
        next.known |= 1u << UNWIND_RSP;
    }
    if (!(next.known >> return_register & 1))
        return false;
    next.value[UNWIND_RIP] = next.value[return_register];
    next.known |= 1u << UNWIND_RIP;
    *registers = next;
    return true;
}

bool unwind_by_table(const struct unwind_module *module, uint64_t address,
                     const struct unwind_stack *stack, struct unwind_registers *registers,
                     bool *outermost, bool *trap)
{
    struct entry entry;
    *outermost = *trap = false;
    if (!find_entry(module, address, &entry))
        return false;
    struct run run = {.module = module, .entry = &entry, .wanted = UINT64_MAX};
    if (!run_all(&run, entry.initial))
        return false;
    run.initial = run.row;
    run.location = entry.begin;
    run.wanted = address;
    if (!run_all(&run, entry.instructions))
        return false;
    *trap = entry.is_signal;
    return apply(&run, stack, registers, outermost);
}

bool unwind_by_pointer(const struct unwind_stack *stack, struct unwind_registers *registers)
{
    uint64_t pointer = registers->value[UNWIND_RBP], saved, back;
    if (!(registers->known >> UNWIND_RBP & 1) || pointer < registers->value[UNWIND_RSP] ||
        !unwind_word(stack, pointer, &saved) || !unwind_word(stack, pointer + 8, &back))
        return false;
    registers->value[UNWIND_RBP] = saved;
    registers->value[UNWIND_RSP] = pointer + 16;
    registers->value[UNWIND_RIP] = back;
    registers->known = 1u << UNWIND_RBP | 1u << UNWIND_RSP | 1u << UNWIND_RIP;
    return true;
}
