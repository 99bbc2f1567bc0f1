/* CSV files of pictures: the first byte chooses options, the rest is the file. The same bytes as a
 * list of paths. */
#include "memfile.h"

/* No picture is there: what opens must fail to read with a text. */
static void opened(int rc, struct mr_dataset *ds)
{
    if (rc < 0 ? !mr_last_error()[0] : mr_dataset_length(ds) == 0 || !mr_dataset_text(ds)[0])
        abort();
    if (rc < 0)
        return;
    fuzz_read(ds);
    for (uint64_t k = 0; k < mr_dataset_classes(ds); k++)
        if (!mr_dataset_class_name(ds, k) || mr_dataset_class_samples(ds, k) == 0)
            abort();
    mr_dataset_close(ds);
}

static void open_csv(const char *path, uint8_t choice)
{
    static const char *const labels[] = {"all", "none", "2", "[name,age]"};
    struct mr_dataset *ds = NULL;
    struct mr_csv_opts opts;
    mr_csv_opts_init(&opts);
    opts.path = path;
    opts.labels = labels[choice & 3];
    opts.points = (choice >> 2 & 3) % 3;
    opts.header = (choice >> 4 & 3) % 3;
    opts.allow_nan = choice >> 6 & 1;
    opts.root = "/nowhere";
    opts.picture.max_height = opts.picture.max_width = 64;
    int rc = mr_dataset_open_csv(&opts, &ds);
    opened(rc, ds);
}

static void open_list(const char *path)
{
    struct mr_dataset *ds = NULL;
    struct mr_list_opts opts;
    mr_list_opts_init(&opts);
    opts.path = path;
    opts.root = "/nowhere";
    opts.picture.max_height = opts.picture.max_width = 64;
    int rc = mr_dataset_open_list(&opts, &ds);
    opened(rc, ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size == 0)
        return 0;
    int fd = fuzz_file(data + 1, size - 1, path);
    if (fd < 0)
        return 0;
    open_csv(path, data[0]);
    open_list(path);
    close(fd);
    return 0;
}
