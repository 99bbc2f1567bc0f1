/*
 * The lists of the simulated accelerator (sim.h says what order they keep): the devices that are
 * open, and the operations and marks of their streams. All but the first call and spares_free()
 * need mr_sim_lock.
 */
#ifndef MR_DEVICE_SIM_ORDER_H
#define MR_DEVICE_SIM_ORDER_H

#include "device/sim/sim.h"

/* Before the first device: a forked child begins with no devices and a free lock. */
void mr_sim_forks_watch(void);

/* Adds a device that opens, with the lowest number from `first` on that no open one has. */
void mr_sim_devices_add(struct sim_device *sim, uint32_t first);
void mr_sim_devices_remove(struct sim_device *sim);

/* An operation, all 0 but for its args; NULL: no memory. Given back, it is kept for the next. */
struct sim_op *mr_sim_op_take(struct sim_device *sim);
void mr_sim_op_give(struct sim_device *sim, struct sim_op *op);
/* A mark, all 0; NULL: no memory. The last of its users that leaves gives it back; NULL is allowed
 * there. */
struct sim_mark *mr_sim_mark_take(struct sim_device *sim);
void mr_sim_mark_leave(struct sim_device *sim, struct sim_mark *mark);
/* Frees what was given back, once the engines have stopped. */
void mr_sim_spares_free(struct sim_device *sim);

/* Puts an operation at the end of a stream; removes the one at its head, which is done. */
void mr_sim_append(struct sim_device *sim, struct sim_stream *s, struct sim_op *op);
void mr_sim_pop(struct sim_device *sim, struct sim_stream *s);
/* After any change of a device: passes the marks that can pass, and wakes engines for what is then
 * at the heads of streams. */
void mr_sim_settle(struct sim_device *sim);

#endif
