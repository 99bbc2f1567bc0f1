/*
 * The way by which each call of a kind came about: the return addresses on the stack. Of thousands
 * of calls most come the same way as others. A sweep that would take hours may let only the first
 * few of each way fail, and the last.
 */
#ifndef FAULT_PATHS_H
#define FAULT_PATHS_H

#include <stdint.h>

/* Where calls are noted: in memory, or in a file that a program which this one runs notes them in
 * too. */
void paths_open(const char *file);
/* From now on calls of this kind are noted; -1: none. */
void paths_note(int kind);
/* Call n of a kind, from any thread. */
void paths_call(int kind, uint64_t n);

/* Of calls that were noted so many of each way are chosen, as MILLRACE_FAULT_PATHS says, where
 * there are more than 1000; without the variable, all. Forgets what was noted. */
void paths_choose(void);
/* The first call from n on (from 1) that was chosen, or that was not noted. */
uint64_t paths_next(uint64_t n);

#endif
