/*
 * A JSON writer. It builds one JSON value as text in memory and takes care of commas, indentation
 * and escapes.
 *
 *     struct mr_json *json = mr_json_create(0);
 *     mr_json_object(json, NULL);
 *     mr_json_string(json, "name", "mnist");
 *     mr_json_uint(json, "samples", 60000);
 *     mr_json_object_end(json);
 *     const char *text;
 *     if (mr_json_finish(json, &text) > 0)
 *         puts(text); // {"name": "mnist", "samples": 60000}
 *     mr_json_destroy(json);
 *
 * Invalid UTF-8 is replaced by U+FFFD. NaN and infinity are written as null.
 *
 * Errors: the first one (no memory, calls that do not balance) is kept and returned by
 * mr_json_finish(), so the other calls need no checks. All accept a NULL writer.
 * Threads: a writer belongs to one thread at a time. fork: a child has a copy.
 */
#ifndef MILLRACE_JSON_H
#define MILLRACE_JSON_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_json;

/* Creates a writer. indent: spaces per level; 0: everything on one line. NULL when out of
 * memory. */
MR_API struct mr_json *mr_json_create(int indent);

/* Frees a writer and its text. NULL is allowed. */
MR_API void mr_json_destroy(struct mr_json *json);

/*
 * Each call below writes one value, or opens or closes one.
 * key: the member's name inside an object; NULL inside an array and for the outermost value.
 * Copied.
 */
MR_API void mr_json_object(struct mr_json *json, const char *key);
MR_API void mr_json_object_end(struct mr_json *json);
MR_API void mr_json_array(struct mr_json *json, const char *key);
MR_API void mr_json_array_end(struct mr_json *json);

/* value: copied; NULL writes null. */
MR_API void mr_json_string(struct mr_json *json, const char *key, const char *value);
MR_API void mr_json_int(struct mr_json *json, const char *key, int64_t value);
MR_API void mr_json_uint(struct mr_json *json, const char *key, uint64_t value);

/* Writes the shortest text that reads back as the same number. */
MR_API void mr_json_double(struct mr_json *json, const char *key, double value);
MR_API void mr_json_bool(struct mr_json *json, const char *key, int value);
MR_API void mr_json_null(struct mr_json *json, const char *key);

/*
 * Ends the value.
 * [out] text: on success; NUL-terminated, owned by the writer.
 * Returns the text's length in bytes, -ENOMEM, or MR_EMISUSE when calls do not balance.
 */
MR_API int64_t mr_json_finish(struct mr_json *json, const char **text);

#ifdef __cplusplus
}
#endif
#endif
