/* A column of a page: numbers as LEB128, deflated (zlib), base64, in an element "data-NAME". */
#ifndef MR_TIMELINE_COLUMN_H
#define MR_TIMELINE_COLUMN_H

#include <stdint.h>
#include <stdio.h>

struct mr_tl_column;

/* Returns 0, or -ENOMEM with the error set. Whether all could be written, ferror(file) says. */
int mr_tl_column_begin(FILE *file, const char *name, struct mr_tl_column **out);
void mr_tl_column_put(struct mr_tl_column *column, uint64_t x);
void mr_tl_column_end(struct mr_tl_column *column); /* and frees it */

#endif
