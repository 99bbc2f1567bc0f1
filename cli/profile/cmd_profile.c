/* millrace profile: runs any program with the recorder inside, and writes what its processes record
 * into one recording as they run. */
#include "profile/profile.h"

#include <dirent.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const range_ends[] = {"stop", "repeat", NULL};
static const char *const waits[] = {"primary", "all", NULL};
static const char *const graph_traces[] = {"node", "graph", NULL};
static const char *const apis[] = {"some", "all", NULL};
static const char *const on_off[] = {"on", "off", NULL};
static const char *const samples[] = {"none", "process-tree", NULL};

#define OPTION(name, key, type, member, initial, ...)                                              \
    {                                                                                              \
        name, key, type, offsetof(struct profile_options, member), initial, __VA_ARGS__            \
    }
static const struct mr_option table[] = {
    OPTION("trace", 't', MR_OPT_STRING, trace, "cuda,nvtx,osrt,millrace", .meta = "LIST",
           .help =
               "What to record: cuda (calls, kernels, copies), or cuda-light (copies, "
               "synchronisation and their calls), nvtx (ranges), osrt (long calls of the operating "
               "system), millrace (the library's own spans), none"),
    OPTION("capture-range", 'c', MR_OPT_STRING, capture_range, "none", .meta = "RANGE",
           .help = "Record only inside cudaProfilerApi (from cudaProfilerStart to Stop) or "
                   "nvtx:NAME (a range, NAME, "
                   "NAME@DOMAIN or DOMAIN@NAME); none: all the time"),
    OPTION("capture-range-end", 0, MR_OPT_ENUM, capture_range_end, "stop", .choices = range_ends,
           .help = "Stop recording after the first capture range, or record each one"),
    OPTION("delay", 'y', MR_OPT_DURATION, delay_ns, "0", .unit = "s",
           .help = "Record nothing for this long"),
    OPTION("duration", 'd', MR_OPT_DURATION, duration_ns, "0", .unit = "s",
           .help = "Record for this long, counted from the start of a capture range if there is "
                   "one; the program keeps running; 0: to its end"),
    OPTION("output", 'o', MR_OPT_STRING, output, NULL, .meta = "FILE",
           .help = "The recording; .sqlite is added to a name without extension; %r, %p, %h: rank, "
                   "process, host; %%: a percent sign. Under mpirun, srun and torchrun a name "
                   "without %r or %p gets .rankN before its extension. Default: report1.sqlite, "
                   "report2.sqlite, ..."),
    OPTION("force-overwrite", 'f', MR_OPT_FLAG, force, NULL,
           .help = "Replace the recording if it exists"),
    OPTION("stats", 0, MR_OPT_FLAG, stats, NULL,
           .help = "Print the default reports at the end, on standard output"),
    OPTION("gpu-metrics", 0, MR_OPT_FLAG, gpu_metrics, NULL,
           .help = "Sample the GPU's hardware counters: activity of the GPU and its tensor "
                   "cores, DRAM and PCIe throughput; if the driver does not permit it, a warning "
                   "says why"),
    OPTION("gpu-metrics-frequency", 0, MR_OPT_UINT, metrics_hz, "10000", .meta = "HZ", .min = 10,
           .max = 200000, .help = "Samples per second for --gpu-metrics"),
    OPTION("cuda-graph-trace", 0, MR_OPT_ENUM, graph_trace, "node", .choices = graph_traces,
           .help = "Record each node of a CUDA graph, or each launch of a graph as a whole, which "
                   "costs less"),
    OPTION("cuda-api", 0, MR_OPT_ENUM, api, "some", .choices = apis,
           .help =
               "CUDA calls to record. some: launches, copies, synchronisation, allocation, loading "
               "of code; all: queries and CUPTI's records of waiting, too, which costs more"),
    OPTION("python-ranges", 0, MR_OPT_ENUM, python_ranges, "on", .choices = on_off,
           .help = "In Python programs, make NVTX ranges of PyTorch's DataLoader, backward passes "
                   "and optimizer steps (domain python), as long as --trace has nvtx. They come by "
                   "a sitecustomize module in front of PYTHONPATH, so python -I, -E and -S have "
                   "none"),
    OPTION("python-sampling", 0, MR_OPT_FLAG, python_sampling, NULL,
           .help = "Sample the Python stacks of all threads and worker processes, waiting or not, "
                   "for millrace report -r stacks: CPython 3.10 or later, by a thread in each "
                   "process, without signals; python -I, -E and -S have none"),
    OPTION("python-sampling-frequency", 0, MR_OPT_UINT, python_hz, "100", .meta = "HZ", .min = 1,
           .max = 2000, .help = "Samples per second for --python-sampling"),
    OPTION("sample", 's', MR_OPT_ENUM, sample, "none", .choices = samples,
           .help = "Sample the stacks of all threads of the program and its child processes, "
                   "running or waiting, down to C functions and source lines, for millrace report "
                   "-r stacks. Threads that run are interrupted by SIGURG; x86-64 only"),
    OPTION("sampling-frequency", 0, MR_OPT_UINT, sampling_hz, "100", .meta = "HZ", .min = 1,
           .max = 2000, .help = "Samples per second and thread for --sample"),
    OPTION("osrt-threshold", 0, MR_OPT_DURATION, osrt_threshold_ns, "1us", .unit = "ns",
           .help = "Shortest operating system call to record"),
    OPTION("cuda-flush-interval", 0, MR_OPT_DURATION, flush_ns, "500ms", .min = 1e6, .max = 36e11,
           .help = "How often to write buffers: a killed program loses at most this much"),
    OPTION("wait", 0, MR_OPT_ENUM, wait, "primary", .choices = waits,
           .help = "Wait for the program only, or for all processes that it started"),
    OPTION("keep-parts", 0, MR_OPT_FLAG, keep_parts, NULL,
           .help = "Keep the folder with the files that each process wrote"),
    OPTION("merge", 0, MR_OPT_STRING, merge, NULL, .meta = "FOLDER",
           .help = "Run nothing: make a recording from the folder (FILE.parts-XXXXXX) that "
                   "millrace profile left when it was killed or its disk was full; the folder is "
                   "kept"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

static int check(const struct profile_options *o, int n_args, char **args, uint32_t *out_traced)
{
    int code = profile_traces(o->trace, out_traced);
    if (code != CLI_OK)
        return code;
    if (o->merge)
        return n_args > 0 ? cli_misuse("--merge %s: runs no program: remove %s", o->merge, args[0])
                          : CLI_OK;
    if (n_args > 0 && (strcmp(args[0], "true") == 0 || strcmp(args[0], "false") == 0))
        return cli_misuse("%s: -f, --stats and other flags take no value: remove it", args[0]);
    if (n_args == 0 || strcmp(args[0], "--") != 0)
        return cli_misuse("%s%sexpected \"--\" before the program: millrace profile [options] -- "
                          "CMD...",
                          n_args ? args[0] : "", n_args ? ": " : "");
    if (n_args < 2)
        return cli_misuse("a program is missing after \"--\"");
    if (strcmp(o->capture_range, "none") != 0 && strcmp(o->capture_range, "cudaProfilerApi") != 0 &&
        (strncmp(o->capture_range, "nvtx:", 5) != 0 || !o->capture_range[5]))
        return cli_misuse("--capture-range %s: expected none, cudaProfilerApi or nvtx:NAME",
                          o->capture_range);
    if (o->stats && o->common.json)
        return cli_misuse("--stats and --json: give only one; millrace report --json prints "
                          "reports as JSON");
    *out_traced |= (o->gpu_metrics ? 32u : 0) | (o->python_sampling ? 64u : 0) |
                   (o->sample == PROFILE_SAMPLE_TREE ? 128u : 0);
    return CLI_OK;
}

static void print_note(const char *note)
{
    static const struct {
        const char *name, *text;
    } heads[] = {{"no_cuda", "no CUDA activity is recorded"},
                 {"no_nvtx", "no NVTX ranges are recorded"},
                 {"no_metrics", "no GPU metrics are recorded"},
                 {"no_stacks", "a process has no sampled stacks"},
                 {"dropped", "records were lost"},
                 {"warning", "recorder"}};
    const char *tab = strchr(note, '\t');
    for (size_t i = 0; tab && i < CLI_COUNT(heads); i++)
        if (strlen(heads[i].name) == (size_t)(tab - note) &&
            strncmp(heads[i].name, note, (size_t)(tab - note)) == 0)
            cli_warn("%s: %s", heads[i].text, tab + 1);
}

static bool noted(const struct profile_run *run, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < run->n_notes; i++)
        if (strncmp(run->notes[i], name, n) == 0 && run->notes[i][n] == '\t')
            return true;
    return false;
}

static void warn_empty(const struct profile_run *run)
{
    const struct profile_options *o = run->options;
    if (o->merge)
        cli_warn("nothing was recorded: %s holds no events", o->merge);
    else if (strcmp(o->capture_range, "none") != 0)
        cli_warn(
            "nothing was recorded: --capture-range %s never began (%s), or nothing happened inside",
            o->capture_range,
            strncmp(o->capture_range, "nvtx:", 5) == 0
                ? "an NVTX range of this very name, of the DOMAIN or none"
                : "cudaProfilerStart(), torch.cuda.profiler.start()");
    else
        cli_warn("nothing was recorded: the program made none of the calls that --trace %s "
                 "records%s",
                 o->trace, o->delay_ns ? ", or ended before the --delay" : "");
}

static void print_summary(const struct profile_run *run, const struct mr_merge_stats *stats)
{
    char bytes[CLI_HUMAN], records[CLI_HUMAN], time[CLI_HUMAN];
    for (int i = 0; i < run->n_notes; i++)
        print_note(run->notes[i]);
    if (stats->n_dropped)
        cli_warn("%llu records were dropped: buffers were full",
                 (unsigned long long)stats->n_dropped);
    if (stats->n_lost_timestamps)
        cli_warn("%llu device record%s lost %s", (unsigned long long)stats->n_lost_timestamps,
                 stats->n_lost_timestamps == 1 ? " has" : "s have",
                 stats->n_lost_timestamps == 1 ? "its times" : "their times");
    if (run->n_running > 0)
        cli_warn(
            "%d process%s of the program still run%s: what happens from now on is not recorded",
            run->n_running, run->n_running == 1 ? "" : "es", run->n_running == 1 ? "s" : "");
    if (stats->n_records == 0)
        warn_empty(run);
    if (run->options->gpu_metrics && !run->metrics_tried && !noted(run, "no_metrics") &&
        !run->options->merge)
        cli_warn("no GPU metrics are recorded: no process of the program made a context on a GPU");
    if (run->options->common.quiet)
        return;
    fprintf(stderr, "millrace profile: %s: %s record%s of %llu process%s", run->output,
            cli_count((double)stats->n_records, records), cli_s(stats->n_records),
            (unsigned long long)stats->n_processes, stats->n_processes == 1 ? "" : "es");
    if (!run->options->merge)
        fprintf(stderr, " in %s", cli_time(run->end_ns - run->begin_ns, time));
    fprintf(stderr, ", %s", cli_bytes(stats->bytes, bytes));
    if (stats->n_cut)
        fprintf(stderr, "; %llu cut short", (unsigned long long)stats->n_cut);
    fputc('\n', stderr);
    if (run->exit_status > 128)
        fprintf(stderr,
                "millrace profile: the program was killed by signal %d: at most the last %s are "
                "missing\n",
                run->exit_status - 128, cli_time(run->options->flush_ns, time));
}

static int print_json(const struct profile_run *run, const struct mr_merge_stats *stats)
{
    struct mr_json *json = cli_json_begin("profile");
    if (!json)
        return CLI_FAILED;
    mr_json_string(json, "file", run->output);
    mr_json_int(json, "exit_status", run->exit_status);
    mr_json_double(json, "seconds", (double)(run->end_ns - run->begin_ns) / 1e9);
    mr_json_uint(json, "processes", stats->n_processes);
    mr_json_uint(json, "parts", stats->n_parts);
    mr_json_uint(json, "cut_parts", stats->n_cut);
    mr_json_uint(json, "records", stats->n_records);
    mr_json_uint(json, "dropped", stats->n_dropped);
    mr_json_uint(json, "lost_timestamps", stats->n_lost_timestamps);
    mr_json_uint(json, "bytes", stats->bytes);
    mr_json_int(json, "still_running", run->n_running);
    mr_json_array(json, "notes");
    for (int i = 0; i < run->n_notes; i++) {
        int front = (int)strcspn(run->notes[i], "\t");
        char name[64];
        snprintf(name, sizeof name, "%.*s", front, run->notes[i]);
        mr_json_object(json, NULL);
        mr_json_string(json, "name", name);
        mr_json_string(json, "text", run->notes[i] + front + (run->notes[i][front] == '\t'));
        mr_json_object_end(json);
    }
    mr_json_array_end(json);
    return cli_json_end_config(json, table, run->options);
}

/* What nsys prints by its --stats, in its order. */
static int print_reports(const struct profile_run *run)
{
    static const char *const names[] = {"nvtx_sum",
                                        "osrt_sum",
                                        "cuda_api_sum",
                                        "cuda_gpu_kern_sum",
                                        "cuda_gpu_mem_time_sum",
                                        "cuda_gpu_mem_size_sum"};
    struct mr_recording *recording;
    struct mr_report_opts opts;
    int rc = mr_recording_open(run->output, &recording), code = CLI_OK;
    if (rc)
        return cli_error(rc);
    mr_report_opts_init(&opts);
    for (size_t i = 0; i < CLI_COUNT(names) && code == CLI_OK; i++) {
        struct mr_table *report;
        rc = mr_report_make(recording, names[i], &opts, &report);
        if (rc == 0) {
            printf("%s", i ? "\n" : "");
            rc = mr_table_write_text(report, cli_columns(), stdout);
            mr_table_destroy(report);
        }
        code = rc ? cli_error(rc) : CLI_OK;
    }
    mr_recording_close(recording);
    return code;
}

static int merge(struct profile_run *run)
{
    struct mr_merge_stats stats = {.size = sizeof stats};
    profile_read_notes(run);
    int rc = profile_live_finish(run, &stats);
    profile_unmark_parts(run);
    if (rc) {
        int code = cli_error(rc);
        cli_fail(
            "what was recorded is still in %s: millrace profile --merge %s -o FILE tries again",
            run->parts, run->parts);
        return code;
    }
    if (run->options->merge)
        cli_warn("the parts are still in %s", run->parts);
    else if (run->options->keep_parts)
        cli_warn("the parts are in %s", run->parts);
    else
        profile_remove_parts(run);
    print_summary(run, &stats);
    if (run->options->common.json)
        return print_json(run, &stats);
    return run->options->stats ? print_reports(run) : CLI_OK;
}

static void free_notes(struct profile_run *run)
{
    for (int i = 0; i < run->n_notes; i++)
        free(run->notes[i]);
}

static bool has_parts(const char *folder)
{
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e && !found; e = readdir(dir))
        found = cli_ends_in(e->d_name, ".part");
    if (dir)
        closedir(dir);
    return found;
}

static int merge_left(struct profile_run *run)
{
    snprintf(run->parts, sizeof run->parts, "%s", run->options->merge);
    if (!has_parts(run->parts))
        return cli_fail("--merge %s: expected a folder of parts, FILE.parts-XXXXXX", run->parts);
    run->begin_ns = run->end_ns = mr_time_ns();
    int code = merge(run);
    free_notes(run);
    return code;
}

static int run(void *options, int n_args, char **args)
{
    struct profile_options *o = options;
    struct profile_run run = {.options = o, .running = -1};
    int code = check(o, n_args, args, &run.traced);
    if (code == CLI_OK)
        code = profile_find_output(&run);
    if (code == CLI_OK && o->merge)
        return merge_left(&run);
    if (code == CLI_OK)
        code = profile_find_module(run.module, sizeof run.module);
    if (code == CLI_OK)
        code = profile_make_parts(&run);
    if (code != CLI_OK)
        return code;
    run.command = calloc((size_t)n_args, sizeof *run.command);
    if (run.command) {
        memcpy(run.command, args + 1, (size_t)(n_args - 1) * sizeof *run.command);
        code = profile_environment(&run);
    } else {
        code = cli_fail("out of memory");
    }
    if (code == CLI_OK)
        code = profile_child(&run);
    if (code == CLI_OK)
        code = merge(&run);
    else
        profile_remove_parts(&run);
    free(run.command);
    free_notes(&run);
    return run.exit_status ? run.exit_status : code;
}

static const struct cli_note json[] = {
    {"file", "The recording"},
    {"exit_status", "The program's; 128 and the signal's number when it was killed"},
    {"seconds", "How long the program ran"},
    {"processes", "How many processes wrote something"},
    {"parts", "How many parts they wrote; a process that called exec wrote several"},
    {"cut_parts", "Parts that end in the middle: their processes were killed"},
    {"records", "Events in the recording"},
    {"dropped", "Records that were lost because buffers were full"},
    {"lost_timestamps", "Device records without times"},
    {"bytes", "Size of the recording"},
    {"still_running", "Processes of the program that were not waited for"},
    {"notes", "The recorder's notes: name and text"},
    {"config", "The options, defaults included"},
    {NULL},
};

static const struct cli_note examples[] = {
    {"millrace profile -- python3 train.py --epochs 1", "Records into report1.sqlite"},
    {"millrace profile -o run -f -c cudaProfilerApi -- python3 train.py",
     "Records from torch.cuda.profiler.start() to stop() into run.sqlite"},
    {"millrace profile -t cuda-light -d 10 -y 30 -- ./server",
     "Ten seconds of copies, after half a minute"},
    {"millrace profile --gpu-metrics -o m -- python3 train.py",
     "Samples the GPU's counters too; millrace report -r "
     "gpu_metrics_sum m.sqlite adds them up"},
    {"mpirun -n 4 millrace profile -o job/run -- python3 train.py",
     "Each rank records into job/run.rankN.sqlite; millrace analyze job says who holds them up"},
    {"millrace profile --stats -- ./vector_add", "Prints the default reports at the end"},
    {NULL},
};

const struct cli_command cli_profile = {
    .name = "profile",
    .summary = "Record what any CUDA program does and waits for",
    .synopsis = "[options] -- CMD... | --merge FOLDER",
    .text =
        "Runs an unmodified program with a recorder inside, and writes a recording for millrace "
        "report, analyze and timeline. Tools that read the SQLite exports of Nsight Systems can "
        "read it, too. All processes that the program starts are recorded.\n\n"
        "The program keeps its standard input, output and error, its terminal, its signals and "
        "its exit status: 128 plus the signal's number if it was killed, 127 if it was not "
        "found, 126 if it cannot be run. If it is killed, what was recorded before is kept.\n\n"
        "Started by mpirun, srun or torchrun (torchrun --no-python millrace profile -- ...), each "
        "rank writes a recording of its own, and report, analyze and timeline take their folder. "
        "millrace profile -- torchrun ... records all ranks of a host into one. Recordings know "
        "their ranks.\n\n"
        "CUDA is recorded with NVIDIA's CUPTI, which comes with the program's CUDA, with PyTorch "
        "or with the toolkit; MILLRACE_CUPTI=FILE selects one. Only one profiler per process can "
        "use CUPTI: if another one does, the rest is recorded and a warning says so.",
    .options = table,
    .options_bytes = sizeof(struct profile_options),
    .min_args = 0,
    .max_args = -1,
    .raw_args = true,
    .json = json,
    .examples = examples,
    .run = run,
};
