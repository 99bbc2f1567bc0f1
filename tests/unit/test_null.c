/* NULL wherever a pointer can be passed: each function of libmillrace's headers refuses it, takes
 * it as what its header says, or does nothing. tests/project/null.sh checks that none is
 * missing. */
#include "run_loader.h"

#include <unistd.h>

/* What the calls that need more than NULL use. */
static struct mr_dataset *ds;
static struct mr_sampler *sampler;
static struct mr_transform *chain;
static struct mr_device *cpu, *sim;
static struct mr_stream *stream;
static struct mr_event *event;
static struct mr_loader *ld;
static char buf[1024];
static uint64_t number;

#define misuse(call)                                                                               \
    do {                                                                                           \
        mr_error_set(0, "%s", "");                                                                 \
        if ((call) != MR_EMISUSE || !mr_last_error()[0])                                           \
            fail_msg("%s: expected MR_EMISUSE and a text, found '%s'", #call, mr_last_error());    \
    } while (0)

static void errors(void **state)
{
    (void)state;
    const char *volatile none = NULL; /* the compiler knows that a format must not be NULL */
    assert_int_equal(mr_error_set(-1, none), -1);
    mr_log_set(NULL, NULL);
    assert_non_null(mr_strerror(-12345678));
    assert_non_null(mr_last_error());
    assert_non_null(mr_version());
}

static void json(void **state)
{
    (void)state;
    const char *text;
    mr_json_destroy(NULL);
    mr_json_object(NULL, NULL);
    mr_json_object_end(NULL);
    mr_json_array(NULL, NULL);
    mr_json_array_end(NULL);
    mr_json_string(NULL, NULL, NULL);
    mr_json_int(NULL, NULL, 1);
    mr_json_uint(NULL, NULL, 1);
    mr_json_double(NULL, NULL, 1);
    mr_json_bool(NULL, NULL, 1);
    mr_json_null(NULL, NULL);
    assert_true(mr_json_finish(NULL, &text) < 0);
    struct mr_json *json = mr_json_create(0);
    mr_json_string(json, NULL, NULL);
    misuse((int)mr_json_finish(json, NULL));
    assert_int_equal(mr_json_finish(json, &text), 4); /* null */
    mr_json_destroy(json);
}

static void options(void **state)
{
    (void)state;
    static const struct mr_option table[] = {{.name = "x", .type = MR_OPT_UINT}, {NULL}};
    uint64_t x = 1;
    misuse(mr_options_init(NULL, &x));
    misuse(mr_options_init(table, NULL));
    mr_options_free(NULL, &x);
    mr_options_free(table, NULL);
    misuse(mr_options_parse_args(NULL, &x, 0, NULL));
    misuse(mr_options_parse_args(table, NULL, 0, NULL));
    misuse(mr_options_parse_args(table, &x, 1, NULL));
    assert_int_equal(mr_options_parse_args(table, &x, 0, NULL), 0);
    misuse(mr_options_parse(NULL, &x, "x:", "x=1", NULL));
    misuse(mr_options_parse(table, NULL, "x:", "x=1", NULL));
    misuse(mr_options_parse(table, &x, NULL, "x=1", NULL));
    misuse(mr_options_parse(table, &x, "x:", NULL, NULL));
    misuse(mr_options_set(NULL, &x, "x:", "x", "1"));
    misuse(mr_options_set(table, NULL, "x:", "x", "1"));
    misuse(mr_options_set(table, &x, NULL, "x", "1"));
    misuse(mr_options_set(table, &x, "x:", NULL, "1"));
    assert_int_equal(mr_options_set(table, &x, "x:", "x", NULL), MR_EOPTION);
    assert_null(mr_options_help(NULL));
    assert_null(mr_options_man(NULL));
    mr_options_json(NULL, &x, NULL);
    mr_options_json(table, NULL, NULL);
    mr_options_json(table, &x, NULL);
    misuse(mr_duration_parse(NULL, NULL, &x));
    misuse(mr_duration_parse("1s", NULL, NULL));
    assert_null(mr_nearest(NULL, (const char *[]){"a", NULL}));
    assert_null(mr_nearest("a", NULL));
}

static void outputs_and_texts(void **state)
{
    (void)state;
    struct mr_output *output;
    misuse(mr_output_open(NULL, &output));
    misuse(mr_output_open("/tmp/x", NULL));
    misuse(mr_output_get_fd(NULL));
    assert_null(mr_output_get_name(NULL));
    misuse(mr_output_commit(NULL, 1));
    mr_output_close(NULL);
    assert_null(mr_text_printable(NULL));
    assert_string_equal(mr_text_hide(NULL, buf, sizeof buf), "");
    assert_string_equal(mr_text_hide("a", NULL, 4), "");
    double scaled = 1;
    int digits;
    struct mr_text_table table;
    mr_text_write(NULL, stderr);
    mr_text_write("", NULL);
    mr_text_write_xml(NULL, stderr);
    mr_text_write_xml("a", NULL);
    assert_string_equal(mr_text_scale(MR_TEXT_COUNT, 3, NULL, &digits), "");
    assert_string_equal(mr_text_scale(MR_TEXT_COUNT, 3, &scaled, NULL), "");
    assert_string_equal(mr_text_number(1, MR_TEXT_COUNT, NULL), "");
    mr_text_table_fill(NULL, sizeof table);
    mr_collate_fn_fill(NULL, sizeof(struct mr_collate_fn));
    mr_text_table_init(&table);
    misuse(mr_text_table_write(NULL, stderr));
    misuse(mr_text_table_write(&table, NULL));
    mr_trace_thread(NULL);
    mr_trace_span(NULL, 0, 1, NULL, 0);
    mr_trace_span_on(NULL, "a", 0, 1, NULL, 0);
    mr_trace_span_on("a", NULL, 0, 1, NULL, 0);
    mr_trace_counter(NULL, 0, 1);
    must(mr_trace_start(0));
    mr_trace_thread(NULL);
    mr_trace_span(NULL, 0, 1, NULL, 0);
    mr_trace_span_on(NULL, NULL, 0, 1, NULL, 0);
    mr_trace_counter(NULL, 0, 1);
    assert_int_equal(mr_trace_on(), 1);
    must(mr_trace_stop(NULL, NULL));
}

static void numbers(void **state)
{
    (void)state;
    uint32_t words[4] = {0};
    struct mr_spec spec = {.name = "x", .dtype = MR_U8};
    enum mr_dtype dtype;
    misuse(mr_cpu_query(NULL));
    misuse(mr_host_memory_query(NULL));
    mr_philox(NULL, words, words);
    mr_philox(words, NULL, words);
    mr_philox(words, words, NULL);
    misuse(mr_dtype_parse(NULL, &dtype));
    misuse(mr_dtype_parse("u8", NULL));
    misuse(mr_spec_bytes(NULL, &number));
    misuse(mr_spec_bytes(&spec, NULL));
    assert_string_equal(mr_spec_format(NULL, buf, sizeof buf), "");
    assert_string_equal(mr_spec_format(&spec, NULL, 10), "");
    mr_remote_opts_fill(NULL, sizeof(struct mr_remote_opts));
    must(mr_remote_opts_set(NULL));
    struct mr_rng rng;
    void *array = NULL;
    mr_rng_init(NULL, 0, 0, 0, 0);
    mr_rng_init_op(NULL, words);
    mr_rng_init(&rng, 0, 0, 0, 0);
    mr_rng_init_op(&rng, NULL);
    assert_int_equal(mr_rng_u32(NULL), 0);
    assert_int_equal(mr_rng_u64(NULL), 0);
    assert_true(mr_rng_uniform(NULL) < 1);
    assert_int_equal(mr_rng_below(NULL, 7), 0);
    assert_true(mr_rng_normal(NULL) < 0);
    assert_int_equal(mr_crc32c(NULL, 9), 0);
    misuse(mr_place_query(NULL));
    misuse(mr_place_job(NULL, 9));
    misuse(mr_grow(NULL, &array, &number, 1, 1));
    misuse(mr_grow("a", NULL, &number, 1, 1));
    misuse(mr_grow("a", &array, NULL, 1, 1));
    misuse(mr_remote_stats_query(NULL));
    struct mr_read_rate_opts rate_opts;
    struct mr_read_rate rate = {.size = sizeof rate};
    mr_read_rate_opts_fill(NULL, sizeof rate_opts);
    mr_read_rate_opts_fill(&rate_opts, sizeof rate_opts);
    misuse(mr_read_rate_measure(&rate_opts, NULL));
    misuse(mr_read_rate_measure(NULL, &rate)); /* no path */
}

#define no_opts(name)                                                                              \
    do {                                                                                           \
        struct mr_##name##_opts opts;                                                              \
        struct mr_dataset *set;                                                                    \
        mr_##name##_opts_fill(NULL, sizeof opts);                                                  \
        mr_##name##_opts_fill(&opts, sizeof opts);                                                 \
        misuse(mr_dataset_open_##name(NULL, &set));                                                \
        misuse(mr_dataset_open_##name(&opts, NULL));                                               \
        if (mr_dataset_open_##name(&opts, &set) == 0) /* paths and the like are NULL by default */ \
            mr_dataset_close(set);                                                                 \
    } while (0)

static void constructors(void **state)
{
    (void)state;
    struct mr_dataset *out;
    misuse(mr_dataset_open(NULL, &out));
    misuse(mr_dataset_open("synthetic:n=10,shape=2", NULL));
    no_opts(array);
    no_opts(arrow);
    struct mr_arrow_opts table;
    struct ArrowArrayStream tables = {.release = NULL};
    struct mr_arrow_groups groups;
    mr_arrow_opts_init(&table);
    mr_arrow_groups_fill(NULL, 0);
    mr_arrow_groups_init(&groups);
    misuse(mr_dataset_open_arrow_stream(NULL, &tables, &out));
    misuse(mr_dataset_open_arrow_stream(&table, NULL, &out));
    misuse(mr_dataset_open_arrow_stream(&table, &tables, NULL));
    misuse(mr_dataset_open_arrow_stream(&table, &tables, &out));
    misuse(mr_dataset_open_arrow_groups(NULL, &groups, &out));
    misuse(mr_dataset_open_arrow_groups(&table, NULL, &out));
    misuse(mr_dataset_open_arrow_groups(&table, &groups, NULL));
    misuse(mr_dataset_open_arrow_groups(&table, &groups, &out));
    no_opts(callback);
    no_opts(workers);
    no_opts(located);
    no_opts(iterable);
    no_opts(idx);
    no_opts(npy);
    no_opts(npz);
    no_opts(safetensors);
    no_opts(tfrecord);
    no_opts(raw);
    no_opts(synthetic);
    no_opts(tar);
    no_opts(folder);
    no_opts(list);
    no_opts(csv);
    no_opts(video);
    no_opts(mix);
    no_opts(slow);
}

static void datasets(void **state)
{
    (void)state;
    struct mr_stored stored[MR_MAX_FIELDS] = {{0}};
    struct mr_picture_opts picture = {0};
    void *pixels;
    uint32_t height, width;
    float x[4] = {-1};
    int64_t label = -1, same = -2;
    uint64_t dim[MR_MAX_FIELDS][MR_MAX_RANK];
    mr_dataset_close(NULL);
    assert_int_equal(mr_dataset_length(NULL), 0);
    assert_int_equal(mr_dataset_fields(NULL), 0);
    assert_null(mr_dataset_field(NULL, 0));
    assert_null(mr_dataset_format(NULL));
    assert_null(mr_dataset_text(NULL));
    assert_int_equal(mr_dataset_classes(NULL), 0);
    assert_null(mr_dataset_class_name(NULL, 0));
    assert_int_equal(mr_dataset_class_samples(NULL, 0), 0);
    assert_int_equal(mr_dataset_fingerprint(NULL), 0);
    assert_null(mr_dataset_file(NULL, 0));
    assert_null(mr_dataset_source(NULL, 0));
    assert_int_equal(mr_dataset_picture(NULL), -1);
    assert_null(mr_dataset_lacks(NULL));
    misuse(mr_dataset_each(NULL, NULL));
    misuse(mr_shard_table_open(NULL, NULL));
    misuse(mr_shard_table_add(NULL, "a.tar", 1, 1));
    misuse(mr_shard_table_add_tar(NULL, NULL));
    misuse(mr_shard_table_commit(NULL, 0));
    mr_shard_table_count(NULL, NULL, NULL);
    mr_shard_table_close(NULL);
    misuse(mr_dataset_read(NULL, 0, (void *[]){x, &label}, NULL));
    must(mr_dataset_read(ds, 3, (void *[]){x, &label}, NULL));
    must(mr_dataset_read(ds, 3, (void *[]){NULL, &same}, dim)); /* the label alone */
    assert_int_equal(same, label);
    assert_int_equal(dim[0][0], 4);
    must(mr_dataset_read(ds, 3, NULL, NULL));
    misuse(mr_dataset_read_stored(NULL, 0, stored));
    misuse(mr_dataset_read_stored(ds, 0, NULL));
    mr_stored_free(NULL);
    char *names;
    misuse(mr_dataset_class_names(NULL, &names));
    misuse(mr_dataset_class_names(ds, NULL));
    misuse(mr_dataset_read_field(NULL, 0, 0, x, NULL));
    misuse(mr_dataset_read_field(ds, 0, 0, NULL, NULL));
    must(mr_dataset_read_field(ds, 0, 0, x, NULL));
    misuse(mr_picture_decode(NULL, buf, 1, &picture, 0, &pixels, &height, &width));
    misuse(mr_picture_decode("a", NULL, 1, &picture, 0, &pixels, &height, &width));
    misuse(mr_picture_decode("a", buf, 1, NULL, 0, &pixels, &height, &width));
    misuse(mr_picture_decode("a", buf, 1, &picture, 0, NULL, &height, &width));
    misuse(mr_picture_decode("a", buf, 1, &picture, 0, &pixels, NULL, &width));
    misuse(mr_picture_decode("a", buf, 1, &picture, 0, &pixels, &height, NULL));
}

static void samplers_and_chains(void **state)
{
    (void)state;
    struct mr_sampler_opts so;
    struct mr_sampler *s;
    const struct mr_spec *spec = mr_dataset_field(ds, 0);
    uint64_t dim[MR_MAX_RANK] = {4};
    float in[4] = {0}, out[4];
    mr_sampler_opts_fill(NULL, sizeof so);
    mr_sampler_opts_init(&so);
    misuse(mr_sampler_open(NULL, 10, 0, &s));
    misuse(mr_sampler_open("random", 10, 0, NULL));
    misuse(mr_sampler_create(NULL, 10, &s));
    misuse(mr_sampler_create(&so, 10, NULL));
    for (int kind = MR_SAMPLER_SUBSET; kind <= MR_SAMPLER_PACK;
         kind++) { /* without what it needs */
        so.kind = (enum mr_sampler_kind)kind;
        so.n_indices = so.n_weights = so.length = 10;
        assert_true(mr_sampler_create(&so, 10, &s) < 0);
    }
    mr_sampler_destroy(NULL);
    assert_int_equal(mr_sampler_length(NULL), 0);
    assert_null(mr_sampler_text(NULL));
    assert_int_equal(mr_sampler_is_sequential(NULL), 0);
    misuse(mr_sampler_map(NULL, 0, 0, 1, &number));
    misuse(mr_sampler_map(sampler, 0, 0, 1, NULL));
    struct mr_batch_item item;
    double fill;
    assert_int_equal(mr_sampler_max_batch(NULL), 0);
    misuse(mr_sampler_batches(NULL, 0, &number));
    misuse(mr_sampler_batches(sampler, 0, NULL));
    misuse(mr_sampler_batch(NULL, 0, 0, &item, 1));
    misuse(mr_sampler_batch(sampler, 0, 0, NULL, 1));
    misuse(mr_sampler_efficiency(NULL, 0, &fill));
    misuse(mr_sampler_efficiency(sampler, 0, NULL));
    misuse(mr_transform_create(NULL));
    mr_transform_destroy(NULL);
    misuse(mr_transform_add(NULL, "cast(f32)"));
    misuse(mr_transform_add(chain, NULL));
    misuse(mr_transform_add_fn(NULL,
                               &(struct mr_transform_fn){.size = sizeof(struct mr_transform_fn)}));
    misuse(mr_transform_add_fn(chain, NULL));
    misuse(mr_transform_add_multi(NULL, &(struct mr_transform_multi_fn){.size = 1}));
    misuse(mr_transform_add_multi(chain, NULL));
    misuse(mr_transform_apply_all(NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL));
    misuse(mr_transform_apply_all(chain, 0, 0, 0, NULL, NULL, NULL, NULL, NULL));
    misuse(mr_transform_bind(NULL, spec, 1));
    misuse(mr_transform_bind(chain, NULL, 1));
    assert_null(mr_transform_specs(NULL));
    assert_int_equal(mr_transform_fields(NULL), 0);
    assert_int_equal(mr_transform_source(NULL, 0), -1);
    assert_int_equal(mr_transform_is_identity(NULL, 0), 0);
    assert_int_equal(mr_transform_scratch_bytes(NULL), 0);
    assert_null(mr_transform_text(NULL));
    misuse(mr_transform_each(NULL, NULL));
    must(mr_transform_bind(chain, spec, 1));
    misuse(mr_transform_apply(NULL, 0, 0, 0, 0, in, dim, out, dim, NULL));
    misuse(mr_transform_apply(chain, 0, 0, 0, 0, NULL, dim, out, dim, NULL));
    misuse(mr_transform_apply(chain, 0, 0, 0, 0, in, NULL, out, dim, NULL));
    misuse(mr_transform_apply(chain, 0, 0, 0, 0, in, dim, NULL, dim, NULL));
    misuse(mr_transform_apply(chain, 0, 0, 0, 0, in, dim, out, NULL, NULL));
}

static void device_memory(void **state)
{
    (void)state;
    struct mr_device_info info = {.size = sizeof info};
    struct mr_device_process process;
    struct mr_memory_counters count = {.size = sizeof count};
    struct mr_device *dev;
    void *p;
    misuse(mr_device_open(NULL, &dev));
    misuse(mr_device_open("cpu", NULL));
    mr_device_close(NULL);
    assert_null(mr_stream_any(NULL));
    misuse(mr_device_capture_begin(NULL));
    misuse(mr_device_capture_end(NULL));
    misuse(mr_device_query(NULL, &info));
    misuse(mr_device_query(cpu, NULL));
    misuse(mr_device_processes(NULL, &process, 1));
    misuse(mr_device_processes(cpu, NULL, 1));
    misuse(mr_device_each(NULL, NULL));
    misuse(mr_device_reach(NULL, cpu));
    misuse(mr_device_reach(cpu, NULL));
    misuse(mr_device_has_kernel(NULL, "busy"));
    misuse(mr_device_has_kernel(cpu, NULL));
    misuse(mr_memory_acquire(NULL, MR_PINNED, 64, &p));
    misuse(mr_memory_acquire(cpu, MR_PINNED, 64, NULL));
    mr_memory_release(NULL, MR_PINNED, buf, NULL);
    mr_memory_release(cpu, MR_PINNED, NULL, NULL);
    mr_memory_trim(NULL);
    mr_memory_set_limit(NULL, 1);
    misuse(mr_memory_query(NULL, MR_PINNED, &count));
    misuse(mr_memory_query(cpu, MR_PINNED, NULL));
    misuse(mr_memory_register(NULL, buf, 64));
    misuse(mr_memory_register(cpu, NULL, 64));
    misuse(mr_memory_unregister(NULL, buf, 64));
    misuse(mr_memory_unregister(cpu, NULL, 64));
    misuse(mr_memory_make(NULL, 0, 64, &p));
    misuse(mr_memory_make(cpu, 0, 64, NULL));
    mr_memory_unmake(NULL, buf);
    mr_memory_unmake(cpu, buf); /* it makes none */
    mr_memory_unmake(cpu, NULL);
}

static void streams(void **state)
{
    (void)state;
    struct mr_stream *s;
    struct mr_event *e;
    struct mr_graph *graph;
    int64_t ns;
    misuse(mr_stream_create(NULL, "s", &s));
    misuse(mr_stream_create(sim, "s", NULL));
    must(mr_stream_create(sim, NULL, &s));
    mr_stream_destroy(s);
    mr_stream_destroy(NULL);
    void *native;
    misuse(mr_stream_wrap(NULL, buf, &s));
    misuse(mr_stream_wrap(sim, buf, NULL));
    misuse(mr_stream_native(NULL, &native));
    misuse(mr_stream_native(stream, NULL));
    misuse(mr_event_wrap(NULL, buf, 0, &e));
    misuse(mr_event_wrap(sim, buf, 0, NULL));
    misuse(mr_event_native(NULL, &native));
    misuse(mr_event_native(event, NULL));
    misuse(mr_stream_synchronize(NULL));
    misuse(mr_stream_wait(NULL, event));
    misuse(mr_stream_wait(stream, NULL));
    misuse(mr_event_create(NULL, 0, &e));
    misuse(mr_event_create(sim, 0, NULL));
    mr_event_destroy(NULL);
    misuse(mr_event_record(NULL, stream));
    misuse(mr_event_record(event, NULL));
    misuse(mr_event_query(NULL));
    misuse(mr_event_synchronize(NULL));
    misuse(mr_event_elapsed(NULL, event, &ns));
    misuse(mr_event_elapsed(event, NULL, &ns));
    misuse(mr_event_elapsed(event, event, NULL));
    misuse(mr_copy_async(NULL, buf, MR_PAGEABLE, buf, MR_PAGEABLE, 1));
    misuse(mr_copy_async(stream, NULL, MR_PAGEABLE, buf, MR_PAGEABLE, 1));
    misuse(mr_copy_async(stream, buf, MR_PAGEABLE, NULL, MR_PAGEABLE, 1));
    misuse(mr_copy_batch_async(NULL, NULL, 0));
    misuse(mr_copy_batch_async(stream, NULL, 1));
    misuse(mr_copy_peer_async(NULL, buf, sim, buf, sim, 1));
    misuse(mr_copy_peer_async(stream, NULL, sim, buf, sim, 1));
    misuse(mr_copy_peer_async(stream, buf, NULL, buf, sim, 1));
    misuse(mr_copy_peer_async(stream, buf, sim, NULL, sim, 1));
    misuse(mr_copy_peer_async(stream, buf, sim, buf, NULL, 1));
    misuse(mr_memset_async(NULL, buf, MR_PAGEABLE, 0, 1));
    misuse(mr_memset_async(stream, NULL, MR_PAGEABLE, 0, 1));
    misuse(mr_launch(NULL, "busy", &number, sizeof number));
    misuse(mr_launch(stream, NULL, &number, sizeof number));
    misuse(mr_launch(stream, "busy", NULL, sizeof number));
    misuse(mr_graph_begin(NULL));
    misuse(mr_graph_end(NULL, &graph));
    must(mr_graph_begin(stream));
    must(mr_graph_end(stream, NULL));
    misuse(mr_graph_launch(NULL, stream));
    must(mr_graph_begin(stream));
    must(mr_graph_end(stream, &graph));
    misuse(mr_graph_launch(graph, NULL));
    mr_graph_destroy(graph);
    mr_graph_destroy(NULL);
}

static void loaders(void **state)
{
    (void)state;
    struct mr_loader_opts opts;
    struct mr_loader_stats st = {.size = sizeof st};
    struct mr_bad_sample bad = {.size = sizeof bad};
    struct mr_batch b = {.size = sizeof b};
    struct mr_loader *other;
    struct mr_budget *budget;
    struct mr_budget_info info = {.size = sizeof info};
    mr_budget_opts_fill(NULL, sizeof(struct mr_budget_opts));
    mr_collate_fn_fill(NULL, sizeof(struct mr_collate_fn));
    misuse(mr_budget_create(NULL, NULL));
    must(mr_budget_create(NULL, &budget)); /* all defaults */
    misuse(mr_budget_query(budget, NULL));
    misuse(mr_budget_query(NULL, &info));
    mr_budget_destroy(budget);
    mr_budget_destroy(NULL);
    mr_collate_fn_fill(NULL, sizeof(struct mr_collate_fn));
    mr_loader_opts_fill(NULL, sizeof opts);
    mr_loader_opts_init(&opts);
    misuse(mr_loader_opts_parse(NULL, &opts));
    misuse(mr_loader_opts_parse("workers=1", NULL));
    misuse(mr_loader_open(NULL, NULL, NULL, NULL, &opts, &other));
    misuse(mr_loader_open(ds, NULL, NULL, NULL, &opts, NULL));
    must(mr_loader_open(ds, NULL, NULL, NULL, NULL, &other)); /* all defaults */
    assert_int_equal(mr_loader_next(other, NULL, &b), 1);
    assert_int_equal(b.n, 64);
    mr_loader_close(other);
    mr_loader_close(NULL);
    misuse(mr_loader_next(NULL, NULL, &b));
    misuse(mr_loader_next(ld, NULL, NULL));
    misuse(mr_loader_next_for(NULL, NULL, 0, &b));
    misuse(mr_loader_next_for(ld, NULL, 0, NULL));
    misuse(mr_loader_fd(NULL));
    misuse(mr_loader_release(NULL, &b, NULL));
    misuse(mr_loader_release(ld, NULL, NULL));
    mr_loader_cancel(NULL);
    assert_int_equal(mr_loader_batches(NULL), 0);
    assert_int_equal(mr_loader_samples(NULL), 0);
    assert_null(mr_loader_field(NULL, 0));
    struct mr_loader_knobs knobs = {.size = sizeof knobs};
    struct mr_loader_tuning tuning = {.size = sizeof tuning};
    misuse(mr_loader_set(NULL, &knobs));
    misuse(mr_loader_set(ld, NULL));
    misuse(mr_loader_tuning(NULL, &tuning));
    misuse(mr_loader_tuning(ld, NULL));
    misuse(mr_loader_state(NULL, buf, sizeof buf));
    misuse(mr_loader_state(ld, NULL, sizeof buf));
    misuse(mr_loader_state_released(NULL, buf, sizeof buf));
    misuse(mr_loader_state_released(ld, NULL, sizeof buf));
    struct mr_dlpack *tensor;
    struct mr_dlpack_versioned *versioned;
    misuse(mr_batch_to_dlpack(NULL, 0, MR_DLPACK_DATA, NULL, &tensor));
    misuse(mr_batch_to_dlpack(&b, 0, MR_DLPACK_DATA, NULL, NULL));
    misuse(mr_batch_to_dlpack_versioned(NULL, 0, MR_DLPACK_DATA, NULL, &versioned));
    misuse(mr_batch_to_dlpack_versioned(&b, 0, MR_DLPACK_DATA, NULL, NULL));
    uint64_t n_bytes;
    assert_null(mr_batch_text(NULL, 0, 0, &n_bytes));
    assert_null(mr_batch_text(&b, 0, 0, NULL));
    misuse(mr_loader_bad(NULL, 0, &bad));
    misuse(mr_loader_bad(ld, 0, NULL));
    misuse(mr_loader_stats(NULL, &st));
    misuse(mr_loader_stats(ld, NULL));
}

static void shared_memory(void **state)
{
    (void)state;
    struct mr_spec spec = {.name = "x", .dtype = MR_U8, .rank = 1, .dim = {4}};
    struct mr_shm *shm = NULL;
    struct mr_shm_pool *pool = NULL;
    struct mr_shm_ring *ring = NULL;
    void *at;
    mr_worker_opts_fill(NULL, sizeof(struct mr_worker_opts));
    misuse(mr_worker_run(0, NULL));
    misuse(mr_shm_create(NULL, 1, 0, NULL));
    misuse(mr_shm_attach(NULL, 0, 0, NULL));
    must(mr_shm_create(NULL, 4096, 0, &shm));
    misuse(mr_shm_area(NULL, "a", 1, &at));
    misuse(mr_shm_area(shm, NULL, 1, &at));
    misuse(mr_shm_area(shm, "a", 1, NULL));
    assert_true(mr_shm_pool_bytes(NULL, 1) == UINT64_MAX);
    misuse(mr_shm_pool_create(NULL, "p", &spec, 1, &pool));
    misuse(mr_shm_pool_create(shm, NULL, &spec, 1, &pool));
    misuse(mr_shm_pool_create(shm, "p", NULL, 1, &pool));
    misuse(mr_shm_pool_create(shm, "p", &spec, 1, NULL));
    must(mr_shm_pool_create(shm, "p", &spec, 1, &pool));
    misuse(mr_shm_pool_attach(NULL, "p", &pool));
    misuse(mr_shm_pool_attach(shm, NULL, &pool));
    misuse(mr_shm_pool_attach(shm, "p", NULL));
    assert_null(mr_shm_pool_spec(NULL));
    misuse(mr_shm_pool_take(NULL, 0, &number));
    misuse(mr_shm_pool_take(pool, 0, NULL));
    misuse(mr_shm_pool_accept(NULL, 1));
    misuse(mr_shm_pool_give(NULL, 1));
    assert_null(mr_shm_pool_data(NULL, 1));
    misuse(mr_shm_pool_reclaim(NULL, 1));
    assert_int_equal(mr_shm_pool_free(NULL), 0);
    misuse(mr_shm_ring_create(NULL, "r", 1, &ring));
    misuse(mr_shm_ring_create(shm, NULL, 1, &ring));
    misuse(mr_shm_ring_create(shm, "r", 1, NULL));
    must(mr_shm_ring_create(shm, "r", 1, &ring));
    misuse(mr_shm_ring_attach(NULL, "r", &ring));
    misuse(mr_shm_ring_attach(shm, NULL, &ring));
    misuse(mr_shm_ring_attach(shm, "r", NULL));
    misuse(mr_shm_ring_push(NULL, &number, 1, 0));
    misuse(mr_shm_ring_push(ring, NULL, 1, 0));
    misuse(mr_shm_ring_pop(NULL, &number, 1, 0));
    misuse(mr_shm_ring_pop(ring, NULL, 1, 0));
    mr_shm_ring_end(NULL);
    mr_shm_ring_close(ring);
    mr_shm_ring_close(NULL);
    mr_shm_pool_close(pool);
    mr_shm_pool_close(NULL);
    assert_int_equal(mr_shm_fd(NULL), -1);
    mr_shm_close(shm);
    mr_shm_close(NULL);
}

static int set_up(void **state)
{
    (void)state;
    alarm(120);
    must(mr_dataset_open("synthetic:n=1000,shape=4,classes=10", &ds));
    must(mr_sampler_open("random", 1000, 0, &sampler));
    must(mr_transform_create(&chain));
    must(mr_transform_add(chain, "scale(2)"));
    must(mr_device_open("cpu", &cpu));
    must(mr_device_open("sim", &sim));
    must(mr_stream_create(sim, "stream", &stream));
    must(mr_event_create(sim, 1, &event));
    must(mr_loader_open(ds, sampler, NULL, NULL, NULL, &ld));
    return 0;
}

static void serving(void **state)
{
    (void)state;
    struct mr_server *server = NULL;
    struct mr_attached *attached = NULL;
    struct mr_server_info info = {.size = sizeof info};
    struct mr_attached_info attached_info = {.size = sizeof attached_info};
    struct mr_batch batch = {.size = sizeof batch};
    mr_serve_opts_fill(NULL, sizeof(struct mr_serve_opts));
    mr_attach_opts_fill(NULL, sizeof(struct mr_attach_opts));
    misuse(mr_loader_serve(NULL, NULL, &server));
    misuse(mr_loader_serve(ld, NULL, NULL));
    misuse(mr_server_add(NULL, 0));
    misuse(mr_server_wait(NULL, 0));
    misuse(mr_server_query(NULL, &info));
    mr_server_cancel(NULL);
    mr_server_close(NULL);
    misuse(mr_loader_attach(NULL, NULL, &attached));
    misuse(mr_loader_attach("@nowhere", NULL, NULL));
    misuse(mr_attached_next(NULL, NULL, &batch));
    misuse(mr_attached_next_for(NULL, NULL, 0, &batch));
    misuse(mr_attached_release(NULL, &batch, NULL));
    assert_null(mr_attached_field(NULL, 0));
    misuse(mr_attached_query(NULL, &attached_info));
    mr_attached_cancel(NULL);
    mr_attached_close(NULL);
    assert_null(server);
    assert_null(attached);
}

static int tear_down(void **state)
{
    (void)state;
    mr_loader_close(ld);
    mr_event_destroy(event);
    mr_stream_destroy(stream);
    mr_device_close(sim);
    mr_device_close(cpu);
    mr_transform_destroy(chain);
    mr_sampler_destroy(sampler);
    mr_dataset_close(ds);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),        cmocka_unit_test(json),
        cmocka_unit_test(options),       cmocka_unit_test(outputs_and_texts),
        cmocka_unit_test(numbers),       cmocka_unit_test(constructors),
        cmocka_unit_test(datasets),      cmocka_unit_test(samplers_and_chains),
        cmocka_unit_test(device_memory), cmocka_unit_test(streams),
        cmocka_unit_test(loaders),       cmocka_unit_test(shared_memory),
        cmocka_unit_test(serving),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
