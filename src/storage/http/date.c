/* HTTP dates (RFC 9110, 5.6.7): the current form, and the two obsolete ones that must be
 * accepted. */
#include "storage/http/head.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LONGEST 63

struct fields {
    int year, day, hour, minute, second, end; /* end: characters read, 0: not all of the form */
    char month[4];
};

static const char *const months = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* Widths bound each number. NOLINTBEGIN(cert-err34-c) */
static bool take_fields(const char *text, struct fields *f)
{
    int *d = &f->day, *y = &f->year, *h = &f->hour, *m = &f->minute, *s = &f->second;
    sscanf(text, "%*3[A-Za-z], %2d %3s %4d %2d:%2d:%2d GMT%n", d, f->month, y, h, m, s, &f->end);
    if (f->end)
        return true;
    sscanf(text, "%*9[A-Za-z], %2d-%3[A-Za-z]-%2d %2d:%2d:%2d GMT%n", d, f->month, y, h, m, s,
           &f->end);
    if (f->end) {
        f->year += f->year < 70 ? 2000 : 1900;
        return true;
    }
    sscanf(text, "%*3[A-Za-z] %3s %2d %2d:%2d:%2d %4d%n", f->month, d, h, m, s, y, &f->end);
    return f->end > 0;
}
/* NOLINTEND(cert-err34-c) */

bool mr_http_date(const char *at, size_t bytes, int64_t *out)
{
    char text[LONGEST + 1];
    struct fields f = {0};
    if (bytes > LONGEST)
        return false;
    memcpy(text, at, bytes);
    text[bytes] = 0;
    const char *month = take_fields(text, &f) ? strstr(months, f.month) : NULL;
    if (!month || strlen(f.month) != 3 || (month - months) % 3 || text[f.end])
        return false;
    struct tm tm = {.tm_year = f.year - 1900,
                    .tm_mon = (int)(month - months) / 3,
                    .tm_mday = f.day,
                    .tm_hour = f.hour,
                    .tm_min = f.minute,
                    .tm_sec = f.second};
    *out = timegm(&tm);
    return true;
}
