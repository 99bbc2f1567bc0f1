/* A column of a page: numbers as LEB128, deflated (zlib), base64, in an element "data-NAME". */
#ifndef MR_TIMELINE_COLUMN_H
#define MR_TIMELINE_COLUMN_H

#include <stddef.h>
#include <stdint.h>

/* What a column's element becomes. Zeroed at first; the caller frees bytes. */
struct mr_tl_text {
    char *bytes;
    size_t n;
    uint64_t room;
    int failed; /* negative: there was no memory for all of it */
};

struct mr_tl_column;

/* Returns 0, or -ENOMEM with the error set. text: appended to. */
int mr_tl_column_begin(struct mr_tl_text *text, const char *name, struct mr_tl_column **out);
void mr_tl_column_put(struct mr_tl_column *column, uint64_t x);
/* And frees it. Returns 0, or -ENOMEM: the text is not whole. */
int mr_tl_column_end(struct mr_tl_column *column);

#endif
