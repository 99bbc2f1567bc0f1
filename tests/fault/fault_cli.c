/*
 * The program, when its writes fail: it exits with 0, 1 or 2, says why, and leaves each output file
 * whole or not at all.
 *
 *     fault_cli PROGRAM       a build of the program with the injector in it, which the
 *                             environment variable FAULT arms
 */
#include "files.h"
#include "inject.h"
#include "paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define USUAL_RUNS 3 /* of a command, a kind and a mode */
#elif defined __SANITIZE_ADDRESS__
#define USUAL_RUNS 6
#else
#define USUAL_RUNS 20
#endif
#define RUN_SECONDS 60
#define MOST_ARGS   24
#define MOST_FILES  32

static const char *program;

struct command {
    const char *name;
    const char *args[MOST_ARGS]; /* OUT/x: x in the output folder; IN/x: an input */
    bool prints;                 /* and nothing else: what it prints is its output */
};

static const struct command commands[] = {
    {"trace and state",
     {"feed", "synthetic:n=300,shape=16", "--workers", "2", "--quiet", "--trace", "OUT/trace",
      "--state-out", "OUT/state"}},
    {"quarantine",
     {"feed", "list:IN/gone.txt,max-height=8,max-width=8", "--collate", "pad", "--quiet", "--bad",
      "skip", "--quarantine",
      /* most of its pictures are not there: without bad samples there is no such file */
      "OUT/bad"}},
    {"digits", {"synth", "digits", "OUT", "--n", "60", "--n-test", "30", "--quiet"}},
    {"digits, gz", {"synth", "digits", "OUT", "--n", "60", "--n-test", "30", "--gz", "--quiet"}},
    {"npy", {"synth", "npy", "OUT/x.npy", "--n", "50", "--shape", "64", "--quiet"}},
    {"raw", {"synth", "raw", "OUT/x.bin", "--n", "50", "--shape", "64", "--quiet"}},
    {"man pages", {"man", "OUT"}},
    {"report", {"report", "IN/good.sqlite", "--quiet"}, true},
    {"report, json",
     {"report", "IN/good.sqlite", "-r", "mem_ops,step_breakdown", "-n", "9", "--json"},
     true},
    {"diff", {"report", "--diff", "IN/good.sqlite", "IN/good.sqlite", "--quiet"}, true},
    {"analyze", {"analyze", "IN/pageable.sqlite", "--quiet"}, true},
    {"profile", {"profile", "-o", "OUT/run", "--quiet", "--", "/bin/true"}},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

struct output {
    char name[128];
    off_t bytes;
};

struct result {
    int code;
    bool hit; /* a call was made to fail */
    int n_files;
    off_t printed; /* bytes */
    struct output file[MOST_FILES];
    char text[2048]; /* of standard error */
};

static char what[512];

static void substitute(const char *arg, char *out, size_t cap)
{
    const char *at = strstr(arg, "OUT"), *in = strstr(arg, "IN/");
    const char *from = at ? at : in;
    if (!from)
        snprintf(out, cap, "%s", arg);
    else
        snprintf(out, cap, "%.*s%s%s%s", (int)(from - arg), arg, files_dir, at ? "/out" : "/",
                 from + 3);
}

/* In the child: the limits that it runs under, and the program. */
static void become(const struct command *command, const char *fault, rlim_t file_bytes, int err)
{
    static char text[MOST_ARGS][600];
    char *argv[MOST_ARGS + 2] = {(char *)program};
    for (int i = 0; i < MOST_ARGS && command->args[i]; i++) {
        substitute(command->args[i], text[i], sizeof text[i]);
        argv[i + 1] = text[i];
    }
    struct rlimit limit = {file_bytes, file_bytes};
    setenv("FAULT_TOLD", files_path("told"), 1);
    if (fault)
        setenv("FAULT", fault, 1);
    dup2(err, 2);
    dup2(open(command->prints ? files_path("printed") : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC,
              0600),
         1);
    signal(SIGXFSZ, SIG_IGN);
    if (file_bytes)
        setrlimit(RLIMIT_FSIZE, &limit);
    alarm(RUN_SECONDS);
    execv(program, argv);
    _exit(99);
}

static void list_outputs(struct result *r)
{
    DIR *d = opendir(files_path("out"));
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        struct stat st;
        if (e->d_name[0] == '.' ||
            strstr(e->d_name, ".parts-")) /* what was recorded stays when it cannot be merged */
            continue;
        struct output *o = &r->file[r->n_files];
        if (++r->n_files > MOST_FILES || fstatat(dirfd(d), e->d_name, &st, 0))
            die("%s: output folder", what);
        snprintf(o->name, sizeof o->name, "%.127s", e->d_name);
        o->bytes = st.st_size;
    }
    if (d)
        closedir(d);
}

/* Parts of a recording that could not be merged stay, in a folder. */
static void clear_folder(const char *folder)
{
    char path[PATH_MAX];
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            clear_folder(path);
        remove(path);
    }
    if (d)
        closedir(d);
}

static void clear_outputs(void)
{
    clear_folder(files_path("out"));
}

static void run(const struct command *command, const char *fault, rlim_t file_bytes,
                struct result *out)
{
    memset(out, 0, sizeof *out);
    clear_outputs();
    unlink(files_path("told"));
    snprintf(what, sizeof what, "millrace %s (%s), FAULT=%s, files of at most %llu bytes",
             command->args[0], command->name, fault ? fault : "", (unsigned long long)file_bytes);
    int ends[2], status;
    if (pipe(ends))
        die("pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0)
        become(command, fault, file_bytes, ends[1]);
    close(ends[1]);
    size_t n = 0;
    ssize_t got;
    char rest[512];
    while ((got = read(ends[0], n + 1 < sizeof out->text ? out->text + n : rest,
                       n + 1 < sizeof out->text ? sizeof out->text - 1 - n : sizeof rest)) > 0)
        n += n + 1 < sizeof out->text ? (size_t)got : 0;
    close(ends[0]);
    if (waitpid(child, &status, 0) != child)
        die("waitpid: %s", strerror(errno));
    if (!WIFEXITED(status))
        die("%s: ended by signal %d: %s", what, WTERMSIG(status), out->text);
    out->code = WEXITSTATUS(status);
    out->hit = access(files_path("told"), F_OK) == 0;
    list_outputs(out);
    struct stat st;
    out->printed = command->prints && stat(files_path("printed"), &st) == 0 ? st.st_size : 0;
}

/* A trace is as long as what happened: whole when its packets (tag 0x0a, length as a varint, bytes)
 * end where the file does. */
static bool whole_trace(const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/out/%.127s", files_dir, name);
    FILE *file = fopen(path, "rb");
    bool whole = file != NULL;
    int tag;
    while (whole && (tag = getc(file)) != EOF) {
        unsigned long long bytes = 0;
        int byte = 0x80;
        for (int shift = 0; shift < 63 && byte != EOF && (byte & 0x80); shift += 7) {
            byte = getc(file);
            bytes |= byte == EOF ? 0 : (unsigned long long)(byte & 0x7f) << shift;
        }
        whole = tag == 0x0a && byte != EOF;
        for (; whole && bytes > 0; bytes--)
            whole = getc(file) != EOF;
    }
    if (file)
        fclose(file);
    return whole;
}

static void check(const struct result *got, const struct result *whole)
{
    if (got->code > 2)
        die("%s: exit code %d: %s", what, got->code, got->text);
    if (got->code == 0 && got->n_files != whole->n_files)
        die("%s: says nothing, but leaves %d files instead of %d", what, got->n_files,
            whole->n_files);
    if (got->code == 0 && got->printed != whole->printed)
        die("%s: says nothing, but prints %lld bytes instead of %lld", what,
            (long long)got->printed, (long long)whole->printed);
    if (got->code != 0 && !strstr(got->text, "millrace"))
        die("%s: exit code %d with the text '%s'", what, got->code, got->text);
    for (int i = 0; i < got->n_files; i++) {
        const struct output *same = NULL;
        for (int j = 0; j < whole->n_files; j++)
            same = strcmp(got->file[i].name, whole->file[j].name) ? same : &whole->file[j];
        if (!same)
            die("%s: leaves the file %s", what, got->file[i].name);
        /* The other files are not always as long to the byte; but what is cut off would be more. */
        bool trace = strcmp(got->file[i].name, "trace") == 0;
        if (trace ? !whole_trace(got->file[i].name) : got->file[i].bytes < same->bytes / 2)
            die("%s: leaves %lld of %lld bytes in %s", what, (long long)got->file[i].bytes,
                (long long)same->bytes, got->file[i].name);
    }
}

/* Ends where no call is left to fail: a program makes a rename or two. Returns the runs with one
 * that failed; 1 where it passed before. */
static int sweep(const struct command *command, enum fault_kind kind, const struct result *whole)
{
    static struct result got;
    char fault[64], part[128];
    uint64_t most = most_runs(USUAL_RUNS);
    int n_failed = 0, n_runs = 0;
    snprintf(part, sizeof part, "%s %s", command->name, fault_name(kind));
    if (part_passed(part))
        return 1;
    snprintf(fault, sizeof fault, "%s:0", fault_name(kind));
    setenv("FAULT_PATHS", files_path("paths"), 1);
    run(command, fault, 0, &got);
    unsetenv("FAULT_PATHS");
    paths_choose();
    for (int on = 0; on < 2; on++) {
        uint64_t n = 1;
        for (uint64_t i = 0; i < most; i++) {
            snprintf(fault, sizeof fault, "%s:%llu%s", fault_name(kind), (unsigned long long)n,
                     on ? ":on" : "");
            run(command, fault, 0, &got);
            check(&got, whole);
            if (!got.hit)
                break;
            n_runs++;
            n_failed += got.code != 0;
            n = paths_next(n + (n < 10 || most > USUAL_RUNS ? 1 : n / 4));
        }
    }
    printf("%-16s %-8s %3d runs, %3d ended with an error\n", command->name, fault_name(kind),
           n_runs, n_failed);
    part_pass(part);
    return n_runs;
}

static void full_disk(const struct command *command, const struct result *whole)
{
    struct result got;
    off_t largest =
        0; /* but of a trace: on a busy machine it holds more waits, up to twice the bytes */
    for (int i = 0; i < whole->n_files; i++)
        if (strcmp(whole->file[i].name, "trace") && whole->file[i].bytes > largest)
            largest = whole->file[i].bytes;
    if (largest < 2)
        return;
    run(command, NULL, (rlim_t)(largest / 2), &got);
    check(&got, whole);
    if (got.code == 0)
        die("%s: a file of %lld bytes cannot have been written", what, (long long)largest);
}

/* Standard output and devices: what cannot be written there is an error too. */
static void full_device(void)
{
    const char *const lines[] = {
        "%s feed synthetic:n=100,shape=4 --json --quiet >/dev/full 2>/dev/null",
        "%s feed synthetic:n=100,shape=4 --quiet >/dev/full 2>/dev/null",
        "%s feed synthetic:n=100,shape=4 --quiet --trace /dev/full >/dev/null 2>&1",
        "%s inspect synthetic:n=100,shape=4 >/dev/full 2>/dev/null",
        "%s feed --help >/dev/full 2>/dev/null",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[1024];
        snprintf(line, sizeof line, lines[i], program);
        int status = system(line);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1)
            die("%s: status %#x, want exit code 1", line, (unsigned)status);
    }
}

/* One picture that is there, of a pixel, and others that are not: an empty quarantine is not
 * written. */
static void make_list(void)
{
    static const unsigned char pixel[] = {
        0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
        0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00,
        0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
        0x9c, 0x63, 0x10, 0x50, 0x30, 0x00, 0x00, 0x00, 0xa4, 0x00, 0x61, 0x34, 0x66, 0x7d,
        0x72, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
    FILE *picture = fopen(files_path("here.png"), "wb");
    if (!picture || fwrite(pixel, sizeof pixel, 1, picture) != 1 || fclose(picture))
        die("%s: %s", files_path("here.png"), strerror(errno));
    FILE *file = fopen(files_path("gone.txt"), "w");
    if (file)
        fputs("here.png\n", file);
    for (int i = 0; file && i < 20; i++)
        fprintf(file, "gone-%d.jpg\n", i);
    if (!file || fclose(file))
        die("%s: %s", files_path("gone.txt"), strerror(errno));
}

static void make_recordings(void)
{
    static const char *const names[] = {"good", "pageable"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[1024];
        snprintf(line, sizeof line, "'%s' %s '%s/%s.sqlite'", MAKE_RECORDING, names[i], files_dir,
                 names[i]);
        if (system(line) != 0)
            die("%s: failed", line);
    }
    if (setenv("MILLRACE_RECORD_MODULE", RECORD_MODULE, 1))
        die("setenv: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    const enum fault_kind kinds[] = {FAULT_WRITE, FAULT_OPEN, FAULT_RENAME, FAULT_MEMORY};
    int n_hit[sizeof kinds / sizeof kinds[0]] = {0};
    static struct result whole;
    if (argc < 2)
        die("usage: fault_cli PROGRAM [COMMAND]");
    program = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    files_make();
    atexit(files_drop);
    if (mkdir(files_path("out"), 0755))
        die("%s: %s", files_path("out"), strerror(errno));
    make_list();
    make_recordings();
    paths_open(files_path("paths"));
    for (size_t c = 0; c < N_COMMANDS; c++) {
        if (argc > 2 && strcmp(argv[2], commands[c].name))
            continue;
        run(&commands[c], NULL, 0, &whole);
        if (whole.code || (commands[c].prints ? whole.printed == 0 : whole.n_files == 0))
            die("%s: exit code %d, %d files: %s", what, whole.code, whole.n_files, whole.text);
        full_disk(&commands[c], &whole);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (kinds[k] != FAULT_RENAME || !commands[c].prints)
                n_hit[k] += sweep(&commands[c], kinds[k], &whole);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (n_hit[k] == 0 && argc < 3)
            die("no call of kind %s was made to fail", fault_name(kinds[k]));
    full_device();
    clear_outputs();
    rmdir(files_path("out"));
    return 0;
}
