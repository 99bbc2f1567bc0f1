/*
 * Recorded programs, when calls of the recorder inside them fail: what they print and their exit
 * status stay as they are, and the parts that are left can be merged.
 *
 *     fault_record [PROGRAM [KIND:N[:on]]]
 */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <millrace/profile.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define USUAL_RUNS 2     /* of a program, a kind and a mode */
#define PRELOAD    false /* sanitizers want to be first themselves */
#elif defined(__SANITIZE_ADDRESS__)
#define USUAL_RUNS 3
#define PRELOAD    false
#else
#define USUAL_RUNS 8
#define PRELOAD    true
#endif
#define RUN_SECONDS 60

static const struct program {
    const char *name;
    const char *argv[4];
    const char *trace, *capture;
    bool preload;
} programs[] = {
    {"steps", {FAKE_APP, "steps", "200"}, "23", "none", false},
    {"threads", {FAKE_APP, "threads", "3"}, "23", "none", false},
    {"metrics", {FAKE_APP, "pause", "30"}, "55", "none", false},
    {"fork", {FAKE_APP, "fork"}, "23", "none", false},
    {"capture", {FAKE_APP, "capture"}, "23", "cudaProfilerApi", false},
    {"shell",
     {"/bin/sh", "-c",
      "for i in 1 2 3; do echo line $i | cat; sleep 0.002; done; exec sh -c 'echo last; exit 7'"},
     "15",
     "none",
     true},
};
#define N_PROGRAMS (sizeof programs / sizeof programs[0])
static const char *const kinds[] = {"memory", "open", "read", "write", "stat", "thread", "load"};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

struct result {
    int status;
    char text[4096];
    bool told; /* something was made to fail */
};

static char what[256];

static void become(const struct program *program, const char *fault, int out)
{
    dup2(out, 1);
    dup2(out, 2);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* of the program's own children */
    setenv("MILLRACE_RECORD_DIR", files_path("record"), 1);
    setenv("MILLRACE_RECORD_TRACE", program->trace, 1);
    setenv("MILLRACE_RECORD_CAPTURE", program->capture, 1);
    setenv("MILLRACE_RECORD_FLUSH_MS", "2", 1);
    setenv("MILLRACE_CUPTI", FAKE_CUPTI, 1);
    setenv("CUDA_INJECTION64_PATH", RECORD_FAULTY, 1);
    setenv("RECORD_FAULT_TOLD", files_path("told"), 1);
    if (fault)
        setenv("RECORD_FAULT", fault, 1);
    if (program->preload)
        setenv("LD_PRELOAD", RECORD_FAULTY, 1);
    alarm(RUN_SECONDS);
    execv(program->argv[0], (char *const *)program->argv);
    _exit(99);
}

static void clear_record(void)
{
    char path[800];
    DIR *d = opendir(files_path("record"));
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/record/%s", files_dir, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
    unlink(files_path("told"));
}

static void run(const struct program *program, const char *fault, struct result *out)
{
    clear_record();
    snprintf(what, sizeof what, "fault_record %s %s", program->name, fault ? fault : "");
    int ends[2];
    size_t n = 0;
    if (pipe(ends))
        die("pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        become(program, fault, ends[1]);
    close(ends[1]);
    for (ssize_t got; n + 1 < sizeof out->text &&
                      (got = read(ends[0], out->text + n, sizeof out->text - 1 - n)) > 0;)
        n += (size_t)got;
    out->text[n] = 0;
    close(ends[0]);
    if (waitpid(child, &out->status, 0) != child)
        die("waitpid: %s", strerror(errno));
    out->told = access(files_path("told"), F_OK) == 0;
}

static uint64_t merge(void)
{
    struct mr_merge_stats stats = {.size = sizeof stats};
    if (mr_recording_merge(files_path("record"), files_path("merged.sqlite"), 1, &stats) < 0)
        die("%s: %s", what, mr_last_error());
    return stats.n_records;
}

static void check(const struct result *got, const struct result *want)
{
    if (got->status != want->status || strcmp(got->text, want->text) != 0)
        die("%s: wait status %#x instead of %#x, and the output:\n%s\ninstead of:\n%s", what,
            (unsigned)got->status, (unsigned)want->status, got->text, want->text);
    merge();
}

/* Returns how many runs had a failure; 1 where it passed before. */
static int sweep(const struct program *program, const char *kind, const struct result *want)
{
    static struct result got;
    uint64_t most = most_runs(USUAL_RUNS);
    int n_told = 0;
    char part[128];
    snprintf(part, sizeof part, "%s %s", program->name, kind);
    if (part_passed(part))
        return 1;
    for (int on = 0; on < 2; on++) {
        unsigned n = 1;
        for (uint64_t i = 0; i < most; i++) {
            char fault[64];
            snprintf(fault, sizeof fault, "%s:%u%s", kind, n, on ? ":on" : "");
            run(program, fault, &got);
            check(&got, want);
            n_told += got.told;
            if (!got.told) /* there are no more calls */
                break;
            n += n < 6 || most > USUAL_RUNS ? 1 : n / 2;
        }
    }
    part_pass(part);
    return n_told;
}

static void try_program(const struct program *program, const char *only, int told[N_KINDS])
{
    static struct result whole, got;
    run(program, NULL, &whole);
    bool right = program->preload ? WIFEXITED(whole.status) && WEXITSTATUS(whole.status) == 7 &&
                                        strcmp(whole.text, "line 1\nline 2\nline 3\nlast\n") == 0
                                  : whole.status == 0 && !whole.text[0];
    if (!right || merge() == 0)
        die("%s: wait status %#x, %llu records, and the output:\n%s", what, (unsigned)whole.status,
            (unsigned long long)merge(), whole.text);
    if (only) {
        run(program, only, &got);
        check(&got, &whole);
        return;
    }
    for (size_t k = 0; k < N_KINDS; k++) {
        int n = sweep(program, kinds[k], &whole);
        told[k] += n;
        printf("%-8s %-8s %3d runs with a failure\n", program->name, kinds[k], n);
    }
}

int main(int argc, char **argv)
{
    int told[N_KINDS] = {0};
    unsigned n_run = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    files_make();
    atexit(files_drop);
    if (mkdir(files_path("record"), 0700))
        die("%s: %s", files_path("record"), strerror(errno));
    for (size_t p = 0; p < N_PROGRAMS; p++)
        if ((argc < 2 || !strcmp(argv[1], programs[p].name)) && (PRELOAD || !programs[p].preload) &&
            ++n_run)
            try_program(&programs[p], argc > 2 ? argv[2] : NULL, told);
    if (n_run == 0)
        die("no such program: %s", argv[1]);
    for (size_t k = 0; k < N_KINDS && argc < 2; k++)
        if (told[k] == 0)
            die("no call of kind %s was made to fail", kinds[k]);
    clear_record();
    rmdir(files_path("record"));
    return 0;
}
