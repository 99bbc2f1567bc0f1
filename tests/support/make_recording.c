/* Writes a recording of a simulated training loop, for the tests of the program: make_recording
 * KIND FILE. */
#include "job_make.h"
#include "loop_sim.h"

static int usage(void)
{
    fprintf(stderr, "usage: make_recording good|pageable|starved|empty|"
                    "{loader,compute,even}[:RANK] FILE\n");
    return 2;
}

/* A job of three ranks, of which rank 1 may be slow; all, or one rank whose clock differs. Returns
 * whether the kind is one. */
static bool make_job(const char *kind, const char *path)
{
    struct job job = job_plain(3);
    const char *rank = strchr(kind, ':');
    if (strncmp(kind, "loader", 6) == 0)
        job.load_ns[1] = 12000000;
    else if (strncmp(kind, "compute", 7) == 0)
        job.compute_ns[1] = 9000000;
    else if (strncmp(kind, "even", 4) != 0)
        return false;
    if (rank)
        job_record_rank(&job, (uint32_t)atoi(rank + 1), path, (uint64_t)atoi(rank + 1) * 3000000,
                        true);
    else
        job_record(&job, path);
    return true;
}

int main(int argc, char **argv)
{
    struct loop l = loop_plain();
    struct make m;
    if (argc != 3)
        return usage();
    if (make_job(argv[1], argv[2]))
        return 0;
    if (strcmp(argv[1], "pageable") == 0) {
        l.pageable = l.sync_each = true;
        l.copy_stream = false;
        l.device = "NVIDIA H100 80GB HBM3";
    } else if (strcmp(argv[1], "starved") == 0) {
        l.n_workers = 2;
        l.load_ns = 12000000;
    } else if (strcmp(argv[1], "empty") == 0) {
        l.n_steps = 0;
    } else if (strcmp(argv[1], "good") != 0) {
        return usage();
    }
    if (l.n_steps > 0) {
        mr_recording_close(loop_record(argv[2], &l, NULL));
        return 0;
    }
    make_begin(&m, argv[2]);
    make_end(&m);
    return 0;
}
