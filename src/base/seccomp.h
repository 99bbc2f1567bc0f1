/*
 * A process that only computes: a system call filter (seccomp) for code that decodes data from
 * untrusted sources.
 *
 * What is left: memory without PROT_EXEC, advice on it but for MADV_HWPOISON and such, futexes,
 * clocks, and the end of the process. There are no files, sockets, processes or signals to others;
 * reading and writing descriptors that are open is refused, too. A refused call kills the process
 * with SIGSYS. The filter cannot be removed.
 */
#ifndef MR_BASE_SECCOMP_H
#define MR_BASE_SECCOMP_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Confines the calling process, which must have one thread. refused: gets the number of the system
 * call that killed it, plus 1; it lives as long as the process.
 * Returns 0, MR_EUNSUPPORTED (this processor's filter is not written), or -errno: the kernel has no
 * filters.
 */
int mr_seccomp_enter(_Atomic int32_t *refused);

#endif
