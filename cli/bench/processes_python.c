/* Asks processes.py, which runs as a child. */
#include "bench/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The script: made from processes.py when the program is built. */
extern const unsigned char bench_processes_py[];
extern const unsigned long bench_processes_py_bytes;

struct launch {
    char *name, *script;
    int end, other; /* its end of the pair, its parent's */
};

static int launch(void *user)
{
    const struct launch *l = user;
    static char isolated[] = "-I", quiet[] = "-Wignore", option[] = "-c";
    char *args[] = {l->name, isolated, quiet, option, l->script, NULL};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    close(l->other);
    if (null < 0 || dup2(l->end, STDIN_FILENO) < 0 || dup2(l->end, STDOUT_FILENO) < 0 ||
        dup2(null, STDERR_FILENO) < 0)
        return 127;
    execvp(l->name, args);
    return 127;
}

/* Waits as long as it takes, but for an interrupt. */
static int read_line(const struct processes_python *python, char *line, size_t space)
{
    struct pollfd from = {python->fd, POLLIN, 0};
    for (size_t used = 0; used + 1 < space;) {
        if (cli_interrupted())
            return mr_error_set(MR_ECANCELLED, "interrupted");
        if (poll(&from, 1, 100) <= 0)
            continue;
        if (processes_read(python->fd, line + used, 1) < 0)
            return mr_error_set(MR_EUNSUPPORTED, "%s ended, or could not be run", python->name);
        if (line[used] == '\n') {
            line[used] = 0;
            return 0;
        }
        used++;
    }
    return mr_error_set(MR_EUNSUPPORTED, "%s answered with a line of more than %zu bytes",
                        python->name, space);
}

static int start(const char *name, struct processes_python *python)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return mr_error_set(-errno, "socketpair: %s", strerror(errno));
    char *script = calloc(1, bench_processes_py_bytes + 1); /* it has no end of its own */
    char *program = strdup(name);
    pid_t pid = -ENOMEM;
    if (script)
        memcpy(script, bench_processes_py, bench_processes_py_bytes);
    if (script && program)
        pid = processes_fork(launch, &(struct launch){program, script, pair[1], pair[0]});
    free(script);
    free(program);
    close(pair[1]);
    if (pid > 0) {
        python->pid = pid;
        python->fd = pair[0];
        return 0;
    }
    close(pair[0]);
    return mr_error_set((int)pid, "fork: %s", strerror((int)-pid));
}

/* Without Python its rows are missing, and python->why_not says why. */
int processes_python_open(const struct processes_opts *opts, struct processes_python *python)
{
    *python = (struct processes_python){.name = opts->python, .fd = -1};
    if (strcmp(opts->python, "none") == 0)
        return 0;
    int rc = start(opts->python, python);
    if (rc == 0)
        rc = read_line(python, python->version, sizeof python->version);
    if (rc == 0 && strncmp(python->version, "Python ", 7) != 0)
        rc = mr_error_set(MR_EUNSUPPORTED, "%s is no Python: it answered '%s'", python->name,
                          python->version);
    if (rc == 0 || rc == MR_ECANCELLED)
        return rc;
    snprintf(python->why_not, sizeof python->why_not, "%s", mr_last_error());
    processes_python_close(python);
    return 0;
}

void processes_python_close(struct processes_python *python)
{
    processes_end(python->pid, &python->fd);
    python->pid = 0;
}

int processes_python_ask(struct processes_python *python, struct processes_result *out,
                         const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    line[n] = '\n';
    int rc = processes_write(python->fd, line, (uint64_t)n + 1);
    if (rc < 0)
        return mr_error_set(MR_EUNSUPPORTED, "%s has ended: %s", python->name, strerror(-rc));
    rc = read_line(python, line, sizeof line);
    if (rc < 0)
        return rc;
    double v[5];
    char *at = line, *end = line;
    for (int i = 0; i < 5; i++, at = end) {
        v[i] = strtod(at, &end);
        if (end == at)
            return mr_error_set(MR_EUNSUPPORTED, "%s: %s", python->version, line);
    }
    *out = (struct processes_result){v[0], v[1], v[2], (uint64_t)v[3], (uint64_t)v[4]};
    return 0;
}
