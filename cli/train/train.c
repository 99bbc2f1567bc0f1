/* One net's training: its parts, opened and closed. */
#include "train/train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mr_dtype train_dtype(const struct train_opts *opts)
{
    return opts->amp == TRAIN_BF16 ? MR_BF16 : opts->amp == TRAIN_FP16 ? MR_F16 : MR_F32;
}

uint32_t train_outputs(const struct mr_net *net)
{
    const struct mr_net_layer *l, *last = NULL;
    for (uint32_t i = 0; (l = mr_net_layer_get(net, i)); i++)
        last = l;
    return last ? last->out[0] * last->out[1] * last->out[2] : 0;
}

/* A loss over what the last layer does not give trains to nonsense without an error. */
static int check_loss(const struct mr_net *net, const struct train_opts *o)
{
    const struct mr_net_layer *l, *last = NULL;
    for (uint32_t i = 0; (l = mr_net_layer_get(net, i)); i++)
        last = l;
    const char *name = last ? last->name : "";
    if (o->loss == MR_NLL && strcmp(name, "log-softmax") != 0)
        return mr_error_set(MR_EOPTION,
                            "--loss nll: wants log-probabilities: a model that ends in logsoftmax, not in %s (%s)",
                            name, last ? last->text : "");
    if (o->loss == MR_CROSS_ENTROPY && strcmp(name, "softmax") == 0)
        cli_warn("--loss cross-entropy takes the softmax itself: leave it out of the model, or learn slowly");
    return 0;
}

int train_net_open(struct train_data *data, const struct train_opts *o, uint32_t max_batch, struct mr_net **out)
{
    struct mr_net_opts no;
    mr_net_opts_init(&no);
    no.model = o->model;
    no.channels = data->shape.c;
    no.height = data->shape.h;
    no.width = data->shape.w;
    no.layout = data->shape.layout;
    no.classes = data->classes;
    no.loss = (enum mr_loss)o->loss;
    no.dtype = train_dtype(o);
    no.tf32 = o->amp == TRAIN_TF32;
    no.max_batch = max_batch;
    no.seed = o->seed;
    no.threads = (uint32_t)o->threads;
    int rc = mr_net_create(data->dev, &no, out);
    return rc == 0 ? check_loss(*out, o) : rc;
}

/* The shortest text that reads back. */
static const char *number_text(double v, char buf[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    return buf;
}

/* "adam" and --lr 0.01 --clip-norm 1 are "adam:lr=0.01,clip_norm=1". */
static int make_optim_text(struct train *t)
{
    const struct train_opts *o = t->opts;
    char lr[48] = "", norm[48] = "", value[48] = "", buf[32];
    const char *mark = strchr(o->optimizer, ':') ? "," : ":";
    if (o->lr >= 0) {
        snprintf(lr, sizeof lr, "%slr=%s", mark, number_text(o->lr, buf));
        mark = ",";
    }
    if (o->clip_norm > 0) {
        snprintf(norm, sizeof norm, "%sclip_norm=%s", mark, number_text(o->clip_norm, buf));
        mark = ",";
    }
    if (o->clip_value > 0)
        snprintf(value, sizeof value, "%sclip_value=%s", mark, number_text(o->clip_value, buf));
    if (asprintf(&t->optim_text, "%s%s%s%s", o->optimizer, lr, norm, value) >= 0)
        return 0;
    t->optim_text = NULL;
    return mr_error_set(-ENOMEM, "train: no memory");
}

/* Steps behind a loss that is not finite change nothing: what is wrong is still to be seen when the host looks. */
static int attach(struct train *t, void *low)
{
    struct mr_optim_extra extra;
    const float *loss_scale;
    mr_optim_extra_init(t->optim, &extra);
    extra.copy = low;
    if (low)
        extra.copy_dtype = train_dtype(t->opts);
    mr_net_scaling(t->net, &loss_scale, &extra.grad_scale, &extra.skip);
    if (!extra.skip)
        extra.skip = mr_net_bad_loss(t->net);
    return mr_optim_attach(t->optim, &extra);
}

static int open_optim(struct train *t)
{
    void *params, *grads, *low;
    char *text = NULL;
    int rc = make_optim_text(t);
    if (rc < 0)
        return rc;
    bool threads = t->opts->threads && !strstr(t->optim_text, "threads=");
    if (asprintf(&text, "%s%sthreads=%llu", t->optim_text, strchr(t->optim_text, ':') ? "," : ":",
                 (unsigned long long)t->opts->threads) < 0)
        return mr_error_set(-ENOMEM, "train: no memory");
    rc = mr_optim_create(t->data->dev, threads ? text : t->optim_text, MR_F32, mr_net_n_params(t->net), NULL, 0,
                         &t->optim);
    free(text);
    mr_net_flat(t->net, &params, &grads, &low);
    return rc == 0 ? attach(t, low) : rc;
}

/* "500" batches or "30s". */
static int parse_every(struct train *t)
{
    const char *text = t->opts->checkpoint_every;
    char *end;
    if (!text)
        return 0;
    static const struct mr_option table[] = {
        {.name = "checkpoint-every", .type = MR_OPT_DURATION, .offset = 0, .min = 1e6, .max = 1e15, .unit = "s"},
        {NULL}};
    uint64_t n = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && end != text && !*end && n > 0) {
        t->every_steps = n;
        return 0;
    }
    return mr_options_set(table, &t->every_ns, "--", "checkpoint-every", text);
}

static int open_sampler(struct train *t)
{
    return mr_sampler_open(t->opts->shuffle ? "random" : "sequential", mr_dataset_length(t->data->ds), t->opts->seed,
                           &t->sampler);
}

static int check_labels(const struct train *t)
{
    const struct train_data *d = t->data;
    uint32_t outputs = train_outputs(t->net);
    int rc = train_check_label(t->ld, d->label, t->opts->loss, outputs, mr_dataset_text(d->ds));
    return rc == 0 && d->test_loader
               ? train_check_label(d->test_loader, d->label, t->opts->loss, outputs, mr_dataset_text(d->test))
               : rc;
}

int train_open(struct train *t, struct train_data *data, const struct train_opts *opts, const struct checkpoint *from)
{
    uint64_t start = mr_time_ns();
    *t = (struct train){
        .data = data, .opts = opts, .start_ns = start, .seconds_to_target = NAN, .best_test_loss = INFINITY};
    int rc = parse_every(t);
    if (rc == 0)
        rc = mr_schedule_parse(opts->schedule, &t->schedule);
    if (rc == 0 && opts->loss == MR_MSE && mr_schedule_wants_more(t->schedule))
        rc = mr_error_set(MR_EOPTION, "--schedule %s: max wants an accuracy, and --loss mse has none", opts->schedule);
    if (rc == 0 && opts->loss == MR_MSE && opts->target > 0)
        rc = mr_error_set(MR_EOPTION, "--target-acc: wants an accuracy, and --loss mse has none");
    if (rc == 0)
        rc = train_net_open(data, opts, (uint32_t)train_batch_size(data->ds, opts->batch_size), &t->net);
    if (rc == 0 && !data->info.unified) /* what libraries load is no epoch's time */
        rc = mr_net_warm_up(t->net, data->stream);
    if (rc == 0)
        rc = open_optim(t);
    if (rc == 0)
        rc = open_sampler(t);
    if (rc == 0 && from)
        rc = train_check_state(t, from);
    if (rc == 0)
        rc = train_loader_open(data, false, t->sampler, from ? checkpoint_get(from, "loader") : NULL, &t->ld);
    if (rc == 0)
        rc = check_labels(t);
    if (rc == 0 && from)
        rc = train_restore(t, from);
    if (rc == 0)
        rc = mr_net_set_step(t->net, t->step, data->stream);
    if (rc == 0)
        rc = mr_net_zero_totals(t->net, data->stream);
    t->opening = (double)(mr_time_ns() - start) * 1e-9;
    return rc;
}

void train_close(struct train *t)
{
    if (t->data && t->data->stream)
        mr_stream_synchronize(t->data->stream);
    mr_loader_close(t->ld);
    for (uint32_t i = 0; i < t->n_graphs; i++)
        mr_graph_destroy(t->graph[i].graph);
    mr_optim_destroy(t->optim);
    mr_net_destroy(t->net);
    mr_schedule_destroy(t->schedule);
    if (t->sampler)
        mr_sampler_destroy(t->sampler);
    free(t->graph);
    free(t->history);
    free(t->optim_text);
    *t = (struct train){0};
}
