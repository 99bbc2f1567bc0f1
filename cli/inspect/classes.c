/* What a data set says of its classes, and what was seen of sizes that vary. */
#include "inspect/inspect.h"

#include <string.h>

#define MAX_SHOWN 40

void inspect_print_classes(const struct mr_dataset *ds)
{
    char count[CLI_HUMAN], bar[41];
    uint64_t n = mr_dataset_classes(ds), shown = n < MAX_SHOWN ? n : MAX_SHOWN, most = 1;
    for (uint64_t k = 0; k < n; k++)
        most = mr_dataset_class_samples(ds, k) > most ? mr_dataset_class_samples(ds, k) : most;
    printf("\nclasses:\n");
    struct cli_table *t = cli_table_create(">label\tname\t>samples\t");
    for (uint64_t k = 0; k < shown; k++) {
        uint64_t samples = mr_dataset_class_samples(ds, k);
        size_t length = (size_t)(40 * samples / most);
        memset(bar, '#', length);
        bar[length] = 0;
        cli_table_row(t, "%llu\t%s\t%s\t%s", (unsigned long long)k, mr_dataset_class_name(ds, k),
                      cli_count((double)samples, count), bar);
    }
    cli_table_print(t, stdout, 2);
    if (shown < n)
        printf("  and %s more\n", cli_count((double)(n - shown), count));
}

void inspect_json_classes(const struct mr_dataset *ds, struct mr_json *json)
{
    mr_json_array(json, "classes");
    for (uint64_t k = 0; k < mr_dataset_classes(ds); k++) {
        mr_json_object(json, NULL);
        mr_json_string(json, "name", mr_dataset_class_name(ds, k));
        mr_json_uint(json, "samples", mr_dataset_class_samples(ds, k));
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
}

void inspect_count_size(struct inspect_sizes *s, const struct mr_spec *spec, const uint64_t *dim)
{
    for (int d = 0; d < spec->rank; d++) {
        s->min[d] = s->n == 0 || dim[d] < s->min[d] ? dim[d] : s->min[d];
        s->max[d] = s->n == 0 || dim[d] > s->max[d] ? dim[d] : s->max[d];
        s->sum[d] += (double)dim[d];
    }
    s->n++;
}

void inspect_print_sizes(const struct inspect_sizes *s, const struct mr_spec *spec)
{
    if (!spec->var_dims || s->n == 0)
        return;
    printf("%s sizes: ", spec->name);
    const char *between = "";
    for (int d = 0; d < spec->rank; d++) {
        if (!(spec->var_dims >> d & 1))
            continue;
        printf("%s%llu..%llu (mean %.0f)", between, (unsigned long long)s->min[d],
               (unsigned long long)s->max[d], s->sum[d] / (double)s->n);
        between = " x ";
    }
    printf("\n");
}
