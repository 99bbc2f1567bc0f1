/* millrace inspect: what was found, for people. */
#include "inspect/inspect.h"

#include <math.h>
#include <string.h>

#define MAX_PICTURE 64 /* pixels a side that are drawn */
#define MAX_STRING  60 /* bytes of a string that are shown */

/* A whole number as one, others with six digits. */
static const char *number(double v, char *buf)
{
    snprintf(buf, CLI_HUMAN, fabs(v) < 1e15 && v == floor(v) ? "%.0f" : "%.6g", v);
    return buf;
}

static void print_fields(const struct inspect *k)
{
    char spec[256], bytes[CLI_HUMAN], min[CLI_HUMAN], max[CLI_HUMAN], mean[CLI_HUMAN], heads[128];
    snprintf(heads, sizeof heads, "field\t>bytes\t>min\t>max\t>mean");
    struct cli_table *t = cli_table_create(heads);
    for (int i = 0; i < k->n_fields; i++) {
        const struct inspect_field *f = &k->field[i];
        uint64_t size = 0;
        mr_spec_bytes(f->spec, &size);
        cli_table_row(t, "%s\t%s\t%s\t%s\t%s", mr_spec_format(f->spec, spec, sizeof spec),
                      cli_bytes(size, bytes), f->n ? number(f->min, min) : "-",
                      f->n ? number(f->max, max) : "-",
                      f->n ? number(f->sum / (double)f->n, mean) : "-");
    }
    cli_table_print(t, stdout, 0);
}

static void print_labels(const struct inspect_field *f)
{
    uint64_t most = 1;
    char label[CLI_HUMAN], bar[41], name[CLI_CLEAN];
    if (!f->is_label || f->n_classes == 0 || f->n_classes > 40)
        return;
    for (uint64_t i = 0; i < f->n_classes; i++)
        most = f->class[i].n > most ? f->class[i].n : most;
    printf("\n%s:\n", cli_clean(f->spec->name, name));
    struct cli_table *t = cli_table_create(">value\t>samples\t");
    for (uint64_t i = 0; i < f->n_classes; i++) {
        int length = (int)(40 * f->class[i].n / most);
        memset(bar, '#', (size_t)length);
        bar[length] = 0;
        cli_table_row(t, "%lld\t%s\t%s", (long long)f->class[i].value,
                      cli_count((double)f->class[i].n, label), bar);
    }
    cli_table_print(t, stdout, 2);
}

/* Height and width of a small grey picture: u8 with two dimensions longer than 1. */
static bool picture(const struct mr_spec *spec, const uint64_t *dim, uint64_t *h, uint64_t *w)
{
    int found = 0;
    for (int d = 0; d < spec->rank; d++) {
        if (dim[d] == 1)
            continue;
        *(found == 0 ? h : w) = dim[d];
        found++;
    }
    return spec->dtype == MR_U8 && found == 2 && *h <= MAX_PICTURE && *w <= MAX_PICTURE;
}

/* Characters are about twice as high as wide: each stands for two pixels, one above the other. */
static void print_picture(const unsigned char *p, uint64_t h, uint64_t w)
{
    static const char ramp[] = " .:-=+*#%@";
    for (uint64_t y = 0; y < h; y += 2) {
        char line[MAX_PICTURE + 1];
        size_t used = 0;
        for (uint64_t x = 0; x < w; x++) {
            unsigned low = y + 1 < h ? p[(y + 1) * w + x] : 0, ink = (p[y * w + x] + low) / 2;
            line[x] = ramp[ink * (sizeof ramp - 2) / 255];
            used = line[x] != ' ' ? x + 1 : used;
        }
        line[used] = 0;
        printf("  |%s\n", line);
    }
}

static void print_values(const struct mr_spec *spec, const uint64_t *dim, const unsigned char *p)
{
    uint64_t n = inspect_count(spec, dim), show = n < 8 ? n : 8;
    char text[CLI_HUMAN];
    for (uint64_t i = 0; i < show; i++)
        printf(" %s", number(inspect_value(spec->dtype, p + i * mr_dtype_size(spec->dtype)), text));
    printf("%s\n", show < n ? " ..." : "");
}

/* The beginning of a string in quotes. A character that would be cut is left out. */
static void print_string(const unsigned char *p, uint64_t n)
{
    static const char plain[] = "abtnvfr"; /* from 7 on */
    char text[4 * MAX_STRING + 1];
    uint64_t show = n < MAX_STRING ? n : MAX_STRING;
    size_t at = 0;
    while (show < n && show > 0 && (p[show] & 0xC0) == 0x80)
        show--;
    for (uint64_t i = 0; i < show; i++) {
        unsigned c = p[i];
        if (c >= 7 && c <= 13)
            at += (size_t)snprintf(text + at, sizeof text - at, "\\%c", plain[c - 7]);
        else if (c < ' ' || c == 0x7f)
            at += (size_t)snprintf(text + at, sizeof text - at, "\\x%02x", c);
        else if (c == '"' || c == '\\')
            at += (size_t)snprintf(text + at, sizeof text - at, "\\%c", (char)c);
        else
            text[at++] = (char)c;
    }
    text[at] = 0;
    printf(" \"");
    mr_text_write(text, stdout);
    printf("\"%s\n", show < n ? " ..." : "");
}

static void print_sample(const struct inspect *k, uint64_t index)
{
    char text[256];
    printf("\nsample %llu\n", (unsigned long long)index);
    for (int f = 0; f < k->n_fields; f++) {
        struct mr_spec spec = *k->field[f].spec;
        uint64_t h = 0, w = 0;
        memcpy(spec.dim, k->dim[f], sizeof spec.dim);
        spec.var_dims = 0;
        mr_spec_format(&spec, text, sizeof text);
        printf("  %s:", mr_text_printable(text));
        if (spec.kind == MR_KIND_STRING) {
            print_string(k->row[f], spec.dim[0]);
            continue;
        }
        if (!picture(&spec, spec.dim, &h, &w)) {
            print_values(&spec, spec.dim, k->row[f]);
            continue;
        }
        putchar('\n');
        print_picture(k->row[f], h, w);
    }
}

uint64_t inspect_last_shown(const struct inspect *k)
{
    uint64_t length = mr_dataset_length(k->ds), left = length > k->index ? length - k->index : 0;
    return k->index + (k->n_shown < left ? k->n_shown : left);
}

/* Of what the statistics are, if not of all samples. */
static void print_scanned(const struct inspect *k)
{
    char some[CLI_HUMAN], all[CLI_HUMAN];
    uint64_t length = mr_dataset_length(k->ds);
    if (k->scanned < length)
        printf("(statistics are of the first %s of %s samples%s; --scan %llu reads all)\n",
               cli_count((double)k->scanned, some), cli_count((double)length, all),
               k->scan_limited ? ", so as not to read more than 256 MiB" : "",
               (unsigned long long)length);
}

int inspect_print_text(struct inspect *k)
{
    char count[CLI_HUMAN], scanned[CLI_HUMAN], text[CLI_CLEAN];
    printf("%s\n", cli_clean(mr_dataset_text(k->ds), text));
    printf("%s sample%s, format %s, fingerprint %016llx\n\n",
           cli_count((double)mr_dataset_length(k->ds), count), cli_s(mr_dataset_length(k->ds)),
           mr_dataset_format(k->ds), (unsigned long long)mr_dataset_fingerprint(k->ds));
    print_fields(k);
    print_scanned(k);
    for (int f = 0; f < k->n_fields; f++)
        inspect_print_sizes(&k->field[f].sizes, k->field[f].spec);
    if (k->n_bad > 0)
        printf("%s of %s samples that were read are bad\n", cli_count((double)k->n_bad, count),
               cli_count((double)k->scanned, scanned));
    bool named = mr_dataset_classes(k->ds) > 0;
    if (named)
        inspect_print_classes(k->ds);
    for (int f = 0; f < k->n_fields && !named; f++)
        print_labels(&k->field[f]);
    for (uint64_t i = k->index; i < inspect_last_shown(k); i++)
        if (inspect_read_good(k, i))
            print_sample(k, i);
    return k->n_bad ? CLI_FAILED : CLI_OK;
}
