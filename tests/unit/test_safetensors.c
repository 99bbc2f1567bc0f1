/* safetensors: what was written is read, shards as one file; what is wrong is named. */
#include "samples.h"

static const char *write_st(const char *name, const char *header, const void *data, size_t n)
{
    uint8_t file[8192];
    size_t length = strlen(header);
    assert_true(8 + length + n <= sizeof file);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)length >> 8 * i);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, data, n);
    return test_write(name, file, 8 + length + n);
}

static struct mr_dataset *open_fields(const char *path, const char *fields)
{
    char uri[900];
    snprintf(uri, sizeof uri, "safetensors:%s%s%s", path, fields ? ",fields=" : "",
             fields ? fields : "");
    return test_open(uri);
}

static const char header[] =
    "{\"__metadata__\":{\"made\":\"here\"},"
    "\"image\":{\"dtype\":\"U8\",\"shape\":[5,2,3],\"data_offsets\":[0,30]},"
    "\"label\":{\"dtype\":\"I16\",\"shape\":[5],\"data_offsets\":[30,40]},"
    "\"mean\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[40,52]}}";

static void tensors_are_fields(void **state)
{
    (void)state;
    uint8_t data[52], image[6], label[2];
    test_random_bytes(1, data, sizeof data);
    const char *path = write_st("a.safetensors", header, data, sizeof data);
    struct mr_dataset *ds = open_fields(path, "[label,image]");
    assert_int_equal(mr_dataset_length(ds), 5);
    test_field_is(ds, 0, "label i16");
    test_field_is(ds, 1, "image u8[2,3]");
    for (uint64_t i = 0; i < 5; i++) {
        test_works(mr_dataset_read(ds, i, (void *const[]){label, image}, NULL));
        assert_memory_equal(image, data + 6 * i, 6);
        assert_memory_equal(label, data + 30 + 2 * i, 2);
    }
    mr_dataset_close(ds);
    struct mr_dataset *one = open_fields(path, "mean");
    assert_int_equal(mr_dataset_length(one), 3);
    mr_dataset_close(one);
}

static void shards_are_one(void **state)
{
    (void)state;
    uint8_t a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {7, 8, 9}, x[2], y[1];
    write_st("m-1.safetensors", "{\"x\":{\"dtype\":\"U8\",\"shape\":[3,2],\"data_offsets\":[0,6]}}",
             a, 6);
    write_st("m-2.safetensors", "{\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
             b, 3);
    static const char index[] =
        "{\"weight_map\":{\"x\":\"m-1.safetensors\",\"y\":\"m-2.safetensors\"}}";
    struct mr_dataset *ds =
        open_fields(test_write("m.safetensors.index.json", index, sizeof index - 1), NULL);
    test_works(mr_dataset_read(ds, 2, (void *const[]){x, y}, NULL));
    assert_int_equal(x[1], 6);
    assert_int_equal(y[0], 9);
    mr_dataset_close(ds);
    static const char out[] = "{\"weight_map\":{\"x\":\"../m-1.safetensors\"}}";
    char uri[800];
    snprintf(uri, sizeof uri, "safetensors:%s",
             test_write("n.safetensors.index.json", out, sizeof out - 1));
    test_fails(test_open_fails(uri), MR_EFORMAT, "n.safetensors.index.json", "'x'",
               "beside the index");
}

static int open_fails(const char *path, const char *options)
{
    char uri[900];
    snprintf(uri, sizeof uri, "safetensors:%s%s", path, options);
    return test_open_fails(uri);
}

/* 8-bit floats are no numbers here: only who asks gets their bytes, and only chosen tensors
 * matter. */
static void floats_of_8_bits_must_be_asked_for(void **state)
{
    (void)state;
    static const char *const names[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ"};
    uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8}, row[2];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[300], uri[800];
        snprintf(text, sizeof text,
                 "{\"w\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,4]},"
                 "\"x\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[4,8]}}",
                 names[i]);
        const char *path = write_st("f8.safetensors", text, data, sizeof data);
        test_fails(open_fails(path, ""), MR_EUNSUPPORTED, path, "'w'", names[i], "fp8=u8",
                   "fields=");
        mr_dataset_close(open_fields(path, "x"));
        snprintf(uri, sizeof uri, "safetensors:%s,fields=[w],fp8=u8", path);
        struct mr_dataset *ds = test_open(uri);
        test_field_is(ds, 0, "w u8[2]");
        test_works(mr_dataset_read(ds, 1, (void *const[]){row}, NULL));
        assert_memory_equal(row, data + 2, 2);
        mr_dataset_close(ds);
    }
}

static void too_many_are_listed(void **state)
{
    (void)state;
    char text[4096] = "{";
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%s\"layer.%02d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                 i ? "," : "", i, i, i + 1);
    strcat(text, "}");
    const char *path =
        write_st("many.safetensors", text, "abcdefghijklmnopqrstuvwxyz0123456789abcd", 40);
    test_fails(open_fails(path, ""), MR_ELIMIT, path, "40 tensors", "at most 32 fields",
               "fields=[NAME,...]", "layer.00", "layer.11 and 28 more");
    test_fails(open_fails(path, ",fields=[layer.13,layr.3]"), MR_EOPTION,
               "no tensor has the name 'layr.3'", "layer.00");
    mr_dataset_close(open_fields(path, "[layer.13,layer.02]"));
}

static void a_shard_without_its_tensor_is_named(void **state)
{
    (void)state;
    write_st("l-1.safetensors", "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
             "ab", 2);
    static const char index[] =
        "{\"weight_map\":{\"x\":\"l-1.safetensors\",\"y\":\"l-1.safetensors\"}}";
    const char *path = test_write("l.safetensors.index.json", index, sizeof index - 1);
    test_fails(open_fails(path, ""), MR_EFORMAT, "l-1.safetensors", "no tensor 'y'", "index");
    mr_dataset_close(open_fields(path, "x"));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *header, *text;
        size_t bytes;
        int code;
    } cases[] = {
        {"[]", "not a JSON object", 0, MR_EFORMAT},
        {"{}", "no tensors", 0, MR_EFORMAT},
        {"{\"a\":1}", "'a': is not an object", 0, MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[0,1]}}", "dtype 'X9'", 1,
         MR_EUNSUPPORTED},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", "'a': its shape", 1,
         MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}",
         "take 2 bytes, its range has 1", 1, MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
         "ends at byte 2 of the data, file has 1", 1, MR_ETRUNCATED},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "do not begin where", 2,
         MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         "tensors take 1 bytes, file has 2", 2, MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         "'a': appears twice", 2, MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", "'a' has no samples", 1,
         MR_EFORMAT},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
         "'b' has a first dimension of 3, those before 2", 5, MR_EFORMAT},
    };
    static const uint8_t zeros[16];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char uri[800];
        const char *path = write_st("bad.safetensors", cases[i].header, zeros, cases[i].bytes);
        snprintf(uri, sizeof uri, "safetensors:%s", path);
        test_fails(test_open_fails(uri), cases[i].code, path, cases[i].text);
    }
    char uri[800];
    snprintf(uri, sizeof uri, "safetensors:%s", test_write("short.safetensors", "\1\0\0", 3));
    test_fails(test_open_fails(uri), MR_ETRUNCATED, "begins with 8 bytes, file has 3");
    snprintf(uri, sizeof uri, "safetensors:%s",
             test_write("long.safetensors", "\377\377\377\377\377\377\377\377x", 9));
    test_fails(test_open_fails(uri), MR_EFORMAT, "a header of 18446744073709551615 bytes");
    write_st("a.safetensors", header, zeros, 0);
    snprintf(uri, sizeof uri, "safetensors:%s", test_path("a.safetensors"));
    test_fails(test_open_fails(uri), MR_ETRUNCATED, "a.safetensors");
}

static void files_that_others_made(void **state)
{
    (void)state;
    const char *path = test_data("formats/safetensors/huggingface-samples/overall.safetensors");
    const char *abuse = test_data(
        "formats/safetensors/safetensors-cpp/test/safetensors_abuse_attempt_1.safetensors");
    if (!path || !abuse)
        skip();
    struct mr_dataset *ds = open_fields(path, "[I,e]");
    assert_int_equal(mr_dataset_length(ds), 6);
    test_field_is(ds, 0, "I u32");
    test_field_is(ds, 1, "e f16");
    mr_dataset_close(ds);
    char uri[1100];
    snprintf(uri, sizeof uri, "safetensors:%s", abuse);
    test_fails(test_open_fails(uri), MR_ETRUNCATED, "abuse_attempt_1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_fields),
        cmocka_unit_test(shards_are_one),
        cmocka_unit_test(floats_of_8_bits_must_be_asked_for),
        cmocka_unit_test(too_many_are_listed),
        cmocka_unit_test(a_shard_without_its_tensor_is_named),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(files_that_others_made),
    };
    return cmocka_run_group_tests(tests, test_dir_make, test_dir_drop);
}
