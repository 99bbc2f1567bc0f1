/* Numbers for people. */
#include "base/base.h"

#include <math.h>
#include <millrace/text.h>

static const struct {
    double step;
    const char *names[7]; /* NULL: no larger one */
} units[] = {
    [MR_TEXT_BYTES] = {1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}},
    [MR_TEXT_BYTES_1000] = {1000, {"B", "kB", "MB", "GB", "TB", "PB"}},
    [MR_TEXT_BYTES_PER_S] = {1000, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}},
    [MR_TEXT_NS] = {1000, {"ns", "us", "ms", "s"}},
    [MR_TEXT_NS_MICRO] = {1000, {"ns", "\xc2\xb5s", "ms", "s"}},
    [MR_TEXT_COUNT] = {1000, {"", "k", "M", "G", "T"}},
    [MR_TEXT_MILLIONS] = {1000, {"M", "G", "T", "P", "E"}},
};

const char *mr_text_scale(enum mr_text_unit unit, int figures, double *value, int *digits)
{
    if (!value || !digits)
        return "";
    double size = fabs(*value), step = units[unit].step;
    double all = pow(10, figures), most = all - 0.5; /* from 999.5 on, three figures are 1000 */
    const char *const *names = units[unit].names;
    size_t i = 0;
    for (; i + 1 < MR_COUNT(units[unit].names) && names[i + 1] && size >= step * (most / all);
         i++) {
        size /= step;
        *value /= step;
    }
    int n = figures - 1;
    double behind = all / 10;
    while (n > 0 && size >= most / behind) {
        behind /= 10;
        n--;
    }
    *digits = i == 0 && size == floor(size) ? 0 : n;
    return names[i];
}

const char *mr_text_number(double value, enum mr_text_unit unit, char buf[MR_TEXT_NUMBER])
{
    int digits;
    if (!buf)
        return "";
    if (!(value >= 0 && value < 1e60)) {
        snprintf(buf, MR_TEXT_NUMBER, "-");
        return buf;
    }
    const char *name = mr_text_scale(unit, 3, &value, &digits);
    if (value < 1e7)
        snprintf(buf, MR_TEXT_NUMBER, "%.*f %s", digits, value, name);
    else
        snprintf(buf, MR_TEXT_NUMBER, "%.3g %s", value, name);
    return buf;
}
