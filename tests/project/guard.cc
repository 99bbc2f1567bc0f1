// Exceptions that leave callbacks, in C++: millrace::guard makes each an error that says what() and where. Built and run
// against the installed library by install.sh.
#include <cstdio>
#include <cstring>
#include <millrace/millrace.h>
#include <stdexcept>

namespace
{

using Dims = uint64_t (*)[MR_MAX_RANK];

constexpr uint64_t N = 64;
int failed;

// Callbacks of all kinds that throw.

int throw_in_get(void *, uint64_t index, void *const row[], Dims)
{
    if (index == 5)
        throw std::runtime_error("from get");
    std::memcpy(row[0], &index, sizeof index);
    return 0;
}

int throw_an_int(void *, uint64_t, void *const[], Dims)
{
    throw 7;
}

int get(void *, uint64_t index, void *const row[], Dims)
{
    std::memcpy(row[0], &index, sizeof index);
    return 0;
}

int throw_in_init(void *, uint32_t, void **)
{
    throw std::runtime_error("from init");
}

int throw_in_map(void *, uint64_t, uint64_t, uint64_t, uint64_t *)
{
    throw std::runtime_error("from map");
}

uint64_t throw_in_n_batches(void *, uint64_t)
{
    throw std::runtime_error("from n_batches");
}

uint64_t one_batch(void *, uint64_t)
{
    return 1;
}

int throw_in_batch(void *, uint64_t, uint64_t, uint64_t, mr_batch_item *)
{
    throw std::runtime_error("from batch");
}

int throw_in_collate(void *, const mr_collate_context *, int, const mr_collate_in[],
                     mr_collate_out[])
{
    throw std::runtime_error("from collate");
}

int throw_in_op(void *, const mr_spec *, const void *, const uint64_t *, const mr_spec *, void *,
                uint64_t *, const uint32_t[4])
{
    throw std::runtime_error("from op");
}

// Runs and what they must end with.

mr_spec scalar(const char *name)
{
    mr_spec spec{};
    std::snprintf(spec.name, sizeof spec.name, "%s", name);
    spec.dtype = MR_U64;
    return spec;
}

void expect(const char *what, int rc, const char *text)
{
    if (rc == MR_ECALLBACK && std::strstr(mr_last_error(), text))
        return;
    std::printf("%s: expected MR_ECALLBACK and \"%s\", found %d, %s\n", what, text, rc,
                mr_last_error());
    failed = 1;
}

int run(mr_dataset *dataset, mr_sampler *sampler, mr_transform *chain, const mr_loader_opts *opts)
{
    mr_loader *loader = nullptr;
    mr_batch batch{};
    batch.size = sizeof batch;
    int rc = mr_loader_open(dataset, sampler, chain, nullptr, opts, &loader);
    if (rc < 0)
        return rc;
    while ((rc = mr_loader_next(loader, nullptr, &batch)) > 0)
        mr_loader_release(loader, &batch, nullptr);
    mr_loader_close(loader);
    return rc;
}

mr_dataset *open(decltype(mr_callback_opts::get) callback, decltype(mr_callback_opts::init) init)
{
    mr_callback_opts opts;
    mr_dataset *dataset = nullptr;
    mr_callback_opts_init(&opts);
    opts.name = "mine";
    opts.n = N;
    opts.n_fields = 1;
    opts.field[0] = scalar("x");
    opts.get = callback;
    opts.init = init;
    if (mr_dataset_open_callback(&opts, &dataset) < 0)
        std::printf("%s\n", mr_last_error());
    return dataset;
}

void samples()
{
    mr_dataset *dataset = open(millrace::guard<throw_in_get>, nullptr);
    expect("get", run(dataset, nullptr, nullptr, nullptr), "mine: sample 5: from get");
    mr_dataset_close(dataset);
    dataset = open(millrace::guard<throw_an_int>, nullptr);
    expect("an int", run(dataset, nullptr, nullptr, nullptr), "mine: sample 0: an exception");
    mr_dataset_close(dataset);
    dataset = open(get, millrace::guard<throw_in_init>);
    // Each worker's init throws; whichever is first stops the run.
    expect("init", run(dataset, nullptr, nullptr, nullptr), ": from init");
    mr_dataset_close(dataset);
}

void samplers(mr_dataset *dataset)
{
    mr_sampler_opts opts;
    mr_sampler *sampler = nullptr;
    mr_sampler_opts_init(&opts);
    opts.kind = MR_SAMPLER_CUSTOM;
    opts.length = N;
    opts.map = millrace::guard<throw_in_map>;
    mr_sampler_create(&opts, N, &sampler);
    expect("map", run(dataset, sampler, nullptr, nullptr), "from map");
    mr_sampler_destroy(sampler);

    mr_sampler_opts_init(&opts);
    opts.kind = MR_SAMPLER_BATCHES;
    opts.max_batch = 4;
    opts.n_batches = one_batch;
    opts.batch = millrace::guard<throw_in_batch>;
    sampler = nullptr;
    mr_sampler_create(&opts, N, &sampler);
    expect("batch", run(dataset, sampler, nullptr, nullptr), "from batch");
    mr_sampler_destroy(sampler);

    opts.n_batches = millrace::guard<throw_in_n_batches>;
    sampler = nullptr;
    mr_sampler_create(&opts, N, &sampler);
    expect("n_batches", run(dataset, sampler, nullptr, nullptr), "from n_batches");
    mr_sampler_destroy(sampler);
}

void batches(mr_dataset *dataset)
{
    mr_collate_fn fn;
    mr_loader_opts opts;
    mr_collate_fn_init(&fn);
    fn.name = "pairs";
    fn.n_fields = 1;
    fn.field[0] = scalar("x");
    fn.field[0].rank = 1;
    fn.field[0].dim[0] = 1;
    fn.collate = millrace::guard<throw_in_collate>;
    mr_loader_opts_init(&opts);
    opts.collate_fn = &fn;
    expect("collate", run(dataset, nullptr, nullptr, &opts), "pairs: batch 0 of epoch 0: from c");

    mr_transform *chain = nullptr;
    mr_transform_fn op{};
    op.size = sizeof op;
    op.name = "op";
    op.apply = millrace::guard<throw_in_op>;
    mr_transform_create(&chain);
    mr_transform_add_fn(chain, &op);
    expect("op", run(dataset, nullptr, chain, nullptr), "op: sample 0: from op");
    mr_transform_destroy(chain);
}

} // namespace

int main()
{
    samples();
    mr_dataset *dataset = open(get, nullptr);
    samplers(dataset);
    batches(dataset);
    mr_dataset_close(dataset);
    return failed;
}
