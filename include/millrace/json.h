/*
 * A JSON writer: makes one value as text in memory, with commas, indentation and escapes right. Text that is not UTF-8
 * has its bad bytes replaced by U+FFFD; numbers that JSON cannot hold (NaN, infinity) become null.
 *
 * Errors (no memory, unbalanced calls) are kept and reported by mr_json_finish(). Not thread-safe: one writer, one
 * thread.
 */
#ifndef MILLRACE_JSON_H
#define MILLRACE_JSON_H

#include <millrace/error.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mr_json;

/* indent: spaces a level, 0 for one line. NULL without memory. */
MR_API struct mr_json *mr_json_create(int indent);
MR_API void mr_json_destroy(struct mr_json *json);

/* key: the member's name inside an object, NULL inside an array and for the outermost value. */
MR_API void mr_json_object(struct mr_json *json, const char *key);
MR_API void mr_json_object_end(struct mr_json *json);
MR_API void mr_json_array(struct mr_json *json, const char *key);
MR_API void mr_json_array_end(struct mr_json *json);
MR_API void mr_json_string(struct mr_json *json, const char *key, const char *value); /* NULL writes null */
MR_API void mr_json_int(struct mr_json *json, const char *key, int64_t value);
MR_API void mr_json_uint(struct mr_json *json, const char *key, uint64_t value);
MR_API void mr_json_double(struct mr_json *json, const char *key, double value); /* shortest text that reads back */
MR_API void mr_json_bool(struct mr_json *json, const char *key, int value);
MR_API void mr_json_null(struct mr_json *json, const char *key);

/* Ends the value. [out] text: NUL-terminated, owned by the writer. Returns its length in bytes, or -ENOMEM,
 * MR_EMISUSE. */
MR_API int64_t mr_json_finish(struct mr_json *json, const char **text);

#ifdef __cplusplus
}
#endif
#endif
