/*
 * The program's shell: what commands are made of and the helpers they share. Commands use public
 * headers only.
 *
 * A new command is one file cli/NAME/cmd_NAME.c with a const struct cli_command, and one line in
 * CLI_COMMANDS below. Its options struct begins with struct cli_common, and its option table ends
 * with CLI_COMMON_OPTIONS, {NULL}.
 */
#ifndef CLI_H
#define CLI_H

#include <millrace/millrace.h>
#include <stdbool.h>
#include <stdio.h>

/* All commands, in the order of --help. */
#define CLI_COMMANDS(X)                                                                            \
    X(feed)                                                                                        \
    X(train)                                                                                       \
    X(predict)                                                                                     \
    X(inspect)                                                                                     \
    X(tune)                                                                                        \
    X(pack)                                                                                        \
    X(synth)                                                                                       \
    X(plan)                                                                                        \
    X(bench_loader)                                                                                \
    X(bench_transfer)                                                                              \
    X(bench_streams)                                                                               \
    X(bench_layout)                                                                                \
    X(bench_devices)                                                                               \
    X(bench_workers)                                                                               \
    X(bench_disk)                                                                                  \
    X(bench_hostmem)                                                                               \
    X(bench_processes)                                                                             \
    X(bench_comm)                                                                                  \
    X(bench_surface)                                                                               \
    X(bench_optimizers)                                                                            \
    X(bench_batch_size)                                                                            \
    X(bench_story)                                                                                 \
    X(bench_split)                                                                                 \
    X(profile)                                                                                     \
    X(report)                                                                                      \
    X(analyze)                                                                                     \
    X(timeline)                                                                                    \
    X(doctor)                                                                                      \
    X(man)

#define CLI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { CLI_OK, CLI_FAILED, CLI_MISUSED, CLI_PEER = 4 }; /* the last: another rank is missing */

/* Options that every command has. */
struct cli_common {
    int json, help, quiet, progress, log_level;
};

enum { CLI_LOG_DEBUG, CLI_LOG_INFO, CLI_LOG_WARNING, CLI_LOG_NONE };
extern const char *const cli_log_levels[];

#define CLI_COMMON_OPTION(name, key, type, member, initial, ...)                                   \
    {                                                                                              \
        name, key, type, offsetof(struct cli_common, member), initial, .group = "Common options",  \
                                                                       __VA_ARGS__                 \
    }
#define CLI_COMMON_OPTIONS                                                                         \
    CLI_COMMON_OPTION("json", 0, MR_OPT_FLAG, json, NULL,                                          \
                      .help = "Print one JSON object instead of text; on failure its member "      \
                              "error says what failed"),                                           \
        CLI_COMMON_OPTION("quiet", 'q', MR_OPT_FLAG, quiet, NULL,                                  \
                          .help = "No progress bar, no warnings"),                                 \
        CLI_COMMON_OPTION("progress", 0, MR_OPT_FLAG, progress, "1",                               \
                          .help = "Show a progress bar if standard error is a terminal"),          \
        CLI_COMMON_OPTION("log-level", 0, MR_OPT_ENUM, log_level, "warning",                       \
                          .choices = cli_log_levels,                                               \
                          .help = "Lowest level of messages to print on standard error"),          \
        CLI_COMMON_OPTION("help", 'h', MR_OPT_FLAG, help, NULL, .help = "Print this help")

/*
 * options.c: rows of the loader's table (mr_loader_options()) in a command's, whose struct has a
 * struct mr_loader_opts. CLI_LOADER_OPTION takes one by its name; key, initial, max, help and group
 * replace the loader's. CLI_LOADER_REST takes all that the table does not name, but those in
 * .choices: an option that the loader gains is then one of the command, too.
 */
#define CLI_LOADER 1000 /* as a type: a row to be filled in */
#define CLI_REST   "*"
#define CLI_LOADER_OPTION(of, member, option, ...)                                                 \
    {                                                                                              \
        .name = option, .type = (enum mr_option_type)CLI_LOADER, .offset = offsetof(of, member),   \
        __VA_ARGS__                                                                                \
    }
#define CLI_LOADER_REST(of, member, ...) CLI_LOADER_OPTION(of, member, CLI_REST, __VA_ARGS__)

/* The table with these rows filled in; it stays. NULL without memory (mr_last_error()). */
const struct mr_option *cli_options(const struct mr_option *table);
/* Sets all options to their defaults, of the loader also those without a row. Free the strings with
 * mr_options_free(cli_options(table), values). Returns 0 or the library's error. */
int cli_options_init(const struct mr_option *table, void *values);

/* A member of the object that --json prints, or an example: what and what it means. Lists end with
 * {NULL}. */
struct cli_note {
    const char *what, *text;
};

struct cli_command {
    const char *name;
    const char *summary;  /* one line without full stop; NULL: hidden */
    const char *synopsis; /* after "millrace NAME": "DATASET [options]" */
    /* Paragraphs with an empty line between them. Those that begin with a blank are not wrapped. */
    const char *text;
    const struct mr_option *options;
    size_t options_bytes;   /* of the struct that the table fills */
    int min_args, max_args; /* besides options; max -1: any number */
    bool raw_args;          /* "--" and what follows it is left in args */
    bool joins_ranks;       /* the ranks that a launcher started wait for one another */
    const struct cli_note *json, *examples;
    int (*run)(void *options, int n_args, char **args); /* returns an exit code, CLI_OK.. */
};

#define X(name) extern const struct cli_command cli_##name;
CLI_COMMANDS(X)
#undef X

/* The running command's common options; zeroes before they are parsed. */
extern struct cli_common cli;

/* Errors, to standard error as "millrace feed: text". */
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* returns CLI_FAILED */
int cli_misuse(const char *fmt, ...)
    __attribute__((format(printf, 1, 2))); /* returns CLI_MISUSED */
/* The library's last error; CLI_MISUSED for MR_EOPTION, CLI_PEER for MR_EPEER, else CLI_FAILED. */
int cli_error(int rc);
const char *cli_first_error(void); /* what was printed first; "": nothing */
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What the command decided by itself, as "millrace feed: text"; not with --quiet. */
void cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Which process of how many this is: by --rank and --world, each "auto" or a number, else by the
 * launcher, which is then said. Returns 0 or a negative error; rank may be beyond world. */
int cli_place(const char *rank_text, const char *world_text, uint32_t *out_rank,
              uint32_t *out_world);
/* Whether the launcher's ranks can use MPI: those of torchrun, or of RANK and WORLD_SIZE alone,
 * cannot. */
struct mr_place;
bool cli_starts_mpi(const struct mr_place *place);
/* After an error, before this process joined the other ranks: tells them why, since mpiexec and
 * srun let them wait. Does nothing if it is alone, or joined. Exits with the code if the others do
 * not come. */
void cli_refuse_ranks(int code, int argc, char **argv);
/* --affinity: an order by blocks with the blocks of each machine, or of each rank, apart. [out]
 * out: the sampler's text, malloc'd; NULL: as it was given. */
enum { CLI_AFFINITY_NONE, CLI_AFFINITY_NODE, CLI_AFFINITY_RANK };
extern const char *const cli_affinities[];
int cli_affinity(int affinity, const char *sampler, uint32_t rank, uint32_t world, char **out);
/* mr_text_printable() of a copy, cut to fit: names come from foreign files. Returns buf. */
#define CLI_CLEAN 256
char *cli_clean(const char *text, char buf[CLI_CLEAN]);

/*
 * Makes the first SIGINT, SIGTERM or SIGHUP set a flag, so that a command can tidy up, and ends
 * what the library is opening (MR_ECANCELLED); the second one kills. Commands that take a data set
 * and experiments run with it from the start; others may call it.
 */
void cli_catch_interrupts(void);
bool cli_interrupted(void);

uint64_t cli_began_ns(void); /* mr_time_ns() when main() began */

/* JSON on standard output. begin: an open object with "command" and "version", NULL after an error
 * message. end: closes it, prints it, frees it; returns an exit code. */
struct mr_json *cli_json_begin(const char *command);
int cli_json_end(struct mr_json *json);
/* The same, with every option as it stands as its last member, config. */
int cli_json_end_config(struct mr_json *json, const struct mr_option *table, const void *values);

/*
 * Results go to standard output. Libraries print there, too: MPICH's UCX logs its warnings to it,
 * also when MPI ends. apart: with --json, what is printed to stdout from here on goes to standard
 * error, and the object to standard output. Call it before such a library is opened.
 */
FILE *cli_results(void);
/* The line length of tables there, for mr_table_write_text(): names are cut on terminals only. */
uint32_t cli_columns(void);
void cli_results_apart(void);
int cli_results_drop(void);  /* another process prints them. Returns 0 or an error */
int cli_results_flush(void); /* returns whether some could not be written */

/* Help and man pages. */
#define CLI_OPTIMIZER_HELP 512
extern char cli_optimizer_help[]; /* of an option: the library's optimizers */
void cli_help_prepare(void);      /* fills it in, once, before any help is written */
extern const char cli_dataset_text
    []; /* a paragraph behind the text of each command whose synopsis has a DATASET */
bool cli_takes_dataset(const struct cli_command *command);
void cli_help(FILE *out, const struct cli_command *command);
void cli_help_all(FILE *out);
const struct cli_command *cli_find(const char *name);         /* NULL: none */
const struct cli_command *cli_command_at(int i);              /* NULL: past the last */
void cli_paragraphs(FILE *out, const char *text, int indent); /* wrapped at 100 columns */

/* Numbers for people. buf: CLI_HUMAN bytes; each returns it. */
#define CLI_HUMAN MR_TEXT_NUMBER
const char *cli_bytes(uint64_t bytes, char *buf);    /* "1.50 GiB" */
const char *cli_rate(double bytes_per_s, char *buf); /* "12.3 GB/s" */
const char *cli_count(double n, char *buf);          /* "60,000", "1.25 M" from ten million on */
const char *cli_time(uint64_t ns, char *buf);        /* "2.35 ms" */
/* "2.35 ms", "1.274e+20" where that is shorter, "nan", "inf": digits behind the point, then the
 * unit. */
const char *cli_fixed(double v, int digits, const char *unit, char *buf);
const char *cli_s(uint64_t n); /* "s" of a plural, "" after one */

bool cli_ends_in(const char *text,
                 const char *end); /* with something before it, as a file's name with its ending */

/*
 * Text tables. Column heads that begin with '>' mark columns of numbers, aligned to the right. Rows
 * are printf texts with a tab between cells; in columns of numbers, long ones are shortened as by
 * cli_fixed(). Memory that runs out loses rows, which print reports.
 */
struct cli_table;
struct cli_table *
cli_table_create(const char *heads); /* "stage\t>busy\t>share"; NULL: no heads line */
void cli_table_row(struct cli_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int cli_table_print(struct cli_table *table, FILE *out,
                    int indent);                        /* and frees it; returns an exit code */
int cli_table_html(struct cli_table *table, FILE *out); /* the same, for a page */

/* A progress bar on standard error: only on a terminal, cleared at the end. Cheap to update. One at
 * a time. */
struct cli_progress {
    const char *label, *unit; /* "B": bytes */
    uint64_t total, done;     /* total 0: unknown */
    uint64_t start_ns, next_ns;
    bool shown, active;
};
void cli_progress_begin(struct cli_progress *p, const char *label, uint64_t total,
                        const char *unit);
void cli_progress_update(struct cli_progress *p, uint64_t done);
void cli_progress_end(struct cli_progress *p);

#include "output.h"

#endif
