/* The files of a run. --log: a row an epoch, and every so many steps; --plot: curves. */
#include "plot.h"
#include "train/train.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct log {
    FILE *file;
    bool json, failed;
    struct mr_train_sums sums; /* of the epoch, at the last row */
};

static const char heads[] =
    "kind,epoch,step,loss,accuracy,test_loss,test_accuracy,seconds,lr,samples_per_s,data_wait\n";

/* The step of a row; 0: it is none. */
static uint64_t row_step(const char *line)
{
    unsigned long long step = 0;
    const char *at = strstr(line, "\"step\"");
    bool found = at ? sscanf(at, "\"step\" : %llu", &step) == 1
                    : sscanf(line, "%*[a-z],%*u,%llu", &step) == 1;
    return found ? step : 0;
}

static bool is_object(const char *line)
{
    cJSON *row = cJSON_ParseWithOpts(line, NULL, true);
    bool yes = cJSON_IsObject(row);
    cJSON_Delete(row);
    return yes;
}

/* As many columns as the head, the last a number or empty. */
static bool has_columns(const char *line)
{
    int n = 0;
    char *end;
    for (const char *head = heads; *head; head++)
        n += *head == ',';
    for (; n > 0 && (line = strchr(line, ',')); n--)
        line++;
    if (!line)
        return false;
    strtod(line, &end);
    return !*end;
}

/* A last row without its newline may be whole: an editor, or a kill, took that byte alone. */
static bool is_whole(const char *line, size_t n, bool json)
{
    if (n > 0 && line[n - 1] == '\n')
        return true;
    return strlen(line) == n && (json ? is_object(line) : has_columns(line));
}

/* Where the rows that stay end, and whether a newline is missing there. after: the step that rows
 * are dropped behind. all: none is. Those of an earlier run may stand before rows that stay; a line
 * without a step goes with those before it. */
static int find_end(FILE *file, const struct log *log, bool all, uint64_t after, off_t *keep,
                    bool *open)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    off_t at = 0;
    bool goes = false;
    while ((n = getline(&line, &room, file)) > 0) {
        uint64_t step = row_step(line);
        at += n;
        goes =
            !all && (step > after || !is_whole(line, (size_t)n, log->json) || (step == 0 && goes));
        *keep = goes ? *keep : at;
        *open = goes ? *open : line[n - 1] != '\n';
    }
    int errnum = errno;
    free(line);
    errno = errnum;
    return feof(file) && !ferror(file) ? 0 : -1; /* without memory it is neither */
}

/* A killed run has written rows of steps that the checkpoint does not have, and perhaps half a row:
 * they come again. Where no checkpoint is gone on from, all rows stay. Leaves the file at its end.
 * Returns 0 or -1 (errno). */
static int go_on(FILE *file, const struct log *log, const struct train *t)
{
    struct stat st;
    off_t keep = 0;
    bool open = false, all = !t->saved; /* now, before the first step: no checkpoint was read */
    if (fstat(fileno(file), &st) != 0)
        return -1;
    if (!S_ISREG(st.st_mode)) /* a pipe: nothing to read */
        return 0;
    if (find_end(file, log, all, t->info.step, &keep, &open) != 0 ||
        fseeko(file, keep, SEEK_SET) != 0)
        return -1;
    if (!all && ftruncate(fileno(file), keep) != 0)
        return -1;
    return open && fputc('\n', file) == EOF ? -1 : 0;
}

static FILE *open_file(const char *path, const struct log *log, const struct train *t)
{
    FILE *file = t->opts->resume ? fopen(path, "r+") : NULL;
    if (!file && (!t->opts->resume || errno == ENOENT))
        return fopen(path, "w");
    if (file && go_on(file, log, t) != 0) {
        int errnum = errno;
        fclose(file);
        errno = errnum;
        return NULL;
    }
    return file;
}

/* A log grows in its place, so that its links are followed: the lock is beside the file itself. */
static int lock_log(struct train_files *claims, const char *path)
{
    char *real = realpath(path, NULL);
    int code = cli_lock_file(&claims->log, real ? real : path);
    free(real);
    return code;
}

int train_files_claim(struct train_files *claims, const struct train_opts *o)
{
    int code = plot_check_name(o->plot);
    *claims = (struct train_files){CLI_LOCK_NONE, CLI_LOCK_NONE};
    if (code == CLI_OK && o->log && !cli_ends_in(o->log, ".csv") && !cli_ends_in(o->log, ".jsonl"))
        code = cli_misuse("--log %s: expected a name that ends in .csv or .jsonl", o->log);
    if (code == CLI_OK)
        code = cli_output_claim(o->checkpoint, CLI_CHECKPOINT, o->force || o->resume);
    if (code == CLI_OK)
        code = cli_output_claim(o->log, CLI_LOG, o->force);
    if (code == CLI_OK)
        code = cli_output_claim(o->plot, CLI_CHART, o->force);
    if (code == CLI_OK && o->checkpoint)
        code = cli_lock_file(&claims->checkpoint, o->checkpoint);
    return code == CLI_OK && o->log ? lock_log(claims, o->log) : code;
}

void train_files_release(struct train_files *claims)
{
    cli_lock_release(&claims->checkpoint);
    cli_lock_release(&claims->log);
}

int train_log_open(struct train *t)
{
    const char *path = t->opts->log;
    if (!path)
        return CLI_OK;
    struct log *log = calloc(1, sizeof *log);
    if (!log)
        return cli_fail("out of memory");
    log->json = cli_ends_in(path, ".jsonl");
    log->file = open_file(path, log, t);
    if (!log->file) {
        int errnum = errno;
        free(log);
        return cli_fail("%s: cannot be made: %s", path, strerror(errnum));
    }
    t->log = log;
    log->sums.size = sizeof log->sums;
    /* A resumed epoch's so far: rows begin behind them. */
    int rc = mr_trainer_sums(t->trainer, &log->sums);
    if (rc < 0) {
        int code = cli_error(rc);
        train_log_close(t);
        return code;
    }
    if (!log->json && ftello(log->file) == 0)
        fputs(heads, log->file);
    return CLI_OK;
}

static void csv_number(FILE *file, double v)
{
    if (isnan(v))
        fputc(',', file);
    else
        fprintf(file, ",%.9g", v);
}

static void csv_row(struct log *log, const char *kind, const struct mr_train_epoch *e)
{
    const double v[] = {e->loss,    e->accuracy, e->test_loss,     e->test_accuracy,
                        e->seconds, e->lr,       e->samples_per_s, e->waited};
    fprintf(log->file, "%s,%llu,%llu", kind, (unsigned long long)e->epoch,
            (unsigned long long)e->steps);
    for (size_t i = 0; i < CLI_COUNT(v); i++)
        csv_number(log->file, v[i]);
    fputc('\n', log->file);
}

static void json_row(struct log *log, const char *kind, const struct mr_train_epoch *e)
{
    const char *text;
    struct mr_json *json = mr_json_create(0);
    if (!json)
        return;
    mr_json_object(json, NULL);
    mr_json_string(json, "kind", kind);
    mr_json_uint(json, "epoch", e->epoch);
    mr_json_uint(json, "step", e->steps);
    train_json_number(json, "loss", e->loss);
    train_json_number(json, "accuracy", e->accuracy);
    train_json_number(json, "test_loss", e->test_loss);
    train_json_number(json, "test_accuracy", e->test_accuracy);
    train_json_number(json, "seconds", e->seconds);
    train_json_number(json, "lr", e->lr);
    train_json_number(json, "samples_per_s", e->samples_per_s);
    train_json_number(json, "data_wait", e->waited);
    mr_json_object_end(json);
    if (mr_json_finish(json, &text) > 0)
        fprintf(log->file, "%s\n", text);
    mr_json_destroy(json);
}

static void row(struct train *t, const char *kind, const struct mr_train_epoch *e)
{
    struct log *log = t->log;
    (log->json ? json_row : csv_row)(log, kind, e);
    if ((fflush(log->file) != 0 || ferror(log->file)) && !log->failed) {
        log->failed = true;
        t->code = cli_fail("%s: cannot be written: %s", t->opts->log, strerror(errno));
    }
}

void train_log_epoch(struct train *t, const struct mr_train_epoch *e)
{
    struct log *log = t->log;
    if (!log)
        return;
    log->sums = (struct mr_train_sums){0};
    row(t, "epoch", e);
}

int train_log_steps(struct train *t)
{
    struct log *log = t->log;
    struct mr_train_sums now = {.size = sizeof now};
    if (!log || !t->opts->log_every || t->info.step % t->opts->log_every != 0)
        return 0;
    int rc = mr_trainer_sums(t->trainer, &now);
    if (rc < 0)
        return rc;
    double n = (double)(now.n_samples - log->sums.n_samples);
    struct mr_train_epoch e = {.epoch = t->info.epoch + 1,
                               .steps = t->info.step,
                               .loss = (now.loss - log->sums.loss) / n,
                               .accuracy = (double)(now.n_right - log->sums.n_right) / n,
                               .test_loss = NAN,
                               .test_accuracy = NAN,
                               .seconds = t->info.epoch_seconds,
                               .lr = mr_optim_get_lr(mr_trainer_get_optim(t->trainer), 0),
                               .samples_per_s = NAN,
                               .waited = NAN};
    log->sums = now;
    if (n > 0)
        row(t, "steps", &e);
    return 0;
}

int train_log_close(struct train *t)
{
    struct log *log = t->log;
    if (!log)
        return CLI_OK;
    t->log = NULL;
    int rc = fclose(log->file);
    bool failed = log->failed;
    free(log);
    return rc != 0 && !failed ? cli_fail("%s: cannot be written: %s", t->opts->log, strerror(errno))
                              : CLI_OK;
}

enum { LOSS, TEST_LOSS, ACCURACY, TEST_ACCURACY, N_CURVES };

int train_draw(const struct train *t)
{
    static const char *const names[N_CURVES] = {"training", "test", "training", "test"};
    int n = (int)t->info.n_epochs;
    if (!t->opts->plot || n == 0)
        return CLI_OK;
    double *x = calloc((size_t)n * (N_CURVES + 1), sizeof *x);
    struct plot_series series[N_CURVES];
    if (!x)
        return cli_fail("out of memory");
    double *y = x + n;
    for (int i = 0; i < n; i++) {
        const struct mr_train_epoch *e = mr_trainer_epoch_get(t->trainer, (uint32_t)i);
        const double v[N_CURVES] = {e->loss, e->test_loss, 100 * e->accuracy,
                                    100 * e->test_accuracy};
        x[i] = (double)e->epoch;
        for (int k = 0; k < N_CURVES; k++)
            y[k * n + i] = isnan(v[k]) ? -1 : v[k];
    }
    for (int k = 0; k < N_CURVES; k++)
        series[k] = (struct plot_series){names[k], x, y + k * n, n};
    const int n_series = t->data->test ? 2 : 1; /* of a panel */
    struct plot_panel panels[] = {
        {"Loss",
         "epoch",
         "mean of a sample",
         NULL,
         series,
         n_series,
         {0},
         false,
         true,
         0,
         false,
         true},
        {"Accuracy", "epoch", "%", NULL, series + 2, n_series, {0}, false, false, 0, true, true}};
    char title[160], subtitle[240];
    snprintf(title, sizeof title, "%.150s", t->opts->model);
    snprintf(subtitle, sizeof subtitle, "%.90s; %.60s, schedule %.40s, batches of %llu",
             mr_dataset_text(t->data->pipe.ds), t->info.optimizer, t->opts->schedule,
             (unsigned long long)t->opts->loader.batch_size);
    int n_panels = t->opts->loss == MR_MSE ? 1 : 2;
    int code = plot_write(&(struct plot){title, subtitle, panels, n_panels, NULL, t->opts->force},
                          t->opts->plot);
    free(x);
    return code;
}
