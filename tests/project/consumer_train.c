/* A user's program with libmillrace-train: a step of an optimizer, and an error out of
 * libmillrace's mr_last_error(). */
#include <millrace/nn.h>
#include <millrace/optim.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    float param = 1, grad = 1;
    struct mr_optim *optim;
    int rc = mr_optim_create(NULL, "sgd:lr=0.5,threads=1", MR_F32, 1, NULL, 0, &optim);
    if (rc == 0)
        rc = mr_optim_step(optim, &param, &grad, NULL);
    if (rc < 0) {
        fprintf(stderr, "%s\n", mr_last_error());
        return 1;
    }
    mr_optim_destroy(optim);
    rc = mr_optim_create(NULL, "no-such-optimizer", MR_F32, 1, NULL, 0, &optim);
    printf("%g; %d: %s\n", (double)param, rc, mr_last_error());
    return param == 0.5f && rc == MR_EOPTION && strstr(mr_last_error(), "no-such-optimizer") ? 0
                                                                                             : 1;
}
