/* The JSON writer, read back with cJSON. */
#include "unit.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <millrace/json.h>

static cJSON *read_back(struct mr_json *json)
{
    const char *text;
    int64_t bytes = mr_json_finish(json, &text);
    if (bytes < 0)
        fail_msg("%s", mr_last_error());
    assert_int_equal(bytes, strlen(text));
    const char *end = NULL;
    cJSON *got = cJSON_ParseWithOpts(text, &end, 1);
    if (!got)
        fail_msg("cannot be read: %s", text);
    return got;
}

static void numbers_read_back_exactly(void **state)
{
    (void)state;
    struct mr_json *json = mr_json_create(0);
    mr_json_array(json, NULL);
    for (uint32_t i = 0; i < 20000; i++)
        mr_json_double(json, NULL, test_double(i));
    mr_json_array_end(json);
    cJSON *got = read_back(json);
    assert_int_equal(cJSON_GetArraySize(got), 20000);
    uint32_t i = 0;
    for (const cJSON *item = got->child; item; item = item->next, i++) {
        double want = test_double(i);
        if (!isfinite(want))
            assert_true(cJSON_IsNull(item));
        else
            assert_memory_equal(&item->valuedouble, &want, sizeof want);
    }
    cJSON_Delete(got);
    mr_json_destroy(json);
}

static void integers_are_whole(void **state)
{
    (void)state;
    struct mr_json *json = mr_json_create(0);
    mr_json_array(json, NULL);
    mr_json_uint(json, NULL, UINT64_MAX);
    mr_json_int(json, NULL, INT64_MIN);
    mr_json_int(json, NULL, INT64_MAX);
    mr_json_double(json, NULL, 0.1);
    mr_json_double(json, NULL, 100);
    mr_json_array_end(json);
    const char *text;
    assert_true(mr_json_finish(json, &text) > 0);
    assert_string_equal(
        text, "[18446744073709551615, -9223372036854775808, 9223372036854775807, 0.1, 100]");
    mr_json_destroy(json);
}

/* Every code point comes back, as value and as key. */
static void text_reads_back(void **state)
{
    (void)state;
    for (uint32_t c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
        char text[8] = {0};
        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        if (c < 0x80)
            text[0] = (char)c;
        else if (c < 0x800)
            text[0] = (char)(0xC0 | c >> 6), text[1] = (char)(0x80 | (c & 63));
        else if (c < 0x10000)
            text[0] = (char)(0xE0 | c >> 12), text[1] = (char)(0x80 | (c >> 6 & 63)),
            text[2] = (char)(0x80 | (c & 63));
        else
            text[0] = (char)(0xF0 | c >> 18), text[1] = (char)(0x80 | (c >> 12 & 63)),
            text[2] = (char)(0x80 | (c >> 6 & 63)), text[3] = (char)(0x80 | (c & 63));
        struct mr_json *json = mr_json_create(0);
        mr_json_object(json, NULL);
        mr_json_string(json, text, text);
        mr_json_object_end(json);
        cJSON *got = read_back(json);
        assert_string_equal(got->child->string, text);
        assert_string_equal(got->child->valuestring, text);
        cJSON_Delete(got);
        mr_json_destroy(json);
    }
}

static void bad_utf8_is_replaced(void **state)
{
    (void)state;
#define BAD "\xEF\xBF\xBD"
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"a\xFFz", "a" BAD "z"},               /* no lead byte */
        {"\xC3", BAD},                         /* cut off */
        {"\xE2\x82", BAD BAD},                 /* cut off */
        {"\xC0\xAF", BAD BAD},                 /* overlong */
        {"\xE0\x80\xAF", BAD BAD BAD},         /* overlong */
        {"\xED\xA0\x80", BAD BAD BAD},         /* a surrogate */
        {"\xF4\x90\x80\x80", BAD BAD BAD BAD}, /* past U+10FFFF */
        {"\xF8\x88\x80\x80\x80", BAD BAD BAD BAD BAD},
        {"\x80", BAD},
        {"\xC3\xA9\xC3", "\xC3\xA9" BAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_json *json = mr_json_create(0);
        mr_json_string(json, NULL, cases[i].in);
        cJSON *got = read_back(json);
        assert_string_equal(got->valuestring, cases[i].want);
        cJSON_Delete(got);
        mr_json_destroy(json);
    }
}

/* What a terminal obeys or shows wrongly is written by its number, and reads back as it was. */
static void terminals_see_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"\x1b\x07\x7f", "\"\\u001b\\u0007\\u007f\""},
        {"\xc2\x80\xc2\x9b\xc2\x9f\u00a0", "\"\\u0080\\u009b\\u009f\u00a0\""},
        {"\u061c\u200e\u200f\u2010", "\"\\u061c\\u200e\\u200f\u2010\""},
        {"\u2029\u202a\u202e\u202f\u2066\u2069", "\"\u2029\\u202a\\u202e\u202f\\u2066\\u2069\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mr_json *json = mr_json_create(0);
        const char *text = NULL;
        mr_json_string(json, NULL, cases[i].in);
        assert_true(mr_json_finish(json, &text) > 0);
        assert_string_equal(text, cases[i].want);
        cJSON *got = cJSON_Parse(text);
        assert_string_equal(got->valuestring, cases[i].in);
        cJSON_Delete(got);
        mr_json_destroy(json);
    }
}

/* Random trees, written both ways of indentation, are the same tree when read. */
static void grow(struct mr_json *json, cJSON *tree, bool in_object, uint32_t *i, int depth)
{
    int n = (int)(test_u64((*i)++) % 5);
    for (int k = 0; k < n; k++) {
        char name[32];
        snprintf(name, sizeof name, "k\n%u", *i);
        const char *key = in_object ? name : NULL;
        uint64_t kind = test_u64((*i)++) % (depth < 6 ? 6 : 4);
        cJSON *item;
        if (kind == 0) {
            mr_json_int(json, key, (int64_t)*i);
            item = cJSON_CreateNumber(*i);
        } else if (kind == 1) {
            mr_json_bool(json, key, *i & 1);
            item = cJSON_CreateBool(*i & 1);
        } else if (kind == 2) {
            mr_json_string(json, key, "\"\\\t\x7f");
            item = cJSON_CreateString("\"\\\t\x7f");
        } else if (kind == 3) {
            mr_json_null(json, key);
            item = cJSON_CreateNull();
        } else if (kind == 4) {
            item = cJSON_CreateObject();
            mr_json_object(json, key);
            grow(json, item, true, i, depth + 1);
            mr_json_object_end(json);
        } else {
            item = cJSON_CreateArray();
            mr_json_array(json, key);
            grow(json, item, false, i, depth + 1);
            mr_json_array_end(json);
        }
        if (in_object)
            cJSON_AddItemToObject(tree, name, item);
        else
            cJSON_AddItemToArray(tree, item);
    }
}

static void random_trees_read_back(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < 300; t++) {
        uint32_t i = t * 1000;
        struct mr_json *json = mr_json_create(t % 2 ? 2 : 0);
        cJSON *want = cJSON_CreateObject();
        mr_json_object(json, NULL);
        grow(json, want, true, &i, 0);
        mr_json_object_end(json);
        cJSON *got = read_back(json);
        assert_true(cJSON_Compare(want, got, 1));
        cJSON_Delete(want);
        cJSON_Delete(got);
        mr_json_destroy(json);
    }
}

static void indentation(void **state)
{
    (void)state;
    struct mr_json *json = mr_json_create(2);
    mr_json_object(json, NULL);
    mr_json_array(json, "a");
    mr_json_int(json, NULL, 1);
    mr_json_int(json, NULL, 2);
    mr_json_array_end(json);
    mr_json_object(json, "e");
    mr_json_object_end(json);
    mr_json_object_end(json);
    const char *text;
    assert_true(mr_json_finish(json, &text) > 0);
    assert_string_equal(text, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"e\": {}\n}");
    mr_json_destroy(json);
}

static void misuse_is_told(void **state)
{
    (void)state;
    const char *text;
    for (int i = 0; i < 7; i++) {
        struct mr_json *json = mr_json_create(0);
        if (i == 0)
            mr_json_string(json, "key", "outside of an object");
        if (i == 1)
            mr_json_object(json, NULL), mr_json_int(json, NULL, 1), mr_json_object_end(json);
        if (i == 2)
            mr_json_array(json, NULL), mr_json_object_end(json);
        if (i == 3)
            mr_json_object(json, NULL);
        if (i == 4)
            mr_json_int(json, NULL, 1), mr_json_int(json, NULL, 2);
        if (i == 5)
            mr_json_object_end(json);
        for (int d = 0; i == 6 && d < 1000; d++)
            mr_json_array(json, NULL);
        assert_int_equal(mr_json_finish(json, &text), MR_EMISUSE);
        mr_json_destroy(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_back_exactly),
        cmocka_unit_test(integers_are_whole),
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(bad_utf8_is_replaced),
        cmocka_unit_test(terminals_see_numbers),
        cmocka_unit_test(random_trees_read_back),
        cmocka_unit_test(indentation),
        cmocka_unit_test(misuse_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
