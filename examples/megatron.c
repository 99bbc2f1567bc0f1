/*
 * A located data set: token sequences of Megatron-LM's format (NAME.bin and NAME.idx), as a data
 * set of your own. The .idx file says where each sequence is in the .bin file; the library reads
 * the .bin file, which may also be on a web server or in S3.
 *
 *   cc megatron.c $(pkg-config --cflags --libs millrace) -o megatron && ./megatron NAME
 *
 * The .idx file, little-endian: "MMIDIDX", 0, 0; u64 version 1; u8 dtype; u64 sequences; u64
 * documents; then an i32 length and an i64 byte offset for each sequence, and an i64 per document.
 */
#include <inttypes.h>
#include <millrace/millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 34

struct index {
    char *bytes; /* the whole .idx file */
    uint64_t n, token_bytes, longest;
    enum mr_dtype dtype;
    const char *lengths, *offsets; /* in bytes; not aligned */
};

static uint64_t length_of(const struct index *x, uint64_t i)
{
    int32_t length;
    memcpy(&length, x->lengths + i * sizeof length, sizeof length);
    return length > 0 ? (uint64_t)length : 0;
}

/* Where a sequence is. The library checks that the file has these bytes. */
static int locate(void *user, uint64_t i, struct mr_range range[], int max)
{
    const struct index *x = (const struct index *)user;
    int64_t offset;
    (void)max;
    memcpy(&offset, x->offsets + i * sizeof offset, sizeof offset);
    range[0].offset = (uint64_t)offset;
    range[0].bytes = length_of(x, i) * x->token_bytes;
    return 1;
}

/* The bytes are the tokens; only their number varies. */
static int decode(void *user, const struct mr_sample_context *context, const struct mr_bytes in[],
                  int n, void *const row[], uint64_t (*dim)[MR_MAX_RANK])
{
    const struct index *x = (const struct index *)user;
    (void)context, (void)n;
    memcpy(row[0], in[0].data, in[0].n);
    dim[0][0] = in[0].n / x->token_bytes;
    return 0;
}

static int parse(const char *path, struct index *x, uint64_t size)
{
    static const enum mr_dtype dtypes[] = {MR_U8,  MR_I8,  MR_I16, MR_I32,
                                           MR_I64, MR_F64, MR_F32, MR_U16}; /* from code 1 */
    uint64_t version = 0;
    if (size < HEAD_BYTES || memcmp(x->bytes, "MMIDIDX\0\0", 9) != 0)
        return mr_error_set(MR_EFORMAT, "%s: expected a file that begins with MMIDIDX", path);
    memcpy(&version, x->bytes + 9, sizeof version);
    uint8_t code = (uint8_t)x->bytes[17];
    if (version != 1 || code < 1 || code > 8)
        return mr_error_set(MR_EUNSUPPORTED, "%s: version %" PRIu64 ", dtype %d: expected 1, 1..8",
                            path, version, code);
    memcpy(&x->n, x->bytes + 18, sizeof x->n);
    if (x->n > (size - HEAD_BYTES) / 12)
        return mr_error_set(MR_ETRUNCATED, "%s: truncated: %" PRIu64 " sequences", path, x->n);
    x->dtype = dtypes[code - 1];
    x->token_bytes = mr_dtype_size(x->dtype);
    x->lengths = x->bytes + HEAD_BYTES;
    x->offsets = x->lengths + x->n * sizeof(int32_t);
    for (uint64_t i = 0; i < x->n; i++)
        x->longest = length_of(x, i) > x->longest ? length_of(x, i) : x->longest;
    return 0;
}

static int read_index(const char *path, struct index *x)
{
    FILE *f = fopen(path, "rb");
    long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    int rc = -1;
    if (size >= 0 && (x->bytes = (char *)malloc((size_t)size + 1))) {
        rewind(f);
        if (fread(x->bytes, 1, (size_t)size, f) == (size_t)size)
            rc = parse(path, x, (uint64_t)size);
    }
    if (rc == -1)
        rc = mr_error_set(MR_EFORMAT, "%s: cannot be read", path);
    if (f)
        fclose(f);
    return rc;
}

static int open_tokens(const char *bin, struct index *x, struct mr_dataset **out)
{
    struct mr_located_opts o;
    mr_located_opts_init(&o);
    o.name = "megatron";
    o.n = x->n;
    o.n_fields = 1;
    o.field[0] = (struct mr_spec){
        .name = "tokens", .dtype = x->dtype, .rank = 1, .var_dims = 1, .dim = {x->longest}};
    o.n_files = 1;
    o.file = &bin;
    o.locate = locate;
    o.decode = decode;
    o.user = x;
    return mr_dataset_open_located(&o, out);
}

/* Prints each batch's size. out: gets all tokens; NULL: they are not kept. */
static int feed(struct mr_dataset *ds, FILE *out)
{
    struct mr_loader_opts o;
    struct mr_loader *loader;
    struct mr_batch b = {.size = sizeof b};
    mr_loader_opts_init(&o);
    o.batch_size = 64;
    o.epochs = 1;
    o.collate = MR_COLLATE_RAGGED; /* one sequence after the other, without padding */
    int rc = mr_loader_open(ds, NULL, NULL, NULL, &o, &loader);
    if (rc < 0)
        return rc;
    while ((rc = mr_loader_next(loader, NULL, &b)) > 0) {
        printf("batch %" PRIu64 ": %" PRIu64 " sequences, %" PRIu64 " tokens\n", b.index, b.n,
               b.field[0].offsets[b.n]);
        if (out)
            fwrite(b.field[0].data, 1, b.field[0].bytes, out);
        mr_loader_release(loader, &b, NULL);
    }
    mr_loader_close(loader);
    return rc;
}

int main(int argc, char **argv)
{
    char path[4096];
    struct index x = {0};
    struct mr_dataset *ds = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: megatron NAME [TOKENS]\n");
        return 2;
    }
    FILE *out = argc > 2 ? fopen(argv[2], "wb") : NULL;
    snprintf(path, sizeof path, "%s.idx", argv[1]);
    int rc = read_index(path, &x);
    if (rc < 0)
        goto done;
    snprintf(path, sizeof path, "%s.bin", argv[1]);
    rc = open_tokens(path, &x, &ds);
    if (rc < 0)
        goto done;
    rc = feed(ds, out);
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_dataset_close(ds);
    free(x.bytes);
    if (out && fclose(out) != 0)
        rc = -1;
    return rc < 0;
}
