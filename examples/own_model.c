/*
 * An optimizer and a schedule on arrays of your own: fits a line to points. Any model works that
 * has its parameters in one array and its gradients in another.
 *
 *   cc own_model.c $(pkg-config --cflags --libs millrace) -o own_model && ./own_model
 */
#include <millrace/optim.h>
#include <stdio.h>

#define POINTS 64
#define STEPS  400

/* Computes the mean squared error of y = w[0] x + w[1], and its gradient. Returns the error. */
static double gradient(const double w[2], double g[2])
{
    double error = 0;
    g[0] = g[1] = 0;
    for (int i = 0; i < POINTS; i++) {
        double x = i / (double)POINTS, y = 3 * x - 1 + (i % 2 ? 0.05 : -0.05);
        double d = w[0] * x + w[1] - y;
        g[0] += 2 * d * x / POINTS;
        g[1] += 2 * d / POINTS;
        error += d * d / POINTS;
    }
    return error;
}

int main(void)
{
    double w[2] = {0, 0}, g[2], error = 0;
    struct mr_optim *optim = NULL;
    struct mr_schedule *schedule = NULL;
    /* Only the slope has weight decay; the second group is the offset. */
    const struct mr_optim_group groups[] = {{0, 1, NULL}, {1, 1, "weight_decay=0"}};
    const char *spec = "adamw:lr=0.1,weight_decay=1e-4,clip_norm=1";
    int rc = mr_optim_create(NULL, spec, MR_F64, 2, groups, 2, &optim); /* NULL: on the host */
    if (rc < 0)
        goto done;
    rc = mr_schedule_parse("warmup:20,cosine:400/per=iteration", &schedule);
    if (rc < 0)
        goto done;
    for (unsigned step = 0; step < STEPS; step++) {
        error = gradient(w, g);
        rc = mr_optim_follow(optim, schedule, step, 0);
        if (rc < 0)
            goto done;
        rc = mr_optim_step(optim, w, g, NULL);
        if (rc < 0)
            goto done;
        if (step % 100 == 0)
            printf("step %3u: error %.6f, lr %.4f\n", step, error, mr_optim_get_lr(optim, 0));
    }
    printf("y = %.3f x %+.3f, error %.6f\n", w[0], w[1], error);
done:
    if (rc < 0)
        fprintf(stderr, "%s\n", mr_last_error());
    mr_schedule_destroy(schedule);
    mr_optim_destroy(optim);
    return rc < 0 || error > 0.01; /* the noise alone gives 0.0025 */
}
