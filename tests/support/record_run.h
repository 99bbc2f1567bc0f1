/*
 * Tests of the recorder run themselves again as the recorded program: main() with MODE in the
 * environment runs that mode, and a test reads the parts that it left.
 */
#ifndef RECORD_RUN_H
#define RECORD_RUN_H

#include "../unit/unit.h"
#include "part_look.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define MAX_PARTS 16
static char record_self[4096], record_folder[4096];
static struct part_look looks[MAX_PARTS];
static int n_looks;

struct record_mode {
    const char *name;
    int (*run)(void);
};

static void record_forget(void)
{
    for (int i = 0; i < n_looks; i++)
        part_look_free(&looks[i]);
    n_looks = 0;
}

static int record_setup(void **state)
{
    (void)state;
    snprintf(record_folder, sizeof record_folder, "%s", "/tmp/millrace-record.XXXXXX");
    return mkdtemp(record_folder) ? 0 : -1;
}

static int record_teardown(void **state)
{
    (void)state;
    char command[4200];
    record_forget();
    snprintf(command, sizeof command, "rm -rf '%.4000s'", record_folder);
    return system(command);
}

/* Sanitizers: no looking for leaks in forked children, where that cannot work, and threads after a
 * fork as ever. */
static void record_calm(const char *variable, const char *option)
{
    char options[1000];
    const char *given = getenv(variable);
    snprintf(options, sizeof options, "%.900s:%s", given ? given : "", option);
    setenv(variable, options, 1);
}

/* In the child: output to this file, the environment, the program. */
static void record_become(const char *output, const char *const *command,
                          const char *const *environment)
{
    int fd = open(output, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    close(fd);
    setenv("MILLRACE_RECORD_DIR", record_folder, 1);
    setenv("MILLRACE_RECORD_FLUSH_MS", "50", 1);
    if (SANITIZED) {
        record_calm("ASAN_OPTIONS", "detect_leaks=0");
        record_calm("TSAN_OPTIONS", "die_after_fork=0");
    }
    for (; environment && *environment; environment++)
        putenv((char *)*environment);
    execvp(command[0], (char *const *)command);
    _exit(98);
}

/* Runs a program; returns waitpid's status and what it printed, in text (of 4096 bytes). */
static int record_program(const char *const *command, const char *const *environment, char *text)
{
    char output[4200];
    int status;
    snprintf(output, sizeof output, "%.4000s/output", record_folder);
    pid_t child = fork();
    if (child == 0)
        record_become(output, command, environment);
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen(output, "r");
    assert_non_null(file);
    text[fread(text, 1, 4095, file)] = 0;
    fclose(file);
    record_forget();
    n_looks = part_look_folder(record_folder, looks, MAX_PARTS);
    return status;
}

/* Runs a mode of this program, which must print nothing. mode: "MODE=NAME". */
static int record_run(const char *mode, const char *trace, const char *const *more)
{
    char text[4096];
    const char *environment[16] = {mode, trace};
    for (int i = 0; more && more[i]; i++)
        environment[2 + i] = more[i];
    int status = record_program((const char *const[]){record_self, NULL}, environment, text);
    if (text[0])
        fail_msg("%s printed: %s", mode, text);
    return status;
}

/* The exit code of the mode that the environment asks for; -1: none. Also finds this program's
 * path. */
static int record_main(const struct record_mode *modes, size_t n)
{
    const char *mode = getenv("MODE");
    ssize_t length = readlink("/proc/self/exe", record_self, sizeof record_self - 1);
    record_self[length > 0 ? length : 0] = 0;
    for (size_t i = 0; mode && i < n; i++)
        if (strcmp(modes[i].name, mode) == 0)
            return modes[i].run();
    return mode ? 99 : -1;
}

static inline const char *text_of(const struct part_look *look, uint32_t id)
{
    return id && id < 65536 && look->text[id] ? look->text[id] : "";
}

/* The last name of a thread; "": none. */
static inline const char *thread_name(const struct part_look *look, uint32_t tid)
{
    const char *name = "";
    for (uint64_t i = 0; i < look->n[MR_PART_THREAD]; i++) {
        struct mr_part_thread thread;
        memcpy(&thread, look->of[MR_PART_THREAD] + i * sizeof thread, sizeof thread);
        if (thread.tid == tid)
            name = text_of(look, thread.name);
    }
    return name;
}

static inline struct mr_part_range range_of(const struct part_look *look, uint64_t i)
{
    struct mr_part_range range;
    memcpy(&range, look->of[MR_PART_RANGE] + i * sizeof range, sizeof range);
    return range;
}

/* How many ranges have this text; the last of them in out. */
static inline uint64_t ranges_named(const struct part_look *look, const char *text,
                                    struct mr_part_range *out)
{
    uint64_t n = 0;
    *out = (struct mr_part_range){0};
    for (uint64_t i = 0; i < look->n[MR_PART_RANGE]; i++) {
        struct mr_part_range range = range_of(look, i);
        if (strcmp(text_of(look, range.text), text) == 0) {
            *out = range;
            n++;
        }
    }
    return n;
}

static inline struct mr_part_os os_of(const struct part_look *look, uint64_t i)
{
    struct mr_part_os os;
    memcpy(&os, look->of[MR_PART_OS] + i * sizeof os, sizeof os);
    return os;
}

/* How many calls of this name; the longest of them in out. */
static inline uint64_t calls_named(const struct part_look *look, const char *name,
                                   struct mr_part_os *out)
{
    uint64_t n = 0;
    *out = (struct mr_part_os){0};
    for (uint64_t i = 0; i < look->n[MR_PART_OS]; i++) {
        struct mr_part_os os = os_of(look, i);
        if (strcmp(text_of(look, os.name), name) != 0)
            continue;
        n++;
        if (os.end_ns - os.start_ns >= out->end_ns - out->start_ns)
            *out = os;
    }
    return n;
}

#endif
