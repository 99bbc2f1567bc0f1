/* What the two files of `millrace doctor` share. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli.h"

struct doctor_disk {
    uint64_t bytes, ns;
    bool direct;    /* past the page cache */
    bool temporary; /* of a file that we wrote, and removed */
};

/* How fast large reads from files in a folder are: of a big file that lies there, or of a temporary one of `bytes`.
 * Prints errors; returns an exit code. */
int doctor_measure_disk(const char *dir, uint64_t bytes, struct doctor_disk *out);

#endif
