/* What a profiled program is given: a folder for its parts and an environment that loads the
 * recorder. */
#include "profile/profile.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MODULE_FILE "libmillrace-record.so"
#define PYTHON_HOOK "record-python/sitecustomize.py"

/* As the recorder knows them. */
static const struct {
    const char *name;
    uint32_t bit;
} traces[] = {{"cuda", 1}, {"cuda-light", 2}, {"nvtx", 4},
              {"osrt", 8}, {"millrace", 16},  {"none", 0}};
#define TRACE_CUDA    3u
#define TRACE_NVTX    4u
#define TRACE_OSRT    8u
#define TRACE_METRICS 32u
#define TRACE_STACKS  64u
#define TRACE_SAMPLES 128u

int profile_traces(const char *text, uint32_t *out_bits)
{
    uint32_t bits = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < CLI_COUNT(traces) &&
               (strlen(traces[i].name) != n || strncmp(traces[i].name, at, n) != 0))
            i++;
        if (i == CLI_COUNT(traces))
            return cli_misuse("--trace %s: %.*s: expected a list of cuda, cuda-light, nvtx, osrt, "
                              "millrace, or none",
                              text, (int)n, at);
        bits |= traces[i].bit;
        at += n + (at[n] == ',');
    }
    if ((bits & TRACE_CUDA) == TRACE_CUDA)
        return cli_misuse("--trace %s: cuda includes cuda-light: give only one", text);
    *out_bits = bits;
    return CLI_OK;
}

/* A file of ours: beside the library, or in the folder of modules. */
static bool find_own(const char *name, char *path, size_t bytes)
{
    static const char *const folders[] = {"", "millrace/", "../lib/millrace/"};
    const char *(*const library)(void) = mr_version;
    char real[PATH_MAX];
    Dl_info info;
    void *here;
    memcpy(&here, &library, sizeof here);
    if (!dladdr(here, &info) || !info.dli_fname || !realpath(info.dli_fname, real))
        return false;
    int front = (int)(strrchr(real, '/') - real) + 1;
    for (size_t i = 0; i < CLI_COUNT(folders); i++) {
        int n = snprintf(path, bytes, "%.*s%s%s", front, real, folders[i], name);
        if (n > 0 && (size_t)n < bytes && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

int profile_find_module(char *path, size_t bytes)
{
    const char *given = getenv("MILLRACE_RECORD_MODULE");
    char real[PATH_MAX];
    if (given && given[0]) {
        if (!realpath(given, real))
            return cli_fail("MILLRACE_RECORD_MODULE: %s: %s", given, strerror(errno));
        snprintf(path, bytes, "%s", real);
        return CLI_OK;
    }
    if (find_own(MODULE_FILE, path, bytes))
        return CLI_OK;
    return cli_fail("the recorder " MODULE_FILE
                    " was not found beside the library nor in ../lib/millrace; "
                    "MILLRACE_RECORD_MODULE=FILE names it");
}

static bool is_there(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* The tool that an ending belongs to would not open SQLite under it. */
static int check_ending(const char *given)
{
    static const char *const theirs[] = {".nsys-rep", ".qdrep", ".ncu-rep"};
    for (size_t i = 0; i < CLI_COUNT(theirs); i++) {
        int n = (int)(strlen(given) - strlen(theirs[i]));
        if (cli_ends_in(given, theirs[i]))
            return cli_misuse(
                "--output %s: %s is the format of NVIDIA's own tool, and a recording is "
                "SQLite: expected -o %.*s or -o %.*s.sqlite",
                given, theirs[i], n, given, n, given);
    }
    return CLI_OK;
}

/* As nsys does: report1, report2, ...; a name without an ending gets .sqlite. */
int profile_find_output(struct profile_run *run)
{
    const char *given = run->options->output, *base;
    char named[sizeof run->output];
    profile_find_rank(run);
    if (!given || !given[0]) {
        for (unsigned i = 1; i < 1000000; i++) {
            snprintf(named, sizeof named, "report%u.sqlite", i);
            if (!profile_name_rank(run, named) || !is_there(run->output))
                break;
        }
        return CLI_OK;
    }
    if (check_ending(given) != CLI_OK)
        return CLI_MISUSED;
    base = strrchr(given, '/') ? strrchr(given, '/') + 1 : given;
    int n = snprintf(named, sizeof named, "%s%s", given, strchr(base, '.') ? "" : ".sqlite");
    if (n < 0 || (size_t)n >= sizeof named || !base[0] || !profile_name_rank(run, named))
        return cli_misuse("--output %s: expected the name of a file", given);
    if (!is_there(run->output))
        return CLI_OK;
    return cli_output_claim(run->output, CLI_RECORDING, run->options->force);
}

/* The folder in which a recording is to lie is not made: it is more often misspelt than missing. */
static int check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096];
    struct stat status;
    snprintf(folder, sizeof folder, "%.*s", slash && slash > path ? (int)(slash - path) : 1,
             slash ? path : ".");
    if (stat(folder, &status) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return cli_fail("--output %s: folder %s does not exist; create it first", path, folder);
    return CLI_OK;
}

void profile_unmark_parts(struct profile_run *run)
{
    char path[4300];
    if (run->running < 0)
        return;
    snprintf(path, sizeof path, "%s/running", run->parts);
    unlink(path);
    close(run->running);
    run->running = -1;
}

/*
 * Two files in the parts' folder: "begin" says when the recording's time is 0, here and if the
 * parts are merged again; "running" is locked as long as this process lives, and stays if it is
 * killed. On file systems without locks, the next run does not notice it.
 */
static int make_marks(struct profile_run *run)
{
    char path[4300];
    struct timespec now;
    uint64_t begin_ns = mr_time_ns();
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(path, sizeof path, "%s/running", run->parts);
    run->running = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (run->running < 0)
        return cli_fail("%s: %s", path, strerror(errno));
    if (flock(run->running, LOCK_EX | LOCK_NB) != 0)
        profile_unmark_parts(run);
    snprintf(path, sizeof path, "%s/begin", run->parts);
    FILE *file = fopen(path, "wxe");
    bool ok = file && fprintf(file, "%llu %llu\n", (unsigned long long)begin_ns,
                              (unsigned long long)now.tv_sec * 1000000000ull +
                                  (unsigned long long)now.tv_nsec) > 0;
    ok = file && fclose(file) == 0 && ok;
    return ok ? CLI_OK : cli_fail("%s: %s", path, strerror(errno));
}

/* Does a process hold the lock of this folder? A folder without one was left on purpose. */
static bool was_killed(const char *parts)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/running", parts);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool killed = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return killed;
}

/* Of recordings of this name whose `millrace profile` was killed. */
static void tell_left(const struct profile_run *run)
{
    char pattern[4200];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.parts-??????", run->output);
    if (strpbrk(run->output, "*?[\\") || glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (was_killed(found.gl_pathv[i]))
            cli_warn("%s: is left of a millrace profile that was killed: millrace profile --merge "
                     "%s -o FILE makes a recording of it; then remove it",
                     found.gl_pathv[i], found.gl_pathv[i]);
    globfree(&found);
}

int profile_make_parts(struct profile_run *run)
{
    char made[4200], *real;
    if (check_folder(run->output) != CLI_OK)
        return CLI_FAILED;
    tell_left(run);
    int n = snprintf(made, sizeof made, "%s.parts-XXXXXX", run->output);
    if (n < 0 || (size_t)n >= sizeof made || !mkdtemp(made))
        return cli_fail("%s: a folder beside it cannot be made: %s", run->output, strerror(errno));
    real = realpath(made, NULL);
    if (!real || strlen(real) >= sizeof run->parts) {
        free(real);
        rmdir(made);
        return cli_fail("%s: its name is too long", made);
    }
    snprintf(run->parts, sizeof run->parts, "%s", real);
    free(real);
    int code = make_marks(run);
    if (code != CLI_OK)
        profile_remove_parts(run);
    return code;
}

/* A process that samples a GPU's metrics holds the file gpu-... of it. */
static bool metrics_tried(const char *parts)
{
    bool tried = false;
    DIR *folder = opendir(parts);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        tried = tried || strncmp(entry->d_name, "gpu-", 4) == 0;
    if (folder)
        closedir(folder);
    return tried;
}

/* The recorder's lines "name<tab>text", each once. */
void profile_read_notes(struct profile_run *run)
{
    char path[4300], line[2048];
    snprintf(path, sizeof path, "%s/notes", run->parts);
    run->metrics_tried = metrics_tried(run->parts);
    FILE *file = fopen(path, "r");
    while (file && run->n_notes < PROFILE_NOTES && fgets(line, sizeof line, file)) {
        char *tab = strchr(line, '\t');
        bool known = !tab || !line[strcspn(line, "\n")];
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < run->n_notes; i++)
            known = known || strcmp(run->notes[i], line) == 0;
        if (!known && (run->notes[run->n_notes] = strdup(line)))
            run->n_notes++;
    }
    if (file)
        fclose(file);
}

/* Only the recorder writes there; folders in it are none of ours and stay. */
void profile_remove_parts(struct profile_run *run)
{
    DIR *folder = opendir(run->parts);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    if (rmdir(run->parts) != 0 && errno != ENOENT)
        cli_warn("%s: cannot be removed: %s", run->parts, strerror(errno));
}

static bool set_number(const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return setenv(name, text, 1) == 0;
}

/* What the user has there himself; NULL: nothing but us. */
static const char *others(const char *variable, const struct profile_run *run)
{
    const char *own = getenv(variable);
    return own && own[0] && strcmp(own, run->module) != 0 ? own : NULL;
}

/* If the user already injects a library, ours, which the driver loads in its place, injects it. */
static bool inject_cuda(const struct profile_run *run)
{
    const char *own = others("CUDA_INJECTION64_PATH", run);
    if (own)
        cli_warn("CUDA_INJECTION64_PATH=%s is set: it is loaded too, before the recorder", own);
    if (own && setenv("MILLRACE_RECORD_NEXT_CUDA", own, 1) != 0)
        return false;
    return setenv("CUDA_INJECTION64_PATH", run->module, 1) == 0;
}

/* NVTX has one place for each of its functions: who is loaded last takes them all from the one
 * before. */
static bool inject_nvtx(const struct profile_run *run)
{
    const char *own = others("NVTX_INJECTION64_PATH", run);
    if (own)
        cli_warn(
            "NVTX_INJECTION64_PATH=%s is set: it is not loaded, because NVTX supports one tool; "
            "to keep it, remove nvtx from --trace",
            own);
    return setenv("NVTX_INJECTION64_PATH", run->module, 1) == 0;
}

/* The variable's list with ours in front. */
static bool set_front(const char *variable, const char *ours)
{
    const char *own = getenv(variable);
    size_t bytes = strlen(ours) + (own ? strlen(own) : 0) + 2;
    char *both = malloc(bytes);
    if (!both)
        return false;
    snprintf(both, bytes, "%s%s%s", ours, own && own[0] ? ":" : "", own ? own : "");
    bool ok = setenv(variable, both, 1) == 0;
    free(both);
    return ok;
}

/* The dynamic linker takes a list with spaces or colons between, and complains to the program's
 * output of what it does not find. */
static bool preload(const struct profile_run *run)
{
    if (strpbrk(run->module, " :")) {
        cli_warn("operating system calls and stacks are not recorded: LD_PRELOAD cannot hold %s, "
                 "which has a "
                 "space or a colon; set MILLRACE_RECORD_MODULE=FILE to a copy elsewhere",
                 run->module);
        return true;
    }
    return set_front("LD_PRELOAD", run->module);
}

static bool has_python_ranges(const struct profile_run *run)
{
    return run->traced & TRACE_NVTX && run->options->python_ranges == PROFILE_RANGES_ON;
}

/* Each Python of the program runs the sitecustomize that it finds first (recorder/python). */
static bool hook_python(const struct profile_run *run)
{
    bool ranges = has_python_ranges(run), stacks = run->traced & TRACE_STACKS;
    const char *missing = ranges && stacks ? "automatic ranges and no sampled stacks"
                          : ranges         ? "automatic ranges"
                                           : "sampled stacks";
    char path[4200];
    if (!find_own(PYTHON_HOOK, path, sizeof path)) {
        cli_warn("Python programs have no %s: " PYTHON_HOOK " was not found beside the recorder",
                 missing);
        return true;
    }
    *strrchr(path, '/') = 0;
    if (strchr(path, ':')) {
        cli_warn("Python programs have no %s: PYTHONPATH cannot hold %s, which has a colon",
                 missing, path);
        return true;
    }
    return set_front("PYTHONPATH", path);
}

int profile_environment(struct profile_run *run)
{
    const struct profile_options *o = run->options;
    bool ok =
        setenv("MILLRACE_RECORD_DIR", run->parts, 1) == 0 &&
        set_number("MILLRACE_RECORD_TRACE", run->traced) &&
        setenv("MILLRACE_RECORD_CAPTURE", o->capture_range, 1) == 0 &&
        setenv("MILLRACE_RECORD_CAPTURE_END", o->capture_range_end ? "repeat" : "stop", 1) == 0 &&
        set_number("MILLRACE_RECORD_DELAY_NS", o->delay_ns) &&
        set_number("MILLRACE_RECORD_DURATION_NS", o->duration_ns) &&
        set_number("MILLRACE_RECORD_OSRT_NS", o->osrt_threshold_ns) &&
        set_number("MILLRACE_RECORD_FLUSH_MS", o->flush_ns / 1000000) &&
        set_number("MILLRACE_RECORD_METRICS_HZ", o->metrics_hz) &&
        set_number("MILLRACE_RECORD_STACKS_HZ", run->traced & TRACE_STACKS ? o->python_hz : 0) &&
        set_number("MILLRACE_RECORD_SAMPLE_HZ", o->sampling_hz) &&
        set_number("MILLRACE_RECORD_PYTHON_RANGES", has_python_ranges(run)) &&
        set_number("MILLRACE_RECORD_BEGIN_NS", mr_time_ns()) &&
        setenv("MILLRACE_RECORD_API", o->api ? "all" : "some", 1) == 0 &&
        setenv("MILLRACE_RECORD_GRAPHS", o->graph_trace ? "graph" : "node", 1) == 0 &&
        setenv("MILLRACE_RECORD_MODULE", run->module, 1) == 0;
    if (ok && run->traced & (TRACE_CUDA | TRACE_METRICS))
        ok = inject_cuda(run);
    if (ok && (run->traced & TRACE_NVTX || strncmp(o->capture_range, "nvtx:", 5) == 0))
        ok = inject_nvtx(run);
    if (ok && (has_python_ranges(run) || run->traced & TRACE_STACKS))
        ok = hook_python(run);
    if (ok && run->traced & (TRACE_OSRT | TRACE_SAMPLES))
        ok = preload(run);
    return ok ? CLI_OK : cli_fail("out of memory");
}
