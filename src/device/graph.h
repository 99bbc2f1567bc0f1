/* Recorded work of devices that play their streams themselves ("cpu", "sim"): an array of the
 * device's own operations. */
#ifndef MR_DEVICE_GRAPH_H
#define MR_DEVICE_GRAPH_H

#include "device/device.h"

struct mr_op_list {
    void *ops;
    uint64_t n, room;
};

/* Appends a copy of `bytes`, the same for every operation of a list. Returns 0, -ENOMEM. */
int mr_op_list_add(struct mr_op_list *list, const void *op, size_t bytes);
void mr_op_list_clear(struct mr_op_list *list);

#endif
