/*
 * A data set of your own in C++: exceptions become errors, and destructors close what was opened.
 * One of the samples throws, is reported as bad, and is left out of its batch.
 *
 *   c++ -std=c++17 own_dataset_cxx.cc $(pkg-config --cflags --libs millrace) -o own_dataset_cxx
 */
#include <cstdint>
#include <cstdio>
#include <memory>
#include <millrace/millrace.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

class Squares
{
  public:
    explicit Squares(std::uint64_t n) : values(n)
    {
        for (std::uint64_t i = 0; i < n; i++)
            values[i] = static_cast<double>(i * i);
    }

    /* Several threads call it at once. */
    double at(std::uint64_t index) const
    {
        if (index == 13)
            throw std::runtime_error("no square of " + std::to_string(index));
        return values.at(index);
    }

  private:
    std::vector<double> values;
};

struct Close {
    void operator()(mr_dataset *ds) const
    {
        mr_dataset_close(ds);
    }
    void operator()(mr_loader *loader) const
    {
        mr_loader_close(loader);
    }
};

[[noreturn]] void fail()
{
    throw std::runtime_error(mr_last_error());
}

int get(void *user, std::uint64_t index, void *const row[], std::uint64_t (*)[MR_MAX_RANK])
{
    *static_cast<double *>(row[0]) = static_cast<const Squares *>(user)->at(index);
    return 0;
}

std::unique_ptr<mr_dataset, Close> open_squares(Squares &squares, std::uint64_t n)
{
    mr_callback_opts opts;
    mr_callback_opts_init(&opts);
    opts.name = "squares";
    opts.n = n;
    opts.n_fields = 1;
    std::snprintf(opts.field[0].name, sizeof opts.field[0].name, "square");
    opts.field[0].dtype = MR_F64;
    opts.get = millrace::guard<get>; /* an exception must not leave it */
    opts.user = &squares;
    mr_dataset *ds;
    if (mr_dataset_open_callback(&opts, &ds) < 0)
        fail();
    return std::unique_ptr<mr_dataset, Close>(ds);
}

std::unique_ptr<mr_loader, Close> load(mr_dataset *ds)
{
    mr_loader_opts opts;
    mr_loader_opts_init(&opts);
    opts.batch_size = 8;
    opts.bad = MR_BAD_SKIP;
    mr_loader *loader;
    if (mr_loader_open(ds, nullptr, nullptr, nullptr, &opts, &loader) < 0)
        fail();
    return std::unique_ptr<mr_loader, Close>(loader);
}

} // namespace

int main()
try {
    Squares squares(20); /* outlives the data set, and that the loader */
    const auto ds = open_squares(squares, 20);
    const auto loader = load(ds.get());
    mr_batch batch = {};
    batch.size = sizeof batch;
    int rc;
    while ((rc = mr_loader_next(loader.get(), nullptr, &batch)) > 0) {
        const double *value = static_cast<const double *>(batch.field[0].data);
        for (std::uint64_t i = 0; i < batch.n; i++)
            std::printf(i == 0 ? "%.0f" : " %.0f", value[i]);
        std::printf("\n");
        mr_loader_release(loader.get(), &batch, nullptr);
    }
    if (rc < 0)
        fail();
    mr_bad_sample bad = {};
    bad.size = sizeof bad;
    for (std::uint64_t i = 0; mr_loader_bad(loader.get(), i, &bad) > 0; i++)
        std::printf("left out: %s\n", bad.reason);
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
