/*
 * Names of copies, memory and calls, for every table, finding and picture.
 *
 * Two sets of numbers are in use. Rows of the database have the export's, with long labels; events
 * in memory have CUPTI's, where 0 is "unknown", with short ones.
 */
#ifndef MR_RECORDING_LABELS_H
#define MR_RECORDING_LABELS_H

#include <stdbool.h>
#include <stdint.h>

/* "Host-to-Device", "Pinned": of the export's numbers. */
const char *mr_copy_label(int64_t kind);
const char *mr_memory_label(int64_t kind);

/* "H2D", "pinned": of CUPTI's numbers. */
const char *mr_copy_kind_text(uint8_t kind);
const char *mr_mem_kind_text(uint8_t kind);

/* Whether a device's name says that it is a simulated one (src/device/sim): "simulated (...)". */
bool mr_name_simulated(const char *device);

/* Length in bytes of a call's name without its version: "cudaMemcpy_v3020" -> 10. */
int mr_call_name_bytes(const char *name);

#endif
