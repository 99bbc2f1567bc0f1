/* What devices need from the host: memory locked in place by the system, and exact sleep. */
#ifndef MR_DEVICE_HOST_H
#define MR_DEVICE_HOST_H

#include "device/device.h"

#include <sched.h>

/* The part of the host that is nearest to a device. */
struct mr_host_near {
    int node;        /* memory node; -1: unknown, no preference */
    char cpus[2048]; /* its processors as the kernel lists them: "0-15,32-47"; "": unknown */
};
/* Of a PCI device, such as "0000:17:00.0". */
void mr_host_near_find(const char *pci_id, struct mr_host_near *out);
/* Those of its processors that the calling thread may use. Returns how many, or 0: none, or all
 * that the thread may use are near. */
int mr_host_near_cpus(const struct mr_host_near *near, cpu_set_t *out);
/* Pages that are not touched yet come from this node, if it has free ones. Returns whether the
 * system allows that: containers often forbid mbind. */
bool mr_host_prefer_node(void *ptr, uint64_t bytes, int node);
extern const char *mr_host_sysfs; /* "/sys"; tests have their own */

/*
 * Creates anonymous pages, huge ones where the system allows them, touched by several threads
 * unless kind is MR_PAGEABLE. near: preferred memory node; NULL: none. bytes: a multiple of 4,096.
 * [out] out: on success; mr_host_memory_destroy() frees it. Returns 0, -ENOMEM, MR_ECANCELLED.
 */
int mr_host_pages_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes,
                         const struct mr_host_near *near, void **out);

/*
 * Creates such pages for devices without a driver, locked when kind is MR_PINNED. When the system
 * refuses to lock them, the memory is still returned, with one warning per device.
 * [out] out, out_locked: on success. Returns 0, -ENOMEM, MR_ECANCELLED.
 */
int mr_host_memory_create(struct mr_device *dev, enum mr_memory kind, uint64_t bytes, void **out,
                          uint64_t *out_locked);
void mr_host_memory_destroy(void *ptr, uint64_t bytes);

/* The one warning per device that memory could not be locked. why: "mlock: ...". */
void mr_host_warn_not_locked(struct mr_device *dev, uint64_t bytes, const char *why);

/* mr_memory_register() and mr_memory_unregister() by mlock. */
int mr_host_register(struct mr_device *dev, void *ptr, uint64_t bytes);
int mr_host_unregister(struct mr_device *dev, void *ptr, uint64_t bytes);

/* Sleeps until mr_time_ns() has reached the time; waits of less than 30 us are spun. */
void mr_sleep_until(uint64_t time_ns);

#endif
