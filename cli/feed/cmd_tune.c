/* millrace tune: feed, until it is known how many workers and batches ahead serve best. */
#include "feed/feed.h"

static int print(const struct feed *feed)
{
    cli_tuning_print(feed_tuning(feed), &feed->result.stats);
    return CLI_OK;
}

static int run(void *values, int n_args, char **args)
{
    (void)n_args;
    struct feed_opts *opts = values;
    opts->loader.tune = 1;
    opts->until_tuned = true;
    return feed_command(opts, args[0], print);
}

static const struct cli_note json_notes[] = {
    {"tuning", "done, workers, prefetch, read_ahead, queue_depth, gpu_decode, first_workers, "
               "first_prefetch, tried, samples_per_s, "
               "first_samples_per_s, seconds, reason"},
    {"...", "all else is what millrace feed gives"},
    {NULL, NULL},
};

static const struct cli_note examples[] = {
    {"millrace tune photos/ -t 'random_resized_crop(224),hflip(0.5)' --sink-ms 40",
     "what a consumer with steps of 40 ms needs"},
    {"millrace tune mnist/ --shuffle --save mnist.opts; millrace feed mnist/ --shuffle $(cat "
     "mnist.opts)",
     "keep the result"},
    {NULL, NULL},
};

const struct cli_command cli_tune = {
    .name = "tune",
    .summary = "Find out how many workers and batches ahead a data set needs",
    .synopsis = "DATASET [options]",
    .text =
        "Runs the pipeline as millrace feed does, for about ten seconds, and changes the "
        "number of workers and of batches prepared ahead meanwhile. Each setting is compared "
        "with the best so far in turn. It keeps more workers, or more batches ahead, if that "
        "is 2% faster, and then the fewest workers that lose less than 1%. Options that are "
        "given stay as they are; --max-cpus, --max-workers, --max-prefetch and "
        "--max-memory are limits. How far is read ahead, how many reads are in flight, and with "
        "--gpu-decode auto the GPU's share follow the rates while a loader runs; they are "
        "reported. Prints what it chose and why, and the options to use.",
    .options = feed_options,
    .options_bytes = sizeof(struct feed_opts),
    .min_args = 1,
    .max_args = 1,
    .json = json_notes,
    .examples = examples,
    .run = run,
};
