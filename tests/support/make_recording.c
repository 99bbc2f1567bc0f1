/* Writes a recording of a simulated training loop, for the tests of the program: make_recording
 * KIND FILE. */
#include "loop_sim.h"

static int usage(void)
{
    fprintf(stderr, "usage: make_recording good|pageable|starved|empty FILE\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct loop l = loop_plain();
    struct make m;
    if (argc != 3)
        return usage();
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
