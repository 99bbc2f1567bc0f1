/* Finds the command, parses its options, runs it. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct cli_command *const commands[] = {
#define X(name) &cli_##name,
    CLI_COMMANDS(X)
#undef X
};

const char *const cli_log_levels[] = {"debug", "info", "warning", "none", NULL};

struct cli_common cli;
static const char *running = ""; /* the command, for messages */
static char first_error[1024];   /* what failed: "": nothing did */
static bool json_printed;
static _Atomic int interrupted; /* lock-free: set in a signal handler, read by other threads */

const struct cli_command *cli_command_at(int i)
{
    return i >= 0 && (size_t)i < CLI_COUNT(commands) ? commands[i] : NULL;
}

const struct cli_command *cli_find(const char *name)
{
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

/* Names may be two words: "bench loader". Returns the command that the arguments begin with, and
 * how many words that took. */
static const struct cli_command *find_words(int argc, char **argv, int *used)
{
    char words[64];
    for (*used = argc > 1 ? 2 : 1; *used > 0; --*used) {
        snprintf(words, sizeof words, "%s%s%s", argv[0], *used > 1 ? " " : "",
                 *used > 1 ? argv[1] : "");
        const struct cli_command *command = cli_find(words);
        if (command)
            return command;
    }
    return NULL;
}

static void message(const char *kind, const char *fmt, va_list args)
{
    char *text = NULL;
    if (!kind[0] && !first_error[0]) {
        va_list again;
        va_copy(again, args);
        vsnprintf(first_error, sizeof first_error, fmt, again);
        va_end(again);
    }
    fflush(stdout);
    fprintf(stderr, "millrace%s%s: %s", running[0] ? " " : "", running, kind);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    fprintf(stderr, "%s\n", text ? mr_text_printable(text) : "out of memory");
    free(text);
}

int cli_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message("", fmt, args);
    va_end(args);
    return CLI_FAILED;
}

int cli_misuse(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message("", fmt, args);
    va_end(args);
    return CLI_MISUSED;
}

int cli_error(int rc)
{
    const char *text = mr_last_error();
    cli_fail("%s", text[0] ? text : mr_strerror(rc));
    return rc == MR_EOPTION ? CLI_MISUSED : rc == MR_EPEER ? CLI_PEER : CLI_FAILED;
}

const char *cli_first_error(void)
{
    return first_error;
}

void cli_warn(const char *fmt, ...)
{
    va_list args;
    if (cli.quiet || cli.log_level > CLI_LOG_WARNING)
        return;
    va_start(args, fmt);
    message("warning: ", fmt, args);
    va_end(args);
}

void cli_say(const char *fmt, ...)
{
    va_list args;
    if (cli.quiet)
        return;
    va_start(args, fmt);
    message("", fmt, args);
    va_end(args);
}

static void take_log(void *user, enum mr_log_level level, const char *text)
{
    char *copy = !cli.quiet && (int)level >= cli.log_level ? strdup(text) : NULL;
    (void)user;
    if (copy)
        fprintf(stderr, "millrace %s: %s: %s\n", running, cli_log_levels[level],
                mr_text_printable(copy));
    free(copy);
}

static uint64_t interrupted_ns;

/* The first request is noted; one that comes later than what sends signals twice in a row (timeout,
 * a terminal and its shell) ends the program. */
#define AGAIN_NS 300000000ull
static void take_signal(int number)
{
    static const char text[] = "millrace: interrupted: finishing cleanly; interrupt again to "
                               "stop at once\n";
    uint64_t now = mr_time_ns();
    if (interrupted && now - interrupted_ns > AGAIN_NS) {
        signal(number, SIG_DFL);
        raise(number);
    }
    if (!interrupted && !cli.quiet && write(STDERR_FILENO, text, sizeof text - 1) < 0)
        return;
    interrupted_ns = interrupted ? interrupted_ns : now;
    interrupted = 1;
    mr_interrupt(1); /* a data set that is being opened */
}

void cli_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = take_signal}, before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 &&
        before.sa_handler != SIG_IGN) /* nohup has it ignored */
        sigaction(SIGHUP, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

struct mr_json *cli_json_begin(const char *command)
{
    struct mr_json *json = mr_json_create(2);
    if (!json) {
        cli_error(-ENOMEM);
        return NULL;
    }
    mr_json_object(json, NULL);
    mr_json_string(json, "command", command);
    mr_json_string(json, "version", mr_version());
    return json;
}

static int end_object(struct mr_json *json)
{
    const char *text;
    mr_json_object_end(json);
    int64_t bytes = mr_json_finish(json, &text);
    int code = bytes < 0 ? cli_error((int)bytes) : CLI_OK;
    if (code == CLI_OK)
        fprintf(cli_results(), "%s\n", text);
    json_printed = json_printed || code == CLI_OK;
    mr_json_destroy(json);
    return code;
}

int cli_json_end(struct mr_json *json)
{
    if (first_error[0]) /* what there is of a result comes with what failed */
        mr_json_string(json, "error", first_error);
    return end_object(json);
}

int cli_json_end_config(struct mr_json *json, const struct mr_option *table, const void *values)
{
    mr_json_object(json, "config");
    const struct mr_option *all = cli_options(table); /* made when they were parsed */
    if (all)
        mr_options_json(all, values, json);
    mr_json_object_end(json);
    return cli_json_end(json);
}

static bool asks_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Who asked for JSON finds an object on standard output even when there is no result; the message
 * went to standard error. */
static void print_json_error(int code)
{
    struct mr_json *json = cli_json_begin(running);
    if (!json)
        return;
    mr_json_string(json, "error", first_error);
    mr_json_int(json, "exit_status", code);
    end_object(json);
}

/* "usage: millrace bench loader|transfer [options]" */
static void print_family_usage(FILE *out, const char *first)
{
    size_t n = strlen(first);
    const char *between = " ";
    fprintf(out, "usage: millrace %s", first);
    for (size_t i = 0; i < CLI_COUNT(commands); i++) {
        const char *name = commands[i]->name;
        if (!commands[i]->summary || strncmp(name, first, n) != 0 || name[n] != ' ')
            continue;
        fprintf(out, "%s%s", between, name + n + 1);
        between = "|";
    }
    fputs(" [options]\n\n", out);
}

/* Lists the commands whose first of two words this is, if wanted with a line on their use; false
 * when there are none. */
static bool list_family(FILE *out, const char *first, bool usage)
{
    size_t n = strlen(first);
    bool any = false;
    for (size_t i = 0; i < CLI_COUNT(commands); i++) {
        const char *name = commands[i]->name;
        if (!commands[i]->summary || strncmp(name, first, n) != 0 || name[n] != ' ')
            continue;
        if (!any && usage)
            print_family_usage(out, first);
        fprintf(out, "%s  millrace %-16s %s\n", any ? "" : "Commands:\n", name,
                commands[i]->summary);
        any = true;
    }
    return any;
}

/* Is it the first word of commands of two? */
static bool is_family(const char *first)
{
    size_t n = strlen(first);
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        if (commands[i]->summary && strncmp(commands[i]->name, first, n) == 0 &&
            commands[i]->name[n] == ' ')
            return true;
    return false;
}

/* The first word is no command: it may be the first of two, of which the second is missing, wrong,
 * or asks for help. */
static int no_such_command(int argc, char **argv)
{
    const char *names[CLI_COUNT(commands) + 2], *second = argc > 1 ? argv[1] : "";
    char words[64];
    size_t n = 0;
    for (size_t i = 0; i < CLI_COUNT(commands); i++)
        if (commands[i]->summary)
            names[n++] = commands[i]->name;
    names[n++] = "help";
    names[n] = NULL;
    if ((strcmp(second, "--help") == 0 || strcmp(second, "-h") == 0) &&
        list_family(stdout, argv[0], true))
        return CLI_OK;
    bool two = second[0] && second[0] != '-';
    snprintf(words, sizeof words, "%s%s%s", argv[0], two ? " " : "", two ? second : "");
    const char *nearest = mr_nearest(argv[0], names);
    if (!nearest && two)
        nearest = mr_nearest(words, names);
    if (nearest)
        return cli_misuse("%s: no such command; did you mean %s?",
                          strchr(nearest, ' ') ? words : argv[0], nearest);
    if (!is_family(argv[0]))
        return cli_misuse("%s: no such command; millrace --help lists them", argv[0]);
    int code = two ? cli_misuse("%s: no such command", words)
                   : cli_misuse("%s: expected one of its commands", argv[0]);
    list_family(stderr, argv[0], false);
    return code;
}

static int help(int argc, char **argv)
{
    if (argc == 0) {
        cli_help_all(stdout);
        return CLI_OK;
    }
    int used;
    const struct cli_command *command = find_words(argc, argv, &used);
    if (!command && argc == 1 && list_family(stdout, argv[0], true))
        return CLI_OK;
    if (!command)
        return no_such_command(argc, argv);
    cli_help(stdout, command);
    return CLI_OK;
}

/* How many of the arguments are for us: those before "--" when the command needs what follows it
 * untouched. */
static int own_args(const struct cli_command *command, int argc, char **argv)
{
    for (int i = 0; command->raw_args && i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i;
    return argc;
}

static int run_with(const struct cli_command *command, void *options, int argc, char **argv)
{
    int own = own_args(command, argc, argv);
    int n = mr_options_parse_args(cli_options(command->options), options, own, argv);
    cli = *(struct cli_common *)options;
    if (n < 0)
        return cli_error(n);
    if (cli.help) {
        cli_help(stdout, command);
        return CLI_OK;
    }
    for (int i = own; i < argc; i++)
        argv[n++] = argv[i];
    if (n < command->min_args)
        return cli_misuse("an argument is missing: millrace %s %s", command->name,
                          command->synopsis);
    if (command->max_args >= 0 && n > command->max_args)
        return cli_misuse("%s: one argument too many: millrace %s %s", argv[command->max_args],
                          command->name, command->synopsis);
    if (cli_takes_dataset(command) || strncmp(command->name, "bench ", 6) == 0)
        cli_catch_interrupts();
    return command->run(options, n, argv);
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    void *options = calloc(1, command->options_bytes);
    running = command->name;
    if (!options)
        return cli_fail("out of memory");
    int rc = cli_options_init(command->options, options);
    int code = rc ? cli_error(rc) : run_with(command, options, argc, argv);
    if (rc == 0)
        mr_options_free(cli_options(command->options), options);
    free(options);
    return code;
}

/* Whoever reads our output may stop, as head does: then the command ends as others do, quietly and
 * by the signal, also where it was started with the signal ignored. Not where a program of the
 * user's inherits what is set here. */
static void end_with_reader(const struct cli_command *command)
{
    if (!command || strcmp(command->name, "profile") != 0)
        signal(SIGPIPE, SIG_DFL);
}

static uint64_t began_ns;

uint64_t cli_began_ns(void)
{
    return began_ns;
}

int main(int argc, char **argv)
{
    int code;
    began_ns = mr_time_ns();
    mr_log_set(take_log, NULL);
    cli_help_prepare();
    signal(SIGXFSZ, SIG_IGN); /* a file at its size limit is an error of its write */
    if (argc < 2) {
        cli_help_all(stderr);
        return CLI_MISUSED;
    }
    bool json = asks_for_json(argc, argv);
    int used;
    const struct cli_command *command = find_words(argc - 1, argv + 1, &used);
    end_with_reader(command);
    if (command)
        code = run(command, argc - 1 - used, argv + 1 + used);
    else if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
             strcmp(argv[1], "-h") == 0)
        code = help(argc - 2, argv + 2);
    else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
        code = printf("millrace %s\n", mr_version()) < 0 ? CLI_FAILED : CLI_OK;
    else if (argv[1][0] == '-')
        code = cli_misuse("%s: no such option; millrace --help lists the commands", argv[1]);
    else
        code = no_such_command(argc - 1, argv + 1);
    if (json && code != CLI_OK && !json_printed)
        print_json_error(code);
    if (cli_results_flush() != 0 && code == CLI_OK)
        code = cli_fail("standard output: %s", strerror(errno));
    if (command && command->joins_ranks && code != CLI_OK)
        cli_refuse_ranks(code, argc, argv);
    return code;
}
