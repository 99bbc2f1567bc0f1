/* The processes that train one net together: who they are, whether they agree, how they end. */
#include "train/train.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COMM_AUTO, COMM_NONE, COMM_MPI, COMM_NCCL };

/* Options that ranks may have of their own: they change no result. */
static bool is_own(const char *name, size_t bytes)
{
    static const char *const own[] = {"workers", "threads",   "json",       "quiet",     "progress",
                                      "log",     "log_every", "plot",       "log_level", "prefetch",
                                      "force",   "resume",    "checkpoint", "report_dir"};
    for (size_t i = 0; i < CLI_COUNT(own); i++)
        if (strlen(own[i]) == bytes && strncmp(own[i], name, bytes) == 0)
            return true;
    return false;
}

/* Lines `  "name": value,` as lines "name=value". */
static void write_config(FILE *to, const char *json)
{
    for (const char *line = json; *line;) {
        size_t bytes = strcspn(line, "\n");
        const char *name = memchr(line, '"', bytes);
        const char *end = name ? strstr(name, "\": ") : NULL;
        if (end && end < line + bytes && !is_own(name + 1, (size_t)(end - name - 1))) {
            size_t value = (size_t)(line + bytes - end - 3);
            value -= value && end[3 + value - 1] == ',';
            fprintf(to, "%.*s=%.*s\n", (int)(end - name - 1), name + 1, (int)value, end + 3);
        }
        line += bytes + (line[bytes] == '\n');
    }
}

/* What must be the same on all ranks. To be freed; NULL: no memory. */
static char *make_config(const struct train_opts *o, const char *dataset, bool nccl)
{
    const char *written;
    char *text = NULL;
    size_t bytes;
    struct mr_json *json = mr_json_create(2);
    FILE *to = json ? open_memstream(&text, &bytes) : NULL;
    if (to) {
        mr_json_object(json, NULL);
        mr_json_string(json, "dataset", dataset);
        mr_json_string(json, "engine", nccl ? "nccl" : "mpi");
        if (nccl) /* all ranks record their graphs at the same steps */
            mr_json_uint(json, "slots", o->loader.prefetch);
        if (o->shard_optimizer || o->split_ranks) /* all ranks take part in writing one */
            mr_json_bool(json, "writes_checkpoints", o->checkpoint != NULL);
        mr_options_json(cli_options(train_options), o, json);
        mr_json_object_end(json);
        if (mr_json_finish(json, &written) > 0)
            write_config(to, written);
        if (fclose(to) != 0) {
            free(text);
            text = NULL;
        }
    }
    mr_json_destroy(json);
    return text;
}

/* Only rank 0 prints. It reports the errors of the others; without it, another rank does. */
static void be_quiet(struct train_ranks *r)
{
    if (cli_results_drop() < 0)
        return;
    fflush(stderr);
    r->errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (r->errors >= 0)
        dup2(STDOUT_FILENO, STDERR_FILENO); /* /dev/null */
    cli.progress = 0;
}

static void be_loud(struct train_ranks *r)
{
    if (r->errors < 0)
        return;
    fflush(stderr);
    dup2(r->errors, STDERR_FILENO);
    close(r->errors);
    r->errors = -1;
}

static int open_comm(struct train_ranks *r, const struct train_opts *o, const char *dataset)
{
    struct mr_comm_opts opts;
    mr_comm_opts_init(&opts);
    opts.engine = r->nccl ? "nccl" : o->comm == COMM_MPI ? "mpi" : "auto";
    opts.device = r->dev;
    opts.place = r->place;
    opts.timeout_ns = o->comm_timeout;
    char *config = make_config(o, dataset, r->nccl);
    if (!config)
        return cli_fail("out of memory");
    opts.config = config;
    cli_results_apart();
    int rc = mr_comm_open(&opts, &r->comm);
    free(config);
    if (rc == MR_EPEER) { /* what MPI does at exit may wait for the others */
        cli_error(rc);
        fflush(NULL);
        _exit(CLI_PEER);
    }
    if (rc == MR_EOPTION && r->place.rank > 0) /* rank 0 has the same error */
        return CLI_MISUSED;
    if (rc < 0)
        return cli_error(rc);
    mr_comm_phase(r->comm, "opens its data");
    return CLI_OK;
}

static bool is_gpu(uint32_t number, int *rc)
{
    struct mr_device *device;
    char uri[32];
    snprintf(uri, sizeof uri, "cuda:%u", number);
    *rc = mr_device_open(uri, &device);
    if (*rc < 0)
        return false;
    mr_device_close(device);
    return true;
}

/* The GPU of a rank is that of its number on its machine; with fewer GPUs, several share one. A
 * launcher may also have left each rank one GPU to see. */
static int choose_device(struct train_ranks *r, const char *wanted)
{
    static const char *const any[] = {"auto", "cuda", "gpu"};
    bool chooses = false;
    int rc;
    snprintf(r->device, sizeof r->device, "%s", wanted);
    for (size_t i = 0; i < CLI_COUNT(any); i++)
        chooses = chooses || strcmp(wanted, any[i]) == 0;
    if (!chooses || r->place.world < 2)
        return CLI_OK;
    for (uint32_t n = r->place.local_rank + 1; n > 0; n--) {
        if (is_gpu(n - 1, &rc)) {
            snprintf(r->device, sizeof r->device, "cuda:%u", r->place.local_rank % n);
            return CLI_OK;
        }
        if (rc != MR_ENODEVICE)
            return cli_error(rc);
    }
    return CLI_OK; /* no GPU: opening it says so, and "auto" is cpu */
}

/* By MPI's launchers: NCCL where each rank has a GPU of its own. If that is so on some machines
 * only, the ranks' configurations differ, and the error names the engine. */
static void prefer_nccl(struct train_ranks *r, const struct train_opts *o)
{
    const struct mr_place *p = &r->place;
    int rc;
    if (o->comm != COMM_AUTO || r->nccl || strncmp(r->device, "cuda", 4) != 0)
        return;
    if (mr_comm_find("nccl") < 0)
        snprintf(r->no_nccl, sizeof r->no_nccl, "%s", mr_last_error());
    else if (p->local_world == 0 || strchr(o->device, ':') || !is_gpu(p->local_world - 1, &rc))
        snprintf(r->no_nccl, sizeof r->no_nccl,
                 "this rank does not see as many GPUs as this machine has ranks; give --comm nccl "
                 "if each has one of its own");
    else
        r->nccl = true;
}

/* One process, where options speak of several. mpirun -n 1 is what its user wanted. */
static int check_alone(const struct train_opts *o, const struct mr_place *place)
{
    if (o->split_ranks && (o->comm == COMM_NONE || !place->launcher[0]))
        return cli_misuse("--split-ranks: %s: start it with mpirun, srun or torchrun, or give "
                          "--device cuda:0+cuda:1, which splits the net in one process",
                          o->comm == COMM_NONE
                              ? "with --comm none each process is alone"
                              : "no launcher started this process, which is alone");
    if (o->shard_optimizer && (o->comm == COMM_NONE || !place->launcher[0]))
        cli_warn("--shard-optimizer: this process is alone and keeps the whole state: start "
                 "several with mpirun, srun or torchrun");
    return CLI_OK;
}

int train_ranks_open(struct train_ranks *r, const struct train_opts *o, const char *dataset)
{
    *r = (struct train_ranks){.place = {.size = sizeof r->place, .world = 1},
                              .timeout_ns = o->comm_timeout,
                              .errors = -1};
    snprintf(r->device, sizeof r->device, "%s", o->device);
    if (o->comm == COMM_NONE)
        return check_alone(o, &r->place);
    int rc = mr_place_query(&r->place);
    if (rc < 0)
        return cli_error(rc);
    if (r->place.world == 1 && o->comm == COMM_AUTO)
        return check_alone(o, &r->place);
    bool gpu = strcmp(o->device, "cpu") != 0;
    r->nccl = o->comm == COMM_NCCL || (o->comm == COMM_AUTO && gpu && !cli_starts_mpi(&r->place));
    if (!r->nccl && !cli_starts_mpi(&r->place))
        return cli_misuse("rank %u of %u by %s, whose ranks have no MPI: start ranks on cpu with "
                          "mpirun or srun, or train in each alone with --comm none",
                          r->place.rank, r->place.world, r->place.launcher);
    int code = choose_device(r, o->device);
    if (code == CLI_OK)
        prefer_nccl(r, o);
    if (code == CLI_OK && r->nccl) {
        rc = mr_device_open(r->device, &r->dev);
        code = rc < 0 ? cli_error(rc) : CLI_OK;
    }
    if (code == CLI_OK)
        code = open_comm(r, o, dataset);
    if (code == CLI_OK && r->place.rank > 0)
        be_quiet(r);
    return code;
}

static uint64_t hash_of(const uint32_t *words, uint64_t n)
{
    uint64_t h = 14695981039346656037u;
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ words[i]) * 1099511628211u;
    return h;
}

/* FNV-1a of the parameters: those that a rank begins with come from the seed, or a checkpoint. */
static int hash(const struct train *t, uint64_t *out)
{
    void *params;
    struct mr_stream *stream = NULL;
    struct mr_net *net = mr_trainer_get_net(t->trainer);
    uint64_t n = mr_net_n_params(net), bytes = n * sizeof(uint32_t);
    mr_net_flat(net, &params, NULL, NULL);
    uint32_t *words = malloc(bytes);
    if (!words)
        return cli_fail("out of memory");
    int rc = mr_stream_create(t->data->pipe.dev, "hash", &stream);
    if (rc == 0)
        rc = mr_copy_async(stream, words, MR_PAGEABLE, params, MR_DEVICE, bytes);
    if (rc == 0)
        rc = mr_stream_synchronize(stream);
    if (rc == 0)
        *out = hash_of(words, n);
    mr_stream_destroy(stream);
    free(words);
    return rc < 0 ? cli_error(rc) : CLI_OK;
}

/* Rank 0's look at what all have. Returns whether something is wrong. */
static bool look(char *const *texts, uint32_t world)
{
    uint32_t told = 0;
    bool first_failed = texts[0][0] != '=';
    for (uint32_t r = 1; r < world && told < 3; r++) {
        if (strcmp(texts[r], texts[0]) == 0)
            continue;
        if (texts[r][0] != '=')
            cli_fail("rank %u: %s", r, texts[r]);
        else if (!first_failed)
            cli_fail("rank %u begins with%s, rank 0 with%s: expected the same parameters, "
                     "step and order: do all ranks see the same checkpoint and options?",
                     r, texts[r] + 1, texts[0] + 1);
        told++;
    }
    return told > 0;
}

int train_ranks_agree(struct train_ranks *r, int code, const struct train *t)
{
    static double failed[2]; /* stays in use after an error: comm.h */
    char mine[1100], **texts;
    uint64_t params = 0;
    if (!r->comm || r->place.world == 1)
        return code;
    if (code == CLI_OK && !train_ranks_are_stages(t)) /* else each has others */
        code = hash(t, &params);
    failed[0] = code != CLI_OK;
    failed[1] = code == CLI_MISUSED;
    if (code == CLI_OK)
        snprintf(mine, sizeof mine, "= %016" PRIx64 " at step %" PRIu64 "%s%.900s", params,
                 t->info.step, t->opts->sampler ? " in the order " : "",
                 t->opts->sampler ? t->opts->sampler : "");
    else
        snprintf(mine, sizeof mine, "%s", cli_first_error());
    int rc = mr_comm_collect(r->comm, mine, 0, &texts);
    if (rc == 0 && texts) {
        failed[0] += look(texts, r->place.world);
        free(texts);
    }
    if (rc == 0)
        rc = mr_comm_sum(r->comm, failed, failed, 2, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    if (rc < 0)
        return train_ranks_close(r, cli_error(rc), true);
    return failed[1] > 0 ? CLI_MISUSED : failed[0] > 0 ? CLI_FAILED : CLI_OK;
}

#define DUE_STEPS 16 /* between looks at rank 0's clock */

int train_ranks_due(struct train *t, bool mine, bool *due)
{
    static double wants; /* stays in use after an error: comm.h */
    struct mr_comm *comm = t->ranks ? t->ranks->comm : NULL;
    *due = mine;
    if (!comm || t->ranks->place.world == 1 || !t->every_ns ||
        !(t->opts->shard_optimizer || t->opts->split_ranks))
        return 0;
    *due = false;
    if (t->info.step % DUE_STEPS)
        return 0;
    wants = mine && t->ranks->place.rank == 0;
    int rc = mr_comm_sum(comm, &wants, &wants, 1, MR_F64, MR_F64, MR_SUM_FAST, NULL);
    *due = wants > 0;
    return rc;
}

/* Rank 0 may have the same error, and then ends this process. */
static void wait_for_rank_0(uint64_t timeout_ns)
{
    const uint64_t second = 1000000000, half = timeout_ns / 2;
    const uint64_t ns = half < 3 * second ? half : 3 * second;
    const struct timespec t = {(time_t)(ns / second), (long)(ns % second)};
    nanosleep(&t, NULL);
}

int train_ranks_close(struct train_ranks *r, int code, bool running)
{
    struct mr_comm_stats stats = {.size = sizeof stats};
    if (!r->comm) {
        mr_device_close(r->dev);
        return code;
    }
    int rc = mr_comm_check(r->comm);
    if (rc == 0 && !running) {
        mr_comm_close(r->comm);
        r->comm = NULL;
        mr_device_close(r->dev);
        r->dev = NULL;
        return code;
    }
    mr_comm_stats(r->comm, &stats);
    bool silent = r->errors >= 0;
    if (rc != MR_EPEER && silent)
        wait_for_rank_0(r->timeout_ns);
    be_loud(r);
    if (rc != MR_EPEER && silent)
        cli_fail("rank %u: %s", r->place.rank, cli_first_error());
    else if (silent && stats.rank == stats.speaker)
        cli_error(rc);
    mr_comm_abort(r->comm, rc == MR_EPEER ? CLI_PEER : code == CLI_OK ? CLI_FAILED : code);
    return code;
}

void train_ranks_print(const struct train *t)
{
    struct mr_comm_stats s = {.size = sizeof s};
    char bytes[CLI_HUMAN];
    if (t->ranks && t->ranks->comm && mr_comm_stats(t->ranks->comm, &s) == 0) {
        printf("  %u rank%s by %s: %s", s.world, s.world == 1 ? "" : "s",
               t->ranks->place.launcher[0] ? t->ranks->place.launcher : "no launcher", s.library);
        if (t->opts->leaves)
            printf("; gradients of %" PRIu64 " parts of a batch by a fixed tree", t->opts->leaves);
        if (t->opts->shard_optimizer && s.world > 1)
            printf("; %s of the optimizer's state on each", cli_bytes(t->info.optim_bytes, bytes));
        if (t->ranks->no_nccl[0])
            printf("\n  sums go through host memory, which is slower than NCCL: %s",
                   t->ranks->no_nccl);
        printf("\n");
    } else if (t->opts->leaves > 1)
        printf("  gradients of %" PRIu64 " parts of a batch by a fixed tree\n", t->opts->leaves);
}

void train_ranks_json(const struct train *t, struct mr_json *json)
{
    struct mr_comm_stats s = {.size = sizeof s, .world = 1};
    bool together = t->ranks && t->ranks->comm && mr_comm_stats(t->ranks->comm, &s) == 0;
    const char *launcher = t->ranks ? t->ranks->place.launcher : "";
    mr_json_uint(json, "world", s.world);
    mr_json_string(json, "launcher", launcher[0] ? launcher : NULL);
    mr_json_string(json, "engine", together ? s.engine : "alone");
    mr_json_uint(json, "leaves", t->opts->leaves ? t->opts->leaves : s.world);
    mr_json_uint(json, "optimizer_bytes", t->info.optim_bytes);
    mr_json_object(json, "comm");
    mr_json_string(json, "library", together ? s.library : NULL);
    mr_json_uint(json, "sums", s.sums);
    mr_json_uint(json, "bytes", s.bytes);
    mr_json_double(json, "seconds", s.seconds);
    mr_json_object_end(json);
}
