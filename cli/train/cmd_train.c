/* millrace train: options and the order of things; the training itself is run.c. */
#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const train_losses[] = {"cross-entropy", "nll", "mse", NULL};
const char *const train_amps[] = {"off", "tf32", "bf16", "fp16", NULL};
static const char *const wires[] = {"f32", "bf16", NULL};
const char *const train_comms[] = {"auto", "none", "mpi", "nccl", NULL};
const char *const train_pipelines[] = {"1f1b", "gpipe", NULL}; /* as enum mr_pipeline */
static const char *const policies[] = {"stop", "skip", NULL};  /* as enum mr_on_nan */
static const char model[] = "Model", data[] = "Data", machine[] = "Machine", run_group[] = "Run",
                  files[] = "Files", ranks_group[] = "Ranks", stages[] = "Stages";

#define OPT(option, letter, kind, member, heading, ...)                                            \
    {                                                                                              \
        .name = option, .key = letter, .type = kind,                                               \
        .offset = offsetof(struct train_opts, member), .group = heading, __VA_ARGS__               \
    }

#define LOADER(option, ...) CLI_LOADER_OPTION(struct train_opts, loader, option, __VA_ARGS__)

/* The trainer sets these, or has one value for them. */
static const char *const not_of_trainer[] = {
    "drop-last",   "rank",       "world",       "remainder",
    "collate",     "pad-value",  "pad-values",  "pad-to-multiple-of",
    "mask",        "cu-seqlens", "pack-length", "bad",
    "max-bad",     "read-ahead", "queue-depth", "max-memory",
    "storage",     "streams",    "direct",      "gpu-decode",
    "force-state", "in-order",   "on-host",     "shared",
    NULL};

const struct mr_option train_options[] = {
    OPT("model", 'm', MR_OPT_STRING, model, model, .initial = "mnist-cnn", .meta = "MODEL",
        .help = "softmax, mlp:300s,100r,50s (width and activation of each hidden layer: s "
                "sigmoid, r ReLU, t tanh, g GELU), mnist-cnn, resnet20, or a list: "
                "conv:32,relu,maxpool:2,dropout:0.25,flatten,linear:10"),
    OPT("optimizer", 'o', MR_OPT_STRING, optimizer, model, .initial = "adam", .meta = "OPTIMIZER",
        .help = cli_optimizer_help),
    OPT("lr", 0, MR_OPT_DOUBLE, lr, model, .initial = "-1", .min = -1, .max = 1e6,
        .help = "Learning rate; -1: the optimizer's default"),
    OPT("schedule", 0, MR_OPT_STRING, schedule, model, .initial = "constant", .meta = "SCHEDULE",
        .help = "constant, step:0.7, multistep:0.1/30:60, exponential:0.95, linear:0/10, "
                "cosine:10, onecycle:STEPS, plateau:0.1, warmup:500,cosine:10"),
    OPT("loss", 0, MR_OPT_ENUM, loss, model, .initial = "cross-entropy", .choices = train_losses,
        .help = "cross-entropy for logits, nll for log-probabilities (a model that ends in "
                "logsoftmax), or mse"),
    OPT("amp", 0, MR_OPT_ENUM, amp, model, .initial = "tf32", .choices = train_amps,
        .help = "Precision on GPUs. off: f32; tf32: matrix products in TF32; bf16, fp16: 16 bits "
                "with f32 parameters. cpu always computes in f32"),
    OPT("clip-norm", 0, MR_OPT_DOUBLE, clip_norm, model, .initial = "0", .max = 1e30,
        .help = "Scale the gradients down to this total norm; 0: no limit"),
    OPT("clip-value", 0, MR_OPT_DOUBLE, clip_value, model, .initial = "0", .max = 1e30,
        .help = "Clamp each gradient to this absolute value; 0: no limit"),
    OPT("classes", 0, MR_OPT_UINT, classes, model, .initial = "0", .max = 1 << 20,
        .unit = "classes", .help = "Number of outputs; 0: from the data set"),

    LOADER("batch-size", .max = 1 << 20, .group = data),
    OPT("transform", 't', MR_OPT_STRING, transform, data, .meta = "CHAIN",
        .help = "Ops on each sample, as listed by millrace inspect --transforms. By default "
                "'cast(f32),scale(1/255),normalize(0.1307,0.3081)' for IDX files with one "
                "channel, and other u8 is scaled by 1/255"),
    OPT("test", 0, MR_OPT_STRING, test, data, .meta = "DATASET",
        .help = "Test set; by default MNIST's test files of the same folder; none: do not test"),
    OPT("test-transform", 0, MR_OPT_STRING, test_transform, data, .meta = "CHAIN",
        .help = "Ops on each test sample, for when --transform has random ones; by default the "
                "same"),
    OPT("shuffle", 0, MR_OPT_FLAG, shuffle, data, .initial = "1",
        .help = "Shuffle the samples, in another order each epoch"),
    OPT("sampler", 0, MR_OPT_STRING, sampler, data, .meta = "SAMPLER",
        .help = "In place of --shuffle: sequential, random, or random:block=N[,window=N], which "
                "reads neighbours at about the same time, for data in a store"),
    OPT("affinity", 0, MR_OPT_ENUM, affinity, data, .initial = "none", .choices = cli_affinities,
        .help = "With random:block=N: blocks belong to a machine, whose disk cache has them again "
                "in the next epoch, or to a rank, which reads each of its blocks by one request, "
                "however many ranks there are"),
    LOADER("cache", .group = data),

    OPT("device", 'd', MR_OPT_STRING, device, machine, .initial = "auto", .meta = "DEVICE",
        .help = "auto, cpu, cuda, cuda:1; cuda:0+cuda:1: the net over several, see --split"),
    LOADER("workers", .group = machine),
    LOADER("prefetch", .group = machine),
    OPT("threads", 0, MR_OPT_UINT, threads, machine, .initial = "0", .max = 512, .unit = "threads",
        .help = "Compute threads on cpu; 0: one per processor that this process may use. Results "
                "do not depend on it"),
    OPT("max-cpus", 0, MR_OPT_UINT, max_cpus, machine, .initial = "0", .max = 4096,
        .unit = "processors", .help = "Run on so many of this process's processors; 0: on all"),
    OPT("graph", 0, MR_OPT_FLAG, graph, machine, .initial = "1",
        .help = "Launch a step as one CUDA graph, not its kernels one by one"),
    CLI_LOADER_REST(struct train_opts, loader, .group = machine, .choices = not_of_trainer),

    OPT("epochs", 'e', MR_OPT_UINT, epochs, run_group, .initial = "10", .min = 1, .max = 1e9,
        .unit = "epochs", .help = "Number of passes over the data"),
    OPT("max-steps", 0, MR_OPT_UINT, max_steps, run_group, .initial = "0", .unit = "steps",
        .help = "Stop after this many steps; an unfinished epoch is reported and tested, too; 0: "
                "no limit"),
    OPT("seed", 0, MR_OPT_UINT, seed, run_group, .initial = "0",
        .help = "Seed of initial parameters, order, dropout and random transforms"),
    OPT("target-acc", 0, MR_OPT_PERCENT, target, run_group, .initial = "0", .min = 0, .max = 1,
        .meta = "P%",
        .help = "Stop at this test accuracy, 0.99 or 99% (training accuracy without a test set); "
                "the exit status is 1 if it was not reached"),
    OPT("patience", 0, MR_OPT_UINT, patience, run_group, .initial = "0", .unit = "epochs",
        .help = "Stop if the test loss has not improved for this many epochs; 0: never"),
    OPT("on-nan", 0, MR_OPT_ENUM, on_nan, run_group, .initial = "stop", .choices = policies,
        .help = "If the loss is not finite: stop and name step and layer, or skip the step (on "
                "GPUs every step then waits for its loss)"),

    OPT("split", 0, MR_OPT_STRING, split, stages, .initial = "auto", .meta = "LAYERS",
        .help = "With several devices: the layer that begins each stage but the first (conv3,fc1); "
                "auto: stages that take the same time, as measured on the first device"),
    OPT("split-ranks", 0, MR_OPT_FLAG, split_ranks, stages, .initial = "0",
        .help =
            "Under mpirun, srun or torchrun: each rank computes a stage of the net, in place of "
            "a part of each batch. All ranks read all samples; --split auto counts "
            "multiplications"),
    OPT("micro-batches", 0, MR_OPT_UINT, micro_batches, stages, .initial = "0", .max = 1024,
        .unit = "parts",
        .help = "Parts of a batch that follow one another through the stages, a power of two. They "
                "are leaves: parameters are those of one device with --leaves N. 0: --leaves, or "
                "up to 4 for each stage"),
    OPT("pipeline", 0, MR_OPT_ENUM, pipeline, stages, .initial = "1f1b", .choices = train_pipelines,
        .help = "1f1b: begin backward passes as soon as possible, with activations of one "
                "micro-batch for each stage; gpipe: all forward passes first, with those of all. "
                "The results are the same"),

    OPT("comm", 0, MR_OPT_ENUM, comm, ranks_group, .initial = "auto", .choices = train_comms,
        .help = "How ranks that a launcher started train together. auto: by NCCL if each has a GPU "
                "to itself, else by MPI; mpi; nccl; none: each trains by itself"),
    OPT("leaves", 0, MR_OPT_UINT, leaves, ranks_group, .initial = "0", .max = 1024, .unit = "parts",
        .help = "Add the gradients of this many parts of a batch up by a fixed tree, a power of "
                "two: then parameters do not depend on the number of ranks, bit for bit. 0: one "
                "for each rank, added up as is fastest"),
    OPT("wire", 0, MR_OPT_ENUM, wire, ranks_group, .initial = "f32", .choices = wires,
        .help = "How gradients travel between ranks: bf16 halves the bytes, and rounds them"),
    OPT("shard-optimizer", 0, MR_OPT_FLAG, shard_optimizer, ranks_group, .initial = "0",
        .help = "Each rank keeps the optimizer's state of its part of the parameters only, and "
                "updates that part (ZeRO-1). With --leaves, checkpoints are the same, bit for bit"),
    OPT("comm-timeout", 0, MR_OPT_DURATION, comm_timeout, ranks_group, .initial = "5min",
        .meta = "TIME", .unit = "s",
        .help = "End all ranks, with exit status 4, if one lets the others wait for this long"),
    OPT("report-every", 0, MR_OPT_DURATION, report_every, ranks_group, .initial = "0",
        .meta = "TIME", .unit = "s",
        .help = "Print this often which rank delays the others, and why; 0: only at the end"),
    OPT("report-dir", 0, MR_OPT_STRING, report_dir, ranks_group, .meta = "DIR",
        .help = "Write what each rank's latest steps did to a file of this folder, for millrace "
                "report --ranks DIR"),
    OPT("metrics", 0, MR_OPT_STRING, metrics, ranks_group, .meta = "FILE",
        .help = "Rewrite this file every 10 s, or as --report-every says, with what the ranks do, "
                "as OpenMetrics text: FILE.prom in the folder of node_exporter's textfile "
                "collector"),

    OPT("checkpoint", 'c', MR_OPT_STRING, checkpoint, files, .meta = "FILE",
        .help = "Write a checkpoint (safetensors) after each epoch and at the end"),
    OPT("checkpoint-every", 0, MR_OPT_STRING, checkpoint_every, files, .meta = "N|TIME",
        .help = "Also write one every N steps (500) or at this interval (30s)"),
    OPT("resume", 0, MR_OPT_FLAG, resume, files,
        .help =
            "Continue from the file of --checkpoint; start from the beginning if it does not "
            "exist. Default when torchrun or Slurm restarts the job that wrote the file, unless "
            "--force is given"),
    OPT("force", 'f', MR_OPT_FLAG, force, files,
        .help = "Start over even if the file of --checkpoint exists; --checkpoint, --log and "
                "--plot replace any file"),
    OPT("log", 0, MR_OPT_STRING, log, files, .meta = "FILE",
        .help = "Write a row per epoch to FILE.csv or FILE.jsonl; with --resume, append after the "
                "rows up to the checkpoint's step"),
    OPT("log-every", 0, MR_OPT_UINT, log_every, files, .initial = "0", .unit = "steps",
        .help = "Also write a row every N steps; 0: none"),
    OPT("plot", 0, MR_OPT_STRING, plot, files, .meta = "FILE",
        .help = "Draw the curves: FILE.svg or FILE.html"),
    CLI_COMMON_OPTIONS,
    {NULL},
};

/* Checks the options of files, and the rate. [out] from: the checkpoint; NULL: start from step
 * 0. */
static int check_files(const struct train_opts *o, uint32_t rank, struct train_files *claims,
                       struct mr_checkpoint **from)
{
    *from = NULL;
    if (o->lr < 0 && o->lr != -1)
        return cli_misuse(
            "--lr %g: expected a rate of 0 or more, or -1: the optimizer's own default", o->lr);
    if (!o->checkpoint && (o->resume || o->checkpoint_every))
        return cli_misuse("--%s: expected --checkpoint FILE, too",
                          o->resume ? "resume" : "checkpoint-every");
    if (o->sampler && !o->shuffle)
        return cli_misuse("--no-shuffle and --sampler %s: give one of the two", o->sampler);
    if (strcmp(o->split, "auto") != 0 && !strchr(o->device, '+') && !o->split_ranks)
        return cli_misuse("--split %s: expected several devices, such as --device cuda:0+cuda:1, "
                          "or --split-ranks",
                          o->split);
    int code = rank > 0 ? CLI_OK : train_files_claim(claims, o); /* rank 0 alone writes */
    if (code != CLI_OK || !o->checkpoint)
        return code;
    bool there = access(o->checkpoint, F_OK) == 0;
    if (there && !o->resume && !o->force)
        return cli_fail("%s: exists: --resume goes on from it, --force starts over", o->checkpoint);
    if (!there && o->resume)
        cli_warn("%s: does not exist yet: the run begins at the start", o->checkpoint);
    if (!there || !o->resume)
        return CLI_OK;
    int rc = mr_checkpoint_open(o->checkpoint, from);
    return rc < 0 ? cli_error(rc) : CLI_OK;
}

static int look_at_target(const struct train *t)
{
    bool missed = t->opts->target > 0 && isnan(t->info.seconds_to_target) && t->end != TRAIN_TARGET;
    return missed && t->end != TRAIN_INTERRUPTED
               ? cli_fail("the accuracy of %.4g%% was not reached", 100 * t->opts->target)
               : CLI_OK;
}

static int report(struct train *t)
{
    int code = t->code;
    bool writes = !t->ranks || t->ranks->place.rank == 0;
    if (writes && train_draw(t) != CLI_OK)
        code = CLI_FAILED;
    if (code == CLI_OK && cli.json) /* the object has it, too */
        code = look_at_target(t);
    if ((cli.json ? train_print_json(t) : train_print_end(t)) != CLI_OK)
        code = CLI_FAILED;
    if (code == CLI_OK && !cli.json)
        code = look_at_target(t);
    return t->end == TRAIN_INTERRUPTED ? CLI_FAILED : code;
}

static int open_all(struct train *t, struct train_data *d, const char *dataset,
                    const struct train_opts *o, const struct mr_checkpoint *from,
                    struct train_ranks *ranks)
{
    int rc = train_data_open(d, dataset, o, &ranks->dev);
    d->ranks = ranks;
    int code = rc < 0 ? cli_error(rc) : cli_input_dataset(dataset, d->pipe.ds);
    if (code == CLI_OK)
        code = cli_input_dataset(d->test_uri, d->test);
    if (code != CLI_OK)
        return code;
    rc = train_open(t, d, o, from);
    if (rc < 0)
        return cli_error(rc);
    rc = train_steps_open(t);
    if (rc < 0)
        return cli_error(rc);
    t->saved = from != NULL;
    t->opening = (double)(mr_time_ns() - d->start_ns) * 1e-9;
    if (cli_interrupted()) /* before a log or a checkpoint exists */
        return cli_fail("interrupted before the first step");
    return ranks->place.rank > 0 ? CLI_OK : train_log_open(t);
}

static int train_and_report(struct train *t)
{
    if (!cli.json)
        train_print_head(t);
    int rc = train_run(t);
    t->broken = rc < 0 || t->end == TRAIN_FAILED;
    int code = rc < 0 ? cli_error(rc) : CLI_OK;
    if (train_log_close(t) != CLI_OK)
        code = CLI_FAILED;
    return code == CLI_OK ? report(t) : code;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    const struct train_opts *o = values;
    struct train_data d = {0};
    struct train t = {0};
    struct mr_checkpoint *from = NULL;
    struct train_files claims = {CLI_LOCK_NONE, CLI_LOCK_NONE};
    struct train_ranks ranks;
    struct train_opts own = *(const struct train_opts *)values;
    int rc = cli_limit_cpus(o->max_cpus);
    if (rc < 0)
        return cli_error(rc);
    int code = train_ranks_open(&ranks, o, args[0]);
    char *order = NULL;
    own.device = ranks.device;
    bool restarted = train_restart_resumes(&own, &ranks.place);
    o = &own;
    if (code == CLI_OK) {
        uint32_t world = ranks.comm ? ranks.place.world : 1;
        rc = cli_affinity(o->affinity, o->sampler, ranks.place.rank, world, &order);
        own.sampler = order ? order : own.sampler;
        code = rc < 0 ? cli_error(rc) : CLI_OK;
    }
    if (code == CLI_OK) {
        code = check_files(o, ranks.place.rank, &claims, &from);
        if (code == CLI_OK && restarted && from && ranks.place.rank == 0)
            code = train_restart_check(o, from);
        if (code == CLI_OK)
            code = train_steps_check(o, &ranks);
        if (code == CLI_OK)
            code = open_all(&t, &d, args[0], o, from, &ranks);
        code = train_ranks_agree(&ranks, code, t.trainer ? &t : NULL);
    }
    if (code == CLI_OK) {
        code = train_and_report(&t);
    }
    if (!t.broken)
        train_close(&t); /* the ranks' comm must outlive the trainer */
    code = train_ranks_close(&ranks, code, t.broken);
    train_close(&t);
    train_data_close(&d);
    train_files_release(&claims);
    mr_checkpoint_close(from);
    free(order);
    return code;
}

static const struct cli_note json_notes[] = {
    {"epochs",
     "for each: epoch, steps (so far), loss, accuracy, test_loss, test_accuracy, seconds, "
     "test_seconds, lr, samples_per_s, data_wait (fraction of the time without a batch on the "
     "device)"},
    {"unfinished_epoch", "the same for an epoch that --max-steps or an interrupt ended; else null"},
    {"test_accuracy", "after the last epoch, 0 to 1; null without a test set"},
    {"best_accuracy, best_epoch", "by test accuracy, training accuracy without a test set"},
    {"seconds, seconds_to_target",
     "from the start; until --target-acc was reached, null if it was not"},
    {"steps, resumed_from_step, steps_skipped",
     "steps done; where --resume started; skipped by --on-nan skip"},
    {"ended_by",
     "epochs, target, patience, steps, interrupted, or failed: a file could not be written"},
    {"model, parameters, activation_bytes, layers",
     "activation_bytes: activations, workspace, 16-bit copy and running statistics, of all stages; "
     "for each layer: name, text, output, parameters, runs_on"},
    {"stages, micro_batches", "of each: device (or rank), first and last layer, activation_bytes "
                              "(0: another rank's); parts of a "
                              "batch that follow one another through "
                              "them, 0: none"},
    {"times", "seconds: opening, waiting (for data), steps, tests, checkpoints"},
    {"bottleneck, bottleneck_reason, tuning", "of the loader, as in millrace feed"},
    {"world, launcher, engine, leaves, comm",
     "ranks, and what started them (null: nothing); mpi, nccl or alone; parts of a batch; comm: "
     "library, sums, bytes that this rank added up, seconds in sums, waiting for other ranks "
     "included"},
    {"optimizer_bytes", "of the optimizer's state, in this process"},
    {"ranks",
     "null where this process is alone; steps (without the first ones and those behind tests), "
     "step_ms; ranks: for each rank, host, data_seconds, compute_seconds, sum_seconds, came_last "
     "(steps), bottleneck; straggler: null, or rank, cause (data, compute), came_last (share), and "
     "means of the steps in which it did: cost_ms, data_ms, others_data_ms, compute_ms, "
     "others_compute_ms; sentence"},
    {"config", "every option, and in resolved the values that were chosen"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace train mnist/ --model mnist-cnn --optimizer adadelta --lr 1.0 --schedule step:0.7 "
     "--epochs 10",
     "PyTorch's example for MNIST"},
    {"millrace train mnist/ --model mlp:300s,100r,50s --optimizer adam --target-acc 97.5% --plot "
     "curves.svg",
     "a perceptron, up to a test accuracy"},
    {"millrace train mnist/ --checkpoint run.safetensors --checkpoint-every 30s --resume",
     "starts, or continues after it was killed"},
    {"millrace train pictures/ --model resnet20 --device cuda:0+cuda:1 --micro-batches 8",
     "the net over two GPUs, as a pipeline"},
    {"mpirun -n 4 millrace train mnist/ --batch-size 256 --leaves 8 --device cpu",
     "on four processes; the same parameters as on one, two or eight"},
    {"mpirun -n 2 millrace train pictures/ --model resnet20 --split-ranks --micro-batches 8",
     "the first layers on one process, the last ones on the other"},
    {"mpirun -n 4 millrace train mnist/ --batch-size 256 --leaves 8 --device cpu "
     "--shard-optimizer",
     "the same, and each process has a quarter of the optimizer's state"},
    {NULL, NULL},
};

const struct cli_command cli_train = {
    .name = "train",
    .summary = "Train a small net on a data set, fed by the loader",
    .synopsis = "DATASET [options]",
    .text =
        "Trains a perceptron or a small convolutional net. Reports loss, accuracy and the "
        "time spent waiting for data after each epoch, and where the time went at the end.\n\n"
        "The net is on cpu or on a GPU. Parameters are initialized as PyTorch does it. On cpu "
        "the same command gives the same parameters, bit for bit, for any --workers and "
        "--threads, and after --resume. On a GPU a step is one graph, launched for each "
        "batch. The host checks the loss every 256 steps; after a loss that is not finite, "
        "steps change nothing until that check.\n\n"
        "Under mpirun or srun the ranks train one net together: --batch-size is the batch of all "
        "of them, and only rank 0 prints and writes files. With --device auto or cuda each takes "
        "the GPU of its number on its machine; where there are fewer GPUs, several share one. A "
        "rank that hangs ends the run after --comm-timeout, with exit status 4 and an error that "
        "names it.\n\n"
        "A checkpoint contains the parameters under PyTorch's names "
        "(safetensors.torch.load_file reads them), the state of optimizer, schedule and "
        "loader, the loss scale of fp16, and a checksum. It is replaced atomically. After an "
        "interrupt the current step or test pass is finished and, with --checkpoint, a "
        "checkpoint is written; the exit status is 1.",
    .options = train_options,
    .options_bytes = sizeof(struct train_opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .joins_ranks = true,
    .run = run,
};
