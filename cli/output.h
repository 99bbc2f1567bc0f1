/*
 * The files that a run writes, and the one rule for what they may replace.
 *
 * A run never replaces or removes a file that it reads, by whatever name, not with --force either.
 * Without --force it replaces only what it recognises as an earlier output of the same kind (and,
 * for such kinds, an empty file); files of kinds that are not recognised need --force. What is
 * refused is refused before the run, with exit status 1.
 *
 * A command names its outputs first (cli_output_claim), then what it reads (cli_input_...); either
 * order finds what is both.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <millrace/millrace.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

enum cli_kind {
    CLI_DATA,      /* a data set's file, or another that is not recognised */
    CLI_PICTURE,   /* the same; a device or a pipe is written in place */
    CLI_RECORDING, /* the same; the option is called --force-overwrite */
    CLI_STATE,
    CLI_TRACE,
    CLI_QUARANTINE,
    CLI_CHECKPOINT,
    CLI_LOG, /* grows in its place */
    CLI_PREDICTIONS,
    CLI_CHART,
    CLI_MAN_PAGE,
    CLI_TUNED,
    CLI_RANK,
    CLI_METRICS,
};

enum cli_whose { CLI_FOREIGN, CLI_EMPTY, CLI_OURS };

#define CLI_HEAD_BYTES 8192 /* of a file, by which it is recognised */
#define CLI_CHART_MARK "Generator: millrace"

/* kinds.c. path: a regular file. Of kinds that are not recognised all files are foreign. */
enum cli_whose cli_kind_of(enum cli_kind kind, const char *path);
const char *cli_kind_name(enum cli_kind kind); /* "checkpoint" */
bool cli_kind_recognised(enum cli_kind kind);

#define CLI_NO_FORCE (-1) /* for force, below: the command has no such option */

/* May this run write to path? Prints why not; returns an exit code, as all here. force: 0, 1 or
 * CLI_NO_FORCE. NULL is allowed. */
int cli_output_check(const char *path, enum cli_kind kind, int force);
/* The same, for before the run; two outputs of one run must not be the same file. Once for each
 * output. */
int cli_output_claim(const char *path, enum cli_kind kind, int force);
/* Removes an earlier output that this run replaces by nothing; foreign files only by force. */
int cli_output_remove(const char *path, enum cli_kind kind, int force);

/* inputs.c: what this run reads. Prints an error where that is an output, too. */
int cli_input_add(const char *path); /* NULL is allowed */
int cli_input_text(
    const char
        *text); /* every file that the text of a data set or a sampler names; NULL is allowed */
int cli_input_dataset(const char *uri, const struct mr_dataset *ds); /* NULL: none */
bool cli_input_is(const struct stat *file);
int cli_input_claim(const char *path,
                    const struct stat *file); /* an existing file is going to be replaced */

/*
 * A file that appears whole or not at all: written under a temporary name beside its place and
 * renamed by commit. Functions print errors and return an exit code.
 */
struct cli_output {
    char *path;
    struct mr_output *whole;
    bool replace;
    FILE *file;
    void *gz; /* gzFile */
};
int cli_output_open(struct cli_output *out, const char *path, enum cli_kind kind, int force);
int cli_output_open_gz(struct cli_output *out, const char *path, enum cli_kind kind,
                       int force); /* compressed */
int cli_output_write(struct cli_output *out, const void *data, size_t bytes);
int cli_output_finish(
    struct cli_output *out); /* everything is on its way to the disk; the rename remains */
int cli_output_commit(struct cli_output *out); /* finish, if not done, and rename; or abort */
void cli_output_abort(struct cli_output *out); /* removes what was not committed; always safe */

/* lock.c */
/* Locks a descriptor, and waits up to wait_ms for who holds it. shared: with others that share it.
 * Returns 0, EWOULDBLOCK: held;
 * another errno: cannot be locked. */
int cli_lock_take(int fd, bool shared, int wait_ms);
/* One run alone writes FILE: FILE.lock says which. It is removed at the end; that of a killed run
 * is taken over. */
struct cli_lock {
    int fd;
    char *path;
};
#define CLI_LOCK_NONE                                                                              \
    {                                                                                              \
        .fd = -1                                                                                   \
    }
int cli_lock_file(struct cli_lock *lock,
                  const char *path); /* prints who holds it; CLI_OK where files cannot be locked */
void cli_lock_release(struct cli_lock *lock); /* always safe */

#endif
