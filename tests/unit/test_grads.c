/*
 * White-box (nn/net.h). Gradients that are reported while the backward pass goes on: the rest of
 * the pass leaves them alone. Sums beside the pass send them at that moment.
 */
#include "unit.h"

#include "nn/net.h"
#include <millrace/nn.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 4
#define MOST  64

struct pass {
    struct mr_device *dev;
    struct mr_stream *stream;
    struct mr_net *net;
    float *grads;       /* the net's */
    float *seen;        /* as they were when reported */
    uint64_t n, before; /* before: what the last report said */
    uint64_t reported[MOST];
    uint32_t n_reported;
    uint64_t sample; /* values of one */
};

static void open_pass(struct pass *p, const char *device, const char *model, uint32_t channels,
                      uint32_t height)
{
    struct mr_net_opts o;
    void *params, *grads, *low;
    *p = (struct pass){.sample = (uint64_t)channels * height * height};
    mr_net_opts_init(&o);
    o.model = model;
    o.channels = channels;
    o.height = o.width = height;
    o.classes = 5;
    o.max_batch = BATCH;
    o.threads = 2;
    assert_int_equal(mr_device_open(device, &p->dev), 0);
    assert_int_equal(mr_stream_create(p->dev, "test", &p->stream), 0);
    assert_int_equal(mr_net_create(p->dev, &o, &p->net), 0);
    mr_net_flat(p->net, &params, &grads, &low);
    p->grads = grads;
    p->n = p->before = p->net->n_flat;
    p->seen = calloc(p->n, sizeof *p->seen);
    assert_non_null(p->seen);
}

static void close_pass(struct pass *p)
{
    free(p->seen);
    mr_net_destroy(p->net);
    mr_stream_destroy(p->stream);
    mr_device_close(p->dev);
}

static int train(struct pass *p)
{
    float *input = calloc(BATCH * p->sample, sizeof *input);
    int32_t labels[BATCH] = {0, 1, 2, 3};
    const struct mr_net_batch batch = {.size = sizeof batch,
                                       .input = input,
                                       .input_dtype = MR_F32,
                                       .n = BATCH,
                                       .labels = labels,
                                       .label_dtype = MR_I32};
    for (uint64_t i = 0; i < BATCH * p->sample; i++)
        input[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    int rc = mr_net_train(p->net, &batch, p->stream);
    if (rc == 0)
        rc = mr_stream_synchronize(p->stream);
    free(input);
    return rc;
}

static int on_grads(void *user, uint64_t first)
{
    struct pass *p = user;
    assert_true(first <= p->before && p->n_reported < MOST);
    memcpy(p->seen + first, p->grads + first, (p->before - first) * sizeof *p->seen);
    p->before = p->reported[p->n_reported++] = first;
    return 0;
}

static bool was_reported(const struct pass *p, uint64_t first)
{
    for (uint32_t i = 0; i < p->n_reported; i++)
        if (p->reported[i] == first)
            return true;
    return false;
}

static void check_parts(const struct pass *p, uint64_t least, uint32_t most)
{
    uint64_t parts[MOST], end = p->n;
    uint32_t n = mr_net_grad_parts(p->net, least, parts, most);
    assert_true(n >= 1 && n <= most);
    assert_int_equal(parts[n - 1], 0);
    for (uint32_t i = 0; i < n; end = parts[i++]) {
        assert_true(parts[i] < end);
        assert_true(was_reported(p, parts[i]));
        if (i + 1 < n)
            assert_true(end - parts[i] >= least);
    }
}

static void check_model(const char *model, uint32_t channels, uint32_t height)
{
    struct pass p;
    open_pass(&p, "cpu", model, channels, height);
    mr_net_on_grads(p.net, on_grads, &p);
    assert_int_equal(mr_net_set_step(p.net, 0, p.stream), 0);
    assert_int_equal(train(&p), 0);
    assert_int_equal(p.before, 0);
    assert_memory_equal(p.seen, p.grads, p.n * sizeof *p.seen);
    for (uint64_t least = 1; least <= 2 * p.n; least *= 3)
        for (uint32_t most = 1; most <= 8; most++)
            check_parts(&p, least, most);
    close_pass(&p);
}

static void reported_gradients_are_final(void **state)
{
    (void)state;
    check_model("softmax", 1, 6);
    check_model("mlp:30s,20r", 1, 6);
    check_model("mnist-cnn", 1, 12);
    check_model("resnet20", 3, 16);
}

static int refuse(void *user, uint64_t first)
{
    (void)first;
    ++*(int *)user;
    return MR_EPEER;
}

/* What the callback returns ends the pass. On a device with a queue, the call that waits for the
 * pass returns it, once. */
static void check_error(const char *device, bool queued)
{
    struct pass p;
    struct mr_net_totals totals = {.size = sizeof totals};
    int calls = 0;
    open_pass(&p, device, "mlp:30s,20r", 1, 4);
    mr_net_on_grads(p.net, refuse, &calls);
    assert_int_equal(train(&p), queued ? 0 : MR_EPEER);
    assert_int_equal(mr_net_query_totals(p.net, p.stream, &totals), queued ? MR_EPEER : 0);
    assert_int_equal(calls, 1);
    mr_net_on_grads(p.net, NULL, NULL);
    assert_int_equal(train(&p), 0);
    assert_int_equal(mr_net_query_totals(p.net, p.stream, &totals), 0);
    close_pass(&p);
}

static void an_error_ends_the_pass(void **state)
{
    (void)state;
    check_error("cpu", false);
    check_error("sim", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reported_gradients_are_final),
        cmocka_unit_test(an_error_ends_the_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
