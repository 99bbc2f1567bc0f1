/* Arrow tables: values as a plain reading of hand-made arrays; what is refused, and why. */
#include "run_loader.h"
#include "samples.h"

#define CHUNKS  2
#define ROWS    11 /* of a chunk */
#define SKIP    3  /* the table's offset, and that of each column */
#define COLUMNS 5
#define VALUES  100

enum { FLAG, X, BOX, KEY, TEXT };
static const char *const names[] = {"flag", "x", "box", "key", "text"};
static const char *const formats[] = {"b", "s", "+w:2", "w:3", "u"};

/* A table of two chunks, and the memory of its arrays. */
struct table {
    struct ArrowSchema schema, column[COLUMNS], item, *columns[COLUMNS], *items[1];
    struct ArrowArray chunk[CHUNKS];
    struct part {
        struct ArrowArray column[COLUMNS], item, *columns[COLUMNS], *items[1];
        const void *buffer[COLUMNS + 2][3];
        uint8_t bits[VALUES], key[3 * VALUES], valid[VALUES];
        int16_t x[VALUES];
        float box[VALUES];
        int32_t offsets[VALUES];
        char text[10 * VALUES];
    } part[CHUNKS];
};

static int schemas_released, chunks_released;

static void release_schema(struct ArrowSchema *s)
{
    schemas_released++;
    s->release = NULL;
}

static void release_chunk(struct ArrowArray *a)
{
    chunks_released++;
    a->release = NULL;
}

static void fill_values(struct part *p, uint32_t seed)
{
    int32_t at = 2;
    for (uint32_t i = 0; i < VALUES; i++) {
        p->bits[i] = (uint8_t)test_random(seed + i);
        p->x[i] = (int16_t)test_random(seed + 1000 + i);
        p->box[i] = (float)(int16_t)test_random(seed + 2000 + i);
        p->offsets[i] = at;
        at += (int32_t)(test_random(seed + 3000 + i) % 9);
    }
    for (uint32_t i = 0; i < sizeof p->key; i++)
        p->key[i] = (uint8_t)test_random(seed + 4000 + i);
    for (uint32_t i = 0; i < sizeof p->text; i++)
        p->text[i] = (char)test_random(seed + 5000 + i);
    memset(p->valid, 0xff, sizeof p->valid);
}

static struct ArrowArray array_of(const void **buffers, int64_t n_buffers, int64_t length)
{
    return (struct ArrowArray){.length = length,
                               .offset = SKIP,
                               .n_buffers = n_buffers,
                               .buffers = buffers,
                               .release = release_chunk};
}

static void fill_chunk(struct ArrowArray *chunk, struct part *p, uint32_t seed)
{
    const void *const values[] = {p->bits, p->x, NULL, p->key, p->offsets};
    fill_values(p, seed);
    for (int c = 0; c < COLUMNS; c++) {
        p->buffer[c][1] = values[c];
        p->column[c] = array_of(p->buffer[c], c == BOX ? 1 : c == TEXT ? 3 : 2, SKIP + ROWS);
        p->columns[c] = &p->column[c];
    }
    p->buffer[TEXT][2] = p->text;
    p->buffer[COLUMNS][1] = p->box;
    p->item = array_of(p->buffer[COLUMNS], 2, 2 * (2 * SKIP + ROWS));
    p->items[0] = &p->item;
    p->column[BOX].children = p->items;
    p->column[BOX].n_children = 1;
    *chunk = array_of(p->buffer[COLUMNS + 1], 1, ROWS);
    chunk->children = p->columns;
    chunk->n_children = COLUMNS;
}

static struct table *table_make(void)
{
    struct table *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int c = 0; c < COLUMNS; c++) {
        t->column[c] =
            (struct ArrowSchema){.format = formats[c], .name = names[c], .release = release_schema};
        t->columns[c] = &t->column[c];
    }
    t->item = (struct ArrowSchema){.format = "f", .name = "item", .release = release_schema};
    t->items[0] = &t->item;
    t->column[BOX].children = t->items;
    t->column[BOX].n_children = 1;
    t->schema = (struct ArrowSchema){
        .format = "+s", .n_children = COLUMNS, .children = t->columns, .release = release_schema};
    for (uint32_t c = 0; c < CHUNKS; c++)
        fill_chunk(&t->chunk[c], &t->part[c], c * 10000);
    schemas_released = chunks_released = 0;
    return t;
}

static int table_open(struct table *t, struct mr_dataset **ds)
{
    struct mr_arrow_opts o;
    mr_arrow_opts_init(&o);
    o.name = "table";
    o.schema = &t->schema;
    o.chunk = t->chunk;
    o.n_chunks = CHUNKS;
    return mr_dataset_open_arrow(&o, ds);
}

/* Row i of a chunk, by the interface's page: offsets of table and column add up. */
static void check_row(const struct mr_dataset *ds, const struct part *p, uint64_t index, uint64_t i)
{
    uint8_t flag, key[3];
    int16_t x;
    float box[2];
    char text[16];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK], at = 2 * SKIP + i;
    void *row[] = {&flag, &x, box, key, text};
    test_works(mr_dataset_read(ds, index, row, dim));
    assert_int_equal(flag, p->bits[at / 8] >> at % 8 & 1);
    assert_int_equal(x, p->x[at]);
    assert_memory_equal(box, &p->box[SKIP + 2 * at], sizeof box);
    assert_memory_equal(key, &p->key[3 * at], sizeof key);
    assert_int_equal(dim[TEXT][0], p->offsets[at + 1] - p->offsets[at]);
    assert_memory_equal(text, p->text + p->offsets[at], dim[TEXT][0]);
}

static void rows_are_the_tables(void **state)
{
    (void)state;
    struct table *t = table_make();
    struct mr_dataset *ds;
    test_works(table_open(t, &ds));
    assert_int_equal(mr_dataset_length(ds), CHUNKS * ROWS);
    for (uint64_t i = 0; i < CHUNKS * ROWS; i++)
        check_row(ds, &t->part[i / ROWS], i, i % ROWS);
    mr_dataset_close(ds);
    free(t);
}

static void ownership_moves_on_success(void **state)
{
    (void)state;
    struct table *t = table_make();
    struct mr_dataset *ds;
    t->chunk[1].n_children = 1;
    test_fails(table_open(t, &ds), MR_EFORMAT, "children");
    assert_true(t->schema.release && t->chunk[0].release && t->chunk[1].release);
    t->chunk[1].n_children = COLUMNS;
    test_works(table_open(t, &ds));
    assert_true(!t->schema.release && !t->chunk[0].release && !t->chunk[1].release);
    assert_int_equal(schemas_released + chunks_released, 0);
    test_fails(table_open(t, &ds), MR_EMISUSE, "released");
    mr_dataset_close(ds);
    assert_int_equal(schemas_released, 1);
    assert_int_equal(chunks_released, CHUNKS);
    free(t);
}

/* Any null within the rows is refused by name and row; those outside them are not. */
static void nulls_are_refused(void **state)
{
    (void)state;
    struct table *t = table_make();
    struct part *p = &t->part[1];
    struct mr_dataset *ds;
    char text[64];
    p->buffer[X][0] = p->valid;
    p->column[X].null_count = -1;
    for (int at = 0; at < 2 * SKIP + ROWS + 3; at++) {
        p->valid[at / 8] = (uint8_t) ~(1u << at % 8);
        if (at < 2 * SKIP || at >= 2 * SKIP + ROWS) {
            test_works(table_open(t, &ds));
            mr_dataset_close(ds);
            t->schema.release = release_schema;
            t->chunk[0].release = t->chunk[1].release = release_chunk;
        } else {
            snprintf(text, sizeof text, "column 'x', row %d: null", ROWS + at - 2 * SKIP);
            test_fails(table_open(t, &ds), MR_EFORMAT, text);
        }
        p->valid[at / 8] = 0xff;
    }
    free(t);
}

static void nulls_in_lists_name_the_row(void **state)
{
    (void)state;
    struct table *t = table_make();
    struct mr_dataset *ds;
    int at = SKIP + 2 * (2 * SKIP + 4) + 1; /* the second value of row 4 */
    t->part[0].buffer[COLUMNS][0] = t->part[0].valid;
    t->part[0].item.null_count = 1;
    t->part[0].valid[at / 8] = (uint8_t) ~(1u << at % 8);
    test_fails(table_open(t, &ds), MR_EFORMAT, "column 'box', row 4: null");
    free(t);
}

#define REFUSED(member, value, error, text)                                                        \
    do {                                                                                           \
        struct table *t = table_make();                                                            \
        struct mr_dataset *ds;                                                                     \
        t->member = value;                                                                         \
        test_fails(table_open(t, &ds), error, text);                                               \
        free(t);                                                                                   \
    } while (0)

static void foreign_numbers_are_checked(void **state)
{
    (void)state;
    REFUSED(part[1].column[X].length, -1, MR_EFORMAT,
            "column 'x', rows from 11: expected a length");
    REFUSED(part[1].column[X].length, INT64_MAX, MR_EFORMAT, "address space");
    REFUSED(part[1].column[X].offset, -1, MR_EFORMAT, "expected an offset");
    REFUSED(part[1].column[X].offset, INT64_MAX, MR_EFORMAT, "address space");
    REFUSED(part[1].column[X].null_count, -2, MR_EFORMAT, "null count");
    REFUSED(part[1].column[X].null_count, 1, MR_EFORMAT, "without a validity buffer");
    REFUSED(part[1].column[X].length, SKIP + ROWS - 1, MR_EFORMAT, "fewer elements");
    REFUSED(part[1].column[X].n_buffers, 3, MR_EFORMAT, "number of buffers");
    REFUSED(part[1].column[X].n_children, 1, MR_EFORMAT, "number of children");
    REFUSED(part[1].buffer[X][1], NULL, MR_EFORMAT, "no buffer of values");
    REFUSED(part[1].columns[X], NULL, MR_EFORMAT, "expected an array");
    REFUSED(part[0].column[BOX].offset, INT64_MAX / 17, MR_EFORMAT, "address space");
    REFUSED(part[0].item.length, 2 * (2 * SKIP + ROWS) - 1, MR_EFORMAT, "fewer elements");
    REFUSED(part[0].buffer[TEXT][1], NULL, MR_EFORMAT, "no buffer of offsets");
    REFUSED(part[0].buffer[TEXT][2], NULL, MR_EFORMAT, "without a buffer of bytes");
    REFUSED(part[0].offsets[2 * SKIP], -1, MR_EFORMAT, "0 or more: found -1");
    REFUSED(part[0].offsets[2 * SKIP + 4], 0, MR_EFORMAT, "below the one before it");
    REFUSED(chunk[0].length, -5, MR_EFORMAT, "(the table)");
    REFUSED(chunk[0].release, NULL, MR_EMISUSE, "the chunk is released");
}

/* Moved out by someone else: at each level of the schema and of a chunk. */
static void what_is_released_is_refused(void **state)
{
    (void)state;
    REFUSED(column[X].release, NULL, MR_EMISUSE, "released");
    REFUSED(item.release, NULL, MR_EMISUSE, "column 'box'");
    REFUSED(part[1].column[X].release, NULL, MR_EMISUSE, "column 'x', rows from 11: released");
    REFUSED(part[1].item.release, NULL, MR_EMISUSE, "column 'box'");
}

static void chunks_are_checked(void **state)
{
    (void)state;
    struct table *t = table_make();
    struct mr_dataset *ds;
    struct mr_arrow_opts o;
    mr_arrow_opts_init(&o);
    o.schema = &t->schema;
    o.chunk = t->chunk;
    test_fails(mr_dataset_open_arrow(&o, &ds), MR_EMISUSE, "no chunks");
    o.n_chunks = UINT64_MAX;
    test_fails(mr_dataset_open_arrow(&o, &ds), MR_ELIMIT, "chunks");
    o.n_chunks = CHUNKS;
    t->chunk[0].length = t->chunk[1].length = 0;
    test_fails(mr_dataset_open_arrow(&o, &ds), MR_EFORMAT, "no rows");
    t->chunk[0].length = t->chunk[1].length = ROWS;
    t->column[X].name = "flag";
    test_fails(mr_dataset_open_arrow(&o, &ds), MR_EMISUSE, "flag");
    free(t);
}

/* One of the chunks has no rows: the other's rows are the set's. */
static void empty_chunks_are_passed_over(void **state)
{
    (void)state;
    for (int empty = 0; empty < CHUNKS; empty++) {
        struct table *t = table_make();
        struct mr_dataset *ds;
        t->chunk[empty].length = 0;
        test_works(table_open(t, &ds));
        assert_int_equal(mr_dataset_length(ds), ROWS);
        for (uint64_t i = 0; i < ROWS; i++)
            check_row(ds, &t->part[!empty], i, i);
        mr_dataset_close(ds);
        free(t);
    }
}

/* "+w:2" of "+w:3" of bytes, of bits, and of pairs of bytes. All share one buffer. */
static void lists_of_lists_are_tensors(void **state)
{
    (void)state;
    static const char *const formats_of_items[] = {"C", "b", "w:2"};
    for (size_t k = 0; k < MR_COUNT(formats_of_items); k++) {
        struct table *t = table_make();
        struct mr_dataset *ds;
        struct ArrowSchema inner_type = t->item, *inner_types[] = {&inner_type};
        struct ArrowArray inner[CHUNKS], *inners[CHUNKS];
        uint64_t each = k == 2 ? 12 : 6;
        inner_type.format = formats_of_items[k];
        t->item.format = "+w:3";
        t->item.children = inner_types;
        t->item.n_children = 1;
        for (int c = 0; c < CHUNKS; c++) {
            struct part *p = &t->part[c];
            inner[c] = array_of(p->buffer[COLUMNS], 2, 3 * (SKIP + p->item.length));
            inners[c] = &inner[c];
            p->buffer[COLUMNS][1] = p->text;
            p->item.n_buffers = 1;
            p->item.n_children = 1;
            p->item.children = &inners[c];
        }
        test_works(table_open(t, &ds));
        const struct mr_spec *spec = mr_dataset_field(ds, BOX);
        assert_int_equal(spec->rank, k == 2 ? 3 : 2);
        assert_int_equal(spec->dim[0] * 10 + spec->dim[1], 23);
        for (uint64_t row = 0; row < CHUNKS * ROWS; row++) {
            const uint8_t *bytes = (const uint8_t *)t->part[row / ROWS].text;
            uint64_t at = SKIP + 3 * (SKIP + 2 * (2 * SKIP + row % ROWS));
            uint8_t value[12];
            test_works(mr_dataset_read_field(ds, row, BOX, value, NULL));
            for (uint64_t i = 0; i < each; i++)
                assert_int_equal(value[i], k == 0   ? bytes[at + i]
                                           : k == 1 ? bytes[(at + i) / 8] >> (at + i) % 8 & 1
                                                    : bytes[2 * at + i]);
        }
        mr_dataset_close(ds);
        free(t);
    }
}

/* Rows times the bytes of one may pass an address space where the rows do not. */
static void products_are_checked(void **state)
{
    (void)state;
    const int64_t rows = INT64_MAX / 64;
    struct table *t = table_make();
    struct mr_dataset *ds;
    t->columns[0] = &t->column[KEY];
    t->schema.n_children = 1;
    t->column[KEY].format = "w:1000";
    t->part[0].columns[0] = &t->part[0].column[KEY];
    t->chunk[0].n_children = 1;
    t->chunk[0].length = rows;
    t->part[0].column[KEY].length = rows + SKIP;
    test_fails(table_open(t, &ds), MR_EFORMAT, "address space");
    free(t);
}

static void types_are_checked(void **state)
{
    (void)state;
    REFUSED(column[X].format, "tdD", MR_EUNSUPPORTED, "column 'x': Arrow format \"tdD\"");
    REFUSED(column[X].format, "ss", MR_EUNSUPPORTED, "\"ss\"");
    REFUSED(column[X].format, "", MR_EUNSUPPORTED, "\"\"");
    REFUSED(column[X].format, NULL, MR_EFORMAT, "column 'x'");
    REFUSED(column[X].dictionary, &t->item, MR_EFORMAT, "expected an array at each level");
    REFUSED(column[BOX].dictionary, &t->item, MR_EUNSUPPORTED, "a dictionary with indices");
    REFUSED(column[X].name, "", MR_ELIMIT, "expected a name");
    REFUSED(column[BOX].format, "+w:0", MR_EFORMAT, "expected 1 to");
    REFUSED(column[BOX].format, "+w:-2", MR_EFORMAT, "\"-2\"");
    REFUSED(column[BOX].format, "+w:99999999999999999999", MR_EFORMAT, "expected 1 to");
    REFUSED(column[BOX].n_children, 0, MR_EFORMAT, "without a type");
    REFUSED(item.format, "u", MR_EUNSUPPORTED, "column 'box'");
    REFUSED(items[0], &t->column[BOX], MR_ELIMIT, "more than 8 levels");
    REFUSED(schema.format, "i", MR_EUNSUPPORTED, "expected a table");
    REFUSED(schema.n_children, INT64_MAX, MR_ELIMIT, "columns: expected 1");
}

/* The element types of one column, over the same bytes: their widths and names. */
static void every_type_has_its_width(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        enum mr_dtype dtype;
    } type[] = {{"c", MR_I8},  {"C", MR_U8},  {"s", MR_I16}, {"S", MR_U16},
                {"i", MR_I32}, {"I", MR_U32}, {"l", MR_I64}, {"L", MR_U64},
                {"e", MR_F16}, {"f", MR_F32}, {"g", MR_F64}};
    for (size_t k = 0; k < MR_COUNT(type); k++) {
        struct table *t = table_make();
        struct mr_dataset *ds;
        uint8_t value[8];
        size_t width = mr_dtype_size(type[k].dtype);
        t->column[X].format = type[k].format;
        for (int c = 0; c < CHUNKS; c++)
            t->part[c].buffer[X][1] = t->part[c].text;
        test_works(table_open(t, &ds));
        assert_int_equal(mr_dataset_field(ds, X)->dtype, type[k].dtype);
        for (uint64_t i = 0; i < CHUNKS * ROWS; i++) {
            test_works(mr_dataset_read_field(ds, i, X, value, NULL));
            const char *want = t->part[i / ROWS].text + (2 * SKIP + i % ROWS) * width;
            assert_memory_equal(value, want, width);
        }
        mr_dataset_close(ds);
        free(t);
    }
}

/* Offsets of 32 and of 64 bits give the same texts; only the kind differs. */
static void every_kind_of_text_is_read(void **state)
{
    (void)state;
    for (const char *format = "uzUZ"; *format; format++) {
        struct table *t = table_make();
        struct mr_dataset *ds;
        int64_t wide[CHUNKS][VALUES];
        char one[] = {*format, 0};
        t->column[TEXT].format = one;
        for (int c = 0; c < CHUNKS; c++) {
            for (int i = 0; i < VALUES; i++)
                wide[c][i] = t->part[c].offsets[i];
            if (*format == 'U' || *format == 'Z')
                t->part[c].buffer[TEXT][1] = wide[c];
        }
        test_works(table_open(t, &ds));
        assert_int_equal(mr_dataset_field(ds, TEXT)->kind,
                         *format == 'u' || *format == 'U' ? MR_KIND_STRING : MR_KIND_BYTES);
        for (uint64_t i = 0; i < CHUNKS * ROWS; i++)
            check_row(ds, &t->part[i / ROWS], i, i % ROWS);
        mr_dataset_close(ds);
        free(t);
    }
}

static void loaders_deliver_every_row(void **state)
{
    (void)state;
    struct table *t = table_make();
    struct run_config c = run_config(NULL);
    test_works(table_open(t, &c.ds));
    c.opts.batch_size = 4;
    struct run run = run_loader(&c);
    assert_int_equal(run.n, CHUNKS * ROWS);
    for (uint64_t i = 0; i < run.n; i++)
        assert_int_equal(run.row[i].index, i);
    for (uint64_t i = 0; i < run.n; i++)
        assert_int_equal(run.row[i].hash, run_hash_sample(c.ds, i));
    run_free(&run);
    mr_dataset_close(c.ds);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_tables),
        cmocka_unit_test(ownership_moves_on_success),
        cmocka_unit_test(nulls_are_refused),
        cmocka_unit_test(nulls_in_lists_name_the_row),
        cmocka_unit_test(foreign_numbers_are_checked),
        cmocka_unit_test(what_is_released_is_refused),
        cmocka_unit_test(chunks_are_checked),
        cmocka_unit_test(empty_chunks_are_passed_over),
        cmocka_unit_test(lists_of_lists_are_tensors),
        cmocka_unit_test(products_are_checked),
        cmocka_unit_test(types_are_checked),
        cmocka_unit_test(every_type_has_its_width),
        cmocka_unit_test(every_kind_of_text_is_read),
        cmocka_unit_test(loaders_deliver_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
