/* Arrow tables as real producers make them: streams, groups that are loaded on demand, chosen
 * columns and rows, dictionaries, views, lists, members of structs. Rows are compared with the
 * values that the arrays were made from. */
#include "run_loader.h"
#include "samples.h"

#include <errno.h>

#define ROWS    60 /* of a chunk */
#define CHUNKS  7
#define WORDS   5
#define OFFSET  3
#define LONGEST 40

enum { NUMBER, WORD, VIEW, LIST, PAIR, COLUMNS };

/* What row r of the table is. */
static int32_t number_of(uint64_t row)
{
    return (int32_t)(row * 7 - 100);
}

static uint64_t text_of(uint64_t row, char out[LONGEST])
{
    uint64_t n = row * 11 % LONGEST;
    for (uint64_t i = 0; i < n; i++)
        out[i] = (char)('a' + (row + i) % 26);
    return n;
}

/* A chunk, and the memory of its arrays: rows [first, first + ROWS) behind OFFSET others. */
struct chunk {
    struct ArrowArray column[COLUMNS], words, items, members[2];
    struct ArrowArray *columns[COLUMNS], *items_of[1], *members_of[2];
    const void *buffer[COLUMNS + 4][5];
    int32_t number[ROWS + OFFSET], word_at[WORDS + 1], list_at[ROWS + OFFSET + 1];
    int32_t view[ROWS + OFFSET][4];
    uint8_t word[ROWS + OFFSET];
    uint16_t item[3 * (ROWS + OFFSET)];
    char words_text[WORDS * LONGEST], piece[ROWS * LONGEST];
    int64_t piece_bytes;
};

static _Atomic int alive; /* schemas and chunks that were not released */

static void release_schema(struct ArrowSchema *s)
{
    alive--;
    s->release = NULL;
}

static void release_chunk(struct ArrowArray *a)
{
    alive--;
    free(a->private_data);
    a->release = NULL;
}

static void released_by_parent(struct ArrowArray *a)
{
    a->release = NULL;
}

static struct ArrowArray array_of(const void **buffers, int64_t n_buffers, int64_t length)
{
    return (struct ArrowArray){.length = length,
                               .n_buffers = n_buffers,
                               .buffers = buffers,
                               .release = released_by_parent};
}

static void fill_texts(struct chunk *c, uint64_t first)
{
    for (uint64_t w = 0; w < WORDS; w++)
        c->word_at[w + 1] = c->word_at[w] + (int32_t)text_of(w, c->words_text + c->word_at[w]);
    for (uint64_t i = 0; i < ROWS; i++) {
        char text[LONGEST];
        uint64_t row = first + i, n = text_of(row, text);
        int32_t *view = c->view[i + OFFSET];
        view[0] = (int32_t)n;
        if (n <= 12) {
            memcpy(view + 1, text, n);
        } else {
            memcpy(view + 1, text, 4);
            view[3] = (int32_t)c->piece_bytes;
            memcpy(c->piece + c->piece_bytes, text, n);
            c->piece_bytes += (int64_t)n;
        }
        c->word[i + OFFSET] = (uint8_t)(row % WORDS);
    }
}

static void fill_numbers(struct chunk *c, uint64_t first, bool equal_lists)
{
    for (int i = 0; i < OFFSET; i++)
        c->list_at[i + 1] = 0;
    for (uint64_t i = 0; i < ROWS; i++) {
        int32_t at = c->list_at[i + OFFSET], n = equal_lists ? 2 : (int32_t)((first + i) % 4);
        c->number[i + OFFSET] = number_of(first + i);
        for (int32_t k = 0; k < n; k++)
            c->item[at + k] = (uint16_t)(first + i + (uint64_t)k);
        c->list_at[i + OFFSET + 1] = at + n;
    }
}

static struct ArrowArray chunk_make(uint64_t first, bool equal_lists)
{
    struct chunk *c = calloc(1, sizeof *c);
    const int64_t n = ROWS + OFFSET;
    assert_non_null(c);
    fill_texts(c, first);
    fill_numbers(c, first, equal_lists);
    const void *const second[] = {c->number, c->word, c->view, c->list_at, NULL};
    const int64_t n_buffers[] = {2, 2, 4, 2, 1};
    for (int k = 0; k < COLUMNS; k++) {
        c->buffer[k][1] = second[k];
        c->column[k] = array_of(c->buffer[k], n_buffers[k], n);
        c->columns[k] = &c->column[k];
    }
    c->buffer[VIEW][2] = c->piece;
    c->buffer[VIEW][3] = &c->piece_bytes;
    const void **b = c->buffer[COLUMNS];
    b[1] = c->word_at;
    b[2] = c->words_text;
    c->words = array_of(b, 3, WORDS);
    c->column[WORD].dictionary = &c->words;
    c->buffer[COLUMNS + 1][1] = c->item;
    c->items = array_of(c->buffer[COLUMNS + 1], 2, c->list_at[n]);
    c->items_of[0] = &c->items;
    c->column[LIST].children = c->items_of;
    c->column[LIST].n_children = 1;
    c->buffer[COLUMNS + 2][1] = c->view;
    c->buffer[COLUMNS + 2][2] = c->piece;
    c->buffer[COLUMNS + 2][3] = &c->piece_bytes;
    c->members[0] = array_of(c->buffer[COLUMNS + 2], 4, n);
    c->members[1] = array_of(c->buffer[NUMBER], 2, n);
    c->members_of[0] = &c->members[0];
    c->members_of[1] = &c->members[1];
    c->column[PAIR].children = c->members_of;
    c->column[PAIR].n_children = 2;
    struct ArrowArray chunk = array_of(c->buffer[COLUMNS + 3], 1, ROWS);
    chunk.offset = OFFSET;
    chunk.children = c->columns;
    chunk.n_children = COLUMNS;
    chunk.private_data = c;
    chunk.release = release_chunk;
    alive++;
    return chunk;
}

/* ---- the schema ---- */

static struct ArrowSchema column_type[COLUMNS], words_type, item_type, member_type[2];
static struct ArrowSchema *column_types[COLUMNS], *item_types[1], *member_types[2];

static struct ArrowSchema type_of(const char *format, const char *name)
{
    return (struct ArrowSchema){.format = format, .name = name, .release = release_schema};
}

static struct ArrowSchema schema_make(void)
{
    static const char *const formats[] = {"i", "C", "vu", "+l", "+s"};
    static const char *const names[] = {"number", "word", "a text of a very long name, seen",
                                        "list", "pair"};
    for (int k = 0; k < COLUMNS; k++) {
        column_type[k] = type_of(formats[k], names[k]);
        column_types[k] = &column_type[k];
    }
    words_type = type_of("u", NULL);
    column_type[WORD].dictionary = &words_type;
    item_type = type_of("S", "item");
    item_types[0] = &item_type;
    column_type[LIST].children = item_types;
    column_type[LIST].n_children = 1;
    member_type[0] = type_of("vz", "bytes");
    member_type[1] = type_of("i", "path");
    member_types[0] = &member_type[0];
    member_types[1] = &member_type[1];
    column_type[PAIR].children = member_types;
    column_type[PAIR].n_children = 2;
    struct ArrowSchema schema = type_of("+s", "");
    schema.children = column_types;
    schema.n_children = COLUMNS;
    alive++;
    return schema;
}

/* ---- a stream ---- */

struct source {
    uint64_t next, fails_at; /* chunks */
    bool equal_lists, quiet;
    int error;
};

static int stream_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
    (void)s;
    *out = schema_make();
    return 0;
}

static int stream_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
    struct source *from = s->private_data;
    if (from->next == from->fails_at)
        return from->error;
    *out = (struct ArrowArray){.release = NULL};
    if (from->next < CHUNKS)
        *out = chunk_make(ROWS * from->next++, from->equal_lists);
    return 0;
}

static const char *stream_text(struct ArrowArrayStream *s)
{
    return ((struct source *)s->private_data)->quiet ? NULL : "the disk is on fire";
}

static void stream_release(struct ArrowArrayStream *s)
{
    alive--;
    s->release = NULL;
}

static struct ArrowArrayStream stream_of(struct source *from)
{
    alive++;
    return (struct ArrowArrayStream){stream_schema, stream_next, stream_text, stream_release, from};
}

static const struct mr_arrow_column every[] = {
    {.path = "number"},
    {.path = "word"},
    {.path = "a text of a very long name, seen"},
    {.path = "list"},
    {.path = "pair.bytes", .name = "bytes"},
};

static struct mr_arrow_opts options(void)
{
    struct mr_arrow_opts o;
    mr_arrow_opts_init(&o);
    o.name = "made";
    o.column = every;
    o.n_columns = COLUMNS;
    return o;
}

static struct mr_dataset *stream_open(const struct mr_arrow_opts *o, bool equal_lists)
{
    struct source from = {.fails_at = UINT64_MAX, .equal_lists = equal_lists};
    struct ArrowArrayStream stream = stream_of(&from);
    struct mr_dataset *ds;
    test_works(mr_dataset_open_arrow_stream(o, &stream, &ds));
    assert_null(stream.release);
    return ds;
}

static void check_text(const char *found, uint64_t n, uint64_t row)
{
    char want[LONGEST];
    assert_int_equal(n, text_of(row, want));
    assert_memory_equal(found, want, n);
}

static void check_row(const struct mr_dataset *ds, uint64_t index, uint64_t row)
{
    int32_t number;
    char word[LONGEST], view[LONGEST], bytes[LONGEST];
    uint16_t list[3];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    void *rows[] = {&number, word, view, list, bytes};
    test_works(mr_dataset_read(ds, index, rows, dim));
    assert_int_equal(number, number_of(row));
    check_text(word, dim[1][0], row % WORDS);
    check_text(view, dim[2][0], row);
    check_text(bytes, dim[4][0], row);
    for (uint64_t k = 0; k < dim[3][0]; k++)
        assert_int_equal(list[k], row + k);
    assert_int_equal(dim[3][0], mr_dataset_field(ds, 3)->var_dims ? row % 4 : 2);
}

static void streams_are_tables(void **state)
{
    (void)state;
    for (int equal = 0; equal < 2; equal++) {
        struct mr_arrow_opts o = options();
        struct mr_dataset *ds = stream_open(&o, equal);
        assert_int_equal(mr_dataset_length(ds), CHUNKS * ROWS);
        assert_int_equal(mr_dataset_field(ds, 3)->var_dims, !equal);
        assert_string_equal(mr_dataset_field(ds, 2)->name, "a text of a very long n");
        assert_string_equal(mr_dataset_field(ds, 4)->name, "bytes");
        for (uint64_t i = 0; i < CHUNKS * ROWS; i++)
            check_row(ds, i, i);
        mr_dataset_close(ds);
        assert_int_equal(alive, 0);
    }
}

static void rows_are_chosen(void **state)
{
    (void)state;
    struct mr_arrow_opts o = options();
    uint64_t row[100];
    for (uint32_t i = 0; i < MR_COUNT(row); i++)
        row[i] = test_random(i) % (CHUNKS * ROWS);
    o.row = row;
    o.n_rows = MR_COUNT(row);
    struct mr_dataset *ds = stream_open(&o, false);
    assert_int_equal(mr_dataset_length(ds), o.n_rows);
    for (uint64_t i = 0; i < o.n_rows; i++)
        check_row(ds, i, row[i]);
    mr_dataset_close(ds);
    row[99] = CHUNKS * ROWS;
    struct source from = {.fails_at = UINT64_MAX};
    struct ArrowArrayStream stream = stream_of(&from);
    test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), MR_EMISUSE, "row[99]: 420");
    o.n_rows = 0;
    from.next = 0;
    stream = stream_of(&from);
    test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), MR_EMISUSE, "0 rows");
    assert_int_equal(alive, 0);
}

/* A run's rows are made column by column: in any order and on any device they are the samples.
 */
static void loaders_deliver_the_samples(void **state)
{
    (void)state;
    static const char *const samplers[] = {"sequential", "random", "random:block=7"};
    static const char *const devices[] = {"cpu", "sim"};
    uint64_t row[300];
    for (uint32_t i = 0; i < MR_COUNT(row); i++)
        row[i] = test_random(i) % (CHUNKS * ROWS);
    for (int k = 0; k < 12; k++) {
        struct mr_arrow_opts o = options();
        struct run_config c = run_config(NULL);
        o.row = k % 4 < 2 ? row : NULL;
        o.n_rows = o.row ? MR_COUNT(row) : 0;
        c.ds = stream_open(&o, k % 4 == 1);
        c.sampler = samplers[k % 3];
        c.device = devices[k % 2];
        c.opts.batch_size = 13;
        c.opts.epochs = 2;
        c.opts.workers = 1 + (uint32_t)k % 3;
        c.opts.collate = MR_COLLATE_RAGGED;
        struct run run = run_loader(&c);
        assert_int_equal(run.n, 2 * mr_dataset_length(c.ds));
        for (uint64_t i = 0; i < run.n; i++)
            assert_int_equal(run.row[i].hash, run_hash_sample(c.ds, run.row[i].index));
        run_free(&run);
        mr_dataset_close(c.ds);
        assert_int_equal(alive, 0);
    }
}

/* In any order, alone, and under names of their own. */
static void columns_are_chosen(void **state)
{
    (void)state;
    const struct mr_arrow_column two[] = {{.path = "pair.path", .name = "x"}, {.path = "number"}};
    struct mr_arrow_opts o = options();
    int32_t x, number;
    void *row[] = {&x, &number};
    o.column = two;
    o.n_columns = 2;
    struct mr_dataset *ds = stream_open(&o, false);
    for (uint64_t i = 0; i < CHUNKS * ROWS; i++) {
        test_works(mr_dataset_read(ds, i, row, NULL));
        assert_int_equal(x, number_of(i));
        assert_int_equal(number, number_of(i));
    }
    mr_dataset_close(ds);
}

static void columns_are_checked(void **state)
{
    (void)state;
    static const struct {
        struct mr_arrow_column column[2];
        uint64_t n;
        int error;
        const char *text;
    } bad[] = {
        {{{.path = "nothing"}}, 1, MR_EMISUSE, "no column 'nothing'"},
        {{{.path = "pair.nothing"}}, 1, MR_EMISUSE, "no column 'pair.nothing'"},
        {{{.path = "number.x"}}, 1, MR_EMISUSE, "no column"},
        {{{.path = NULL}}, 1, MR_EMISUSE, "path is NULL"},
        {{{.path = "pair"}}, 1, MR_EUNSUPPORTED, "column 'pair': Arrow format \"+s\""},
        {{{.path = "number"}, {.path = "number"}}, 2, MR_EMISUSE, "two fields"},
        {{{.path = "number", .picture = 1}}, 1, MR_EMISUSE, "one column of binary"},
        {{{.path = "number"}}, 0, MR_ELIMIT, "0 columns"},
    };
    for (size_t k = 0; k < MR_COUNT(bad); k++) {
        struct source from = {.fails_at = UINT64_MAX};
        struct ArrowArrayStream stream = stream_of(&from);
        struct mr_arrow_opts o = options();
        struct mr_dataset *ds;
        o.column = bad[k].column;
        o.n_columns = bad[k].n;
        test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), bad[k].error, bad[k].text);
        assert_int_equal(alive, 0);
    }
}

/* The producer's error ends it, wherever it comes; everything is released. */
static void errors_of_streams_are_carried_on(void **state)
{
    (void)state;
    struct mr_arrow_opts o = options();
    struct mr_dataset *ds;
    for (uint64_t at = 0; at <= CHUNKS; at++) {
        struct source from = {.fails_at = at, .error = EIO};
        struct ArrowArrayStream stream = stream_of(&from);
        test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), -EIO, "the disk is on fire");
        from = (struct source){.fails_at = at, .error = ENOMEM, .quiet = true};
        stream = stream_of(&from);
        test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), -ENOMEM, "Cannot allocate");
        from = (struct source){.fails_at = at, .error = -77, .quiet = true};
        stream = stream_of(&from);
        test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), MR_ECALLBACK, "returned -77");
        assert_int_equal(alive, 0);
    }
    struct source from = {.next = CHUNKS, .fails_at = UINT64_MAX};
    struct ArrowArrayStream stream = stream_of(&from);
    test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), MR_EFORMAT, "no chunks");
    test_fails(mr_dataset_open_arrow_stream(&o, &stream, &ds), MR_EMISUSE, "released");
}

/* ---- what a producer may not say ---- */

static void opens_not(struct ArrowArray *chunk, const char *text)
{
    struct ArrowSchema schema = schema_make();
    struct mr_arrow_opts o = options();
    struct mr_dataset *ds;
    o.schema = &schema;
    o.chunk = chunk;
    o.n_chunks = 1;
    test_fails(mr_dataset_open_arrow(&o, &ds), MR_EFORMAT, text);
    schema.release(&schema);
    chunk->release(chunk);
    assert_int_equal(alive, 0);
}

#define MALFORMED(member, value, text)                                                             \
    do {                                                                                           \
        struct ArrowArray chunk = chunk_make(0, false);                                            \
        struct chunk *c = chunk.private_data;                                                      \
        c->member = value;                                                                         \
        opens_not(&chunk, text);                                                                   \
    } while (0)

static void malformed_arrays_are_refused(void **state)
{
    (void)state;
    const int long_text = OFFSET + 2; /* of 22 bytes */
    MALFORMED(word[OFFSET + 4], WORDS, "column 'word', rows from 0: an index beyond");
    MALFORMED(words.length, 2, "an index beyond its dictionary");
    MALFORMED(words.length, -1, "negative length");
    MALFORMED(column[WORD].dictionary, NULL, "each level");
    MALFORMED(words.dictionary, &c->words, "a dictionary of a dictionary");
    MALFORMED(buffer[WORD][1], NULL, "no buffer of indices");
    MALFORMED(column[NUMBER].dictionary, &c->words, "a dictionary that the schema lacks");
    MALFORMED(view[long_text][0], -1, "a view's length");
    MALFORMED(view[long_text][2], 1, "a buffer that is not there");
    MALFORMED(view[long_text][2], -1, "a buffer that is not there");
    MALFORMED(view[long_text][3], -1, "a view beyond its buffer");
    MALFORMED(view[long_text][3], INT32_MAX, "a view beyond its buffer");
    MALFORMED(view[long_text][0], INT32_MAX, "a view beyond its buffer");
    MALFORMED(piece_bytes, 3, "a view beyond its buffer");
    MALFORMED(buffer[VIEW][2], NULL, "a buffer that is not there");
    MALFORMED(buffer[VIEW][3], NULL, "a buffer that is not there");
    MALFORMED(buffer[VIEW][1], NULL, "no buffer of views");
    MALFORMED(column[VIEW].n_buffers, 2, "3 buffers or more");
    MALFORMED(list_at[OFFSET], -1, "offsets of 0 or more");
    MALFORMED(list_at[OFFSET + 3], 0, "an offset below");
    MALFORMED(list_at[OFFSET + ROWS], INT32_MAX, "beyond their values");
    MALFORMED(items.length, 3, "beyond their values");
    MALFORMED(items.offset, -1, "an offset of 0 or more");
    MALFORMED(buffer[COLUMNS + 1][1], NULL, "no buffer of values");
    MALFORMED(items_of[0], NULL, "each level");
    MALFORMED(column[PAIR].n_children, 1, "number of children");
    MALFORMED(members[0].length, OFFSET + ROWS - 1, "fewer elements");
    MALFORMED(members_of[0], NULL, "each level");
    MALFORMED(items.null_count, 1, "nulls without a validity buffer");
}

/* ---- groups ---- */

struct groups {
    _Atomic int loads[CHUNKS], closed;
    int fails; /* the group that can't be loaded; -1: none */
    uint64_t less;
};

static int load(void *user, uint64_t group, struct ArrowArray *out)
{
    struct groups *g = user;
    g->loads[group]++;
    if ((int)group == g->fails)
        return mr_error_set(-EIO, "the group is lost");
    *out = chunk_make(ROWS * group, true);
    out->length -= (int64_t)g->less;
    return 0;
}

static void close_groups(void *user)
{
    ((struct groups *)user)->closed++;
}

static int groups_open_to(struct groups *from, uint64_t keep, uint64_t text_bytes,
                          struct mr_dataset **ds)
{
    static const struct mr_arrow_column no_lists[] = {
        {.path = "number"}, {.path = "word"}, {.path = "pair.bytes"}};
    const uint64_t rows[] = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS};
    struct ArrowSchema schema = schema_make();
    struct mr_arrow_opts o = options();
    struct mr_arrow_groups groups;
    mr_arrow_groups_init(&groups);
    groups.n_groups = CHUNKS;
    groups.rows = rows;
    groups.load = load;
    groups.close = close_groups;
    groups.user = from;
    groups.keep = keep;
    groups.text_bytes = text_bytes;
    o.schema = &schema;
    o.column = no_lists;
    o.n_columns = MR_COUNT(no_lists);
    int rc = mr_dataset_open_arrow_groups(&o, &groups, ds);
    if (rc < 0)
        schema.release(&schema);
    return rc;
}

static int groups_open(struct groups *from, uint64_t keep, struct mr_dataset **ds)
{
    return groups_open_to(from, keep, 1024, ds);
}

static void check_group_row(const struct mr_dataset *ds, uint64_t index)
{
    int32_t number;
    static char word[1 << 20], bytes[1 << 20];
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    void *row[] = {&number, word, bytes};
    test_works(mr_dataset_read(ds, index, row, dim));
    assert_int_equal(number, number_of(index));
    check_text(word, dim[1][0], index % WORDS);
    check_text(bytes, dim[2][0], index);
}

static void groups_are_loaded_when_needed(void **state)
{
    (void)state;
    struct groups from = {.fails = -1};
    struct mr_dataset *ds;
    test_works(groups_open(&from, 2, &ds));
    assert_int_equal(mr_dataset_length(ds), CHUNKS * ROWS);
    for (int g = 0; g < CHUNKS; g++)
        assert_int_equal(from.loads[g], 0);
    for (uint64_t i = 0; i < CHUNKS * ROWS; i++)
        check_group_row(ds, i);
    for (int g = 0; g < CHUNKS; g++)
        assert_int_equal(from.loads[g], 1);
    assert_int_equal(alive, 1 + 2); /* the schema and what is kept */
    check_group_row(ds, CHUNKS * ROWS - 1);
    assert_int_equal(from.loads[CHUNKS - 1], 1);
    check_group_row(ds, 0);
    assert_int_equal(from.loads[0], 2);
    mr_dataset_close(ds);
    assert_int_equal(alive, 0);
    assert_int_equal(from.closed, 1);
}

/* Many workers at once, with fewer groups kept than there are. */
static void loaders_read_groups(void **state)
{
    (void)state;
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        struct groups from = {.fails = -1};
        struct run_config c = run_config(NULL);
        char sampler[40];
        snprintf(sampler, sizeof sampler, shuffled ? "random:block=%d,window=2" : "sequential",
                 ROWS);
        test_works(groups_open(&from, 2, &c.ds));
        c.sampler = sampler;
        c.opts.batch_size = 8;
        c.opts.workers = 4;
        struct run run = run_loader(&c);
        uint64_t sum = 0;
        assert_int_equal(run.n, CHUNKS * ROWS);
        for (uint64_t i = 0; i < run.n; i++) {
            sum += run.row[i].index;
            assert_int_equal(run.row[i].hash, run_hash_sample(c.ds, run.row[i].index));
        }
        assert_int_equal(sum, (uint64_t)CHUNKS * ROWS * (CHUNKS * ROWS - 1) / 2);
        run_free(&run);
        mr_dataset_close(c.ds);
        assert_int_equal(alive, 0);
    }
}

/* A group that is lost, and texts beyond their bound, are bad samples one by one: all others come,
 * as they are. */
static void loaders_skip_what_is_bad(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        struct groups from = {.fails = k % 2 ? 3 : -1};
        struct run_config c = run_config(NULL);
        uint64_t bound = k < 4 ? 1024 : 25, good = 0;
        test_works(groups_open_to(&from, 2, bound, &c.ds));
        c.sampler = k % 4 < 2 ? "sequential" : "random";
        c.opts.batch_size = 16;
        c.opts.bad = MR_BAD_SKIP;
        for (uint64_t row = 0; row < CHUNKS * ROWS; row++) {
            char text[LONGEST];
            good += (row / ROWS != 3 || k % 2 == 0) && text_of(row, text) <= bound &&
                    text_of(row % WORDS, text) <= bound;
        }
        struct run run = run_loader(&c);
        assert_int_equal(run.n, good);
        for (uint64_t i = 0; i < run.n; i++)
            assert_int_equal(run.row[i].hash, run_hash_sample(c.ds, run.row[i].index));
        run_free(&run);
        mr_dataset_close(c.ds);
        assert_int_equal(alive, 0);
    }
}

static void bad_groups_have_bad_samples(void **state)
{
    (void)state;
    struct groups from = {.fails = 3};
    struct mr_dataset *ds;
    test_works(groups_open(&from, 4, &ds));
    for (uint64_t i = 0; i < CHUNKS * ROWS; i++) {
        if (i / ROWS == 3)
            test_fails(mr_dataset_read_field(ds, i, 0, &(int32_t){0}, NULL), -EIO, "is lost");
        else
            test_works(mr_dataset_read_field(ds, i, 0, &(int32_t){0}, NULL));
    }
    assert_int_equal(from.loads[3], 1); /* it is not asked for again and again, */
    from.fails = -1;                    /* but once more after others */
    test_works(mr_dataset_read_field(ds, 3 * ROWS, 0, &(int32_t){0}, NULL));
    assert_int_equal(from.loads[3], 2);
    mr_dataset_close(ds);
    from = (struct groups){.fails = -1, .less = 1};
    test_works(groups_open(&from, 4, &ds));
    test_fails(mr_dataset_read_field(ds, 0, 0, &(int32_t){0}, NULL), MR_EFORMAT,
               "59 rows: expected 60");
    mr_dataset_close(ds);
    assert_int_equal(alive, 0);
}

static void groups_are_checked(void **state)
{
    (void)state;
    struct ArrowSchema schema = schema_make();
    struct mr_arrow_opts o = options();
    struct mr_arrow_groups groups;
    struct mr_dataset *ds;
    const uint64_t rows[] = {0, UINT64_MAX, 5};
    mr_arrow_groups_init(&groups);
    o.schema = &schema;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_EMISUSE, "0 groups");
    groups.n_groups = 1;
    groups.rows = rows;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_EMISUSE, "load function");
    groups.load = load;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_EFORMAT, "no rows");
    groups.n_groups = 3;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_ELIMIT, "address space");
    groups.rows = rows + 2;
    groups.n_groups = 1;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_EUNSUPPORTED, "column 'list'");
    o.row = rows;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_EMISUSE, "no rows");
    groups.size = 3;
    test_fails(mr_dataset_open_arrow_groups(&o, &groups, &ds), MR_EMISUSE, "arrow_groups_init");
    schema.release(&schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_tables),
        cmocka_unit_test(rows_are_chosen),
        cmocka_unit_test(loaders_deliver_the_samples),
        cmocka_unit_test(columns_are_chosen),
        cmocka_unit_test(columns_are_checked),
        cmocka_unit_test(errors_of_streams_are_carried_on),
        cmocka_unit_test(malformed_arrays_are_refused),
        cmocka_unit_test(groups_are_loaded_when_needed),
        cmocka_unit_test(loaders_read_groups),
        cmocka_unit_test(loaders_skip_what_is_bad),
        cmocka_unit_test(bad_groups_have_bad_samples),
        cmocka_unit_test(groups_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
