/* Text; numbers in the C locale: a host program may have set one whose decimal point is a comma. */
#include "base/base.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double mr_text_to_f64(const char *text, char **end)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale ? strtod_l(text, end, c_locale) : strtod(text, end);
}

const char *mr_f64_to_text(double value, char buf[32])
{
    pthread_once(&c_locale_once, make_c_locale);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    if (before)
        uselocale(before);
    return buf;
}

bool mr_ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}
