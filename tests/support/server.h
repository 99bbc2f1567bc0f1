/* A server in Python for tests of remote reading: started with a folder of files, stopped by
 * closing its standard input. */
#ifndef MR_TEST_SERVER_H
#define MR_TEST_SERVER_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct server {
    pid_t pid;
    int in;
    int port;
};

/* Starts `python3 script root` and waits for its "PORT n". false: it cannot run here. */
static inline bool server_start(struct server *s, const char *python, const char *script,
                                const char *root)
{
    int in[2], out[2];
    if (pipe(in) || pipe(out))
        return false;
    fflush(NULL);
    s->pid = fork();
    if (s->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execlp(python, python, script, root, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    s->in = in[1];
    s->port = 0;
    FILE *f = fdopen(out[0], "r");
    char line[64];
    if (f && fgets(line, sizeof line, f))
        sscanf(line, "PORT %d", &s->port);
    if (f)
        fclose(f);
    return s->pid > 0 && s->port > 0;
}

static inline void server_stop(struct server *s)
{
    close(s->in);
    if (s->pid > 0)
        waitpid(s->pid, NULL, 0);
}

#endif
