/* The wrappers of calls on files, memory, sockets and processes. */
#undef _FORTIFY_SOURCE
#include "recorder/os/wrap.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What fortified programs call instead; the last size is the buffer's. */
ssize_t __read_chk(int fd, void *to, size_t n, size_t cap);
ssize_t __pread_chk(int fd, void *to, size_t n, off_t offset, size_t cap);
ssize_t __pread64_chk(int fd, void *to, size_t n, off64_t offset, size_t cap);
ssize_t __recv_chk(int fd, void *to, size_t n, size_t cap, int flags);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);

/* ---- reads and writes ---- */

RECORD_EXPORT ssize_t read(int fd, void *to, size_t n){
    WRAP(read, ssize_t, (fd, to, n), syscall(SYS_read, fd, to, n), result)} RECORD_EXPORT ssize_t
    __read_chk(int fd, void *to, size_t n, size_t cap){
        WRAP(__read_chk, ssize_t, (fd, to, n, cap), -1, result)} RECORD_EXPORT ssize_t
    pread(int fd, void *to, size_t n,
          off_t offset){WRAP(pread, ssize_t, (fd, to, n, offset), -1, result)} RECORD_EXPORT ssize_t
    pread64(int fd, void *to, size_t n, off64_t offset){
        WRAP(pread64, ssize_t, (fd, to, n, offset), -1, result)} RECORD_EXPORT ssize_t
    __pread_chk(int fd, void *to, size_t n, off_t offset, size_t cap){
        WRAP(__pread_chk, ssize_t, (fd, to, n, offset, cap), -1, result)} RECORD_EXPORT ssize_t
    __pread64_chk(int fd, void *to, size_t n, off64_t offset, size_t cap){
        WRAP(__pread64_chk, ssize_t, (fd, to, n, offset, cap), -1, result)} RECORD_EXPORT ssize_t
    readv(int fd, const struct iovec *to,
          int n){WRAP(readv, ssize_t, (fd, to, n), -1, result)} RECORD_EXPORT ssize_t
    preadv(int fd, const struct iovec *to, int n, off_t offset){
        WRAP(preadv, ssize_t, (fd, to, n, offset), -1, result)} RECORD_EXPORT ssize_t
    preadv64(int fd, const struct iovec *to, int n, off64_t offset){
        WRAP(preadv64, ssize_t, (fd, to, n, offset), -1, result)} RECORD_EXPORT ssize_t
    write(int fd, const void *from,
          size_t n){WRAP(write, ssize_t, (fd, from, n), syscall(SYS_write, fd, from, n),
                         result)} RECORD_EXPORT ssize_t
    pwrite(int fd, const void *from, size_t n, off_t offset){
        WRAP(pwrite, ssize_t, (fd, from, n, offset), -1, result)} RECORD_EXPORT ssize_t
    pwrite64(int fd, const void *from, size_t n, off64_t offset){
        WRAP(pwrite64, ssize_t, (fd, from, n, offset), -1, result)} RECORD_EXPORT ssize_t
    writev(int fd, const struct iovec *from,
           int n){WRAP(writev, ssize_t, (fd, from, n), -1, result)} RECORD_EXPORT ssize_t
    sendfile(int to, int from, off_t *offset, size_t n){
        WRAP(sendfile, ssize_t, (to, from, offset, n), -1, result)} RECORD_EXPORT ssize_t
    sendfile64(int to, int from, off64_t *offset,
               size_t n){WRAP(sendfile64, ssize_t, (to, from, offset, n), -1, result)} RECORD_EXPORT
    int fsync(int fd){WRAP(fsync, int, (fd), -1, 0)} RECORD_EXPORT
    int fdatasync(int fd){WRAP(fdatasync, int, (fd), -1, 0)}

/* ---- opening and closing ---- */

/* The mode argument exists only if the flags say so. */
#define READ_MODE(flags)                                                                           \
    mode_t mode = 0;                                                                               \
    if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) {                                     \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode = va_arg(list, mode_t);                                                               \
        va_end(list);                                                                              \
    }

RECORD_EXPORT int open(const char *path, int flags, ...){
    READ_MODE(flags) WRAP(open, int, (path, flags, mode),
                          (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), 0)} RECORD_EXPORT
    int open64(const char *path, int flags, ...){
        READ_MODE(flags) WRAP(open64, int, (path, flags, mode),
                              (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode),
                              0)} RECORD_EXPORT
    int openat(int folder, const char *path, int flags, ...){
        READ_MODE(flags) WRAP(openat, int, (folder, path, flags, mode),
                              (int)syscall(SYS_openat, folder, path, flags, mode), 0)} RECORD_EXPORT
    int openat64(int folder, const char *path, int flags, ...){
        READ_MODE(flags) WRAP(openat64, int, (folder, path, flags, mode),
                              (int)syscall(SYS_openat, folder, path, flags | O_LARGEFILE, mode),
                              0)} RECORD_EXPORT int __open_2(const char *path, int flags){
        WRAP(__open_2, int, (path, flags), -1, 0)} RECORD_EXPORT
    int __open64_2(const char *path,
                   int flags){WRAP(__open64_2, int, (path, flags), -1, 0)} RECORD_EXPORT
    int __openat_2(int folder, const char *path,
                   int flags){WRAP(__openat_2, int, (folder, path, flags), -1, 0)} RECORD_EXPORT
    int __openat64_2(int folder, const char *path,
                     int flags){WRAP(__openat64_2, int, (folder, path, flags), -1, 0)} RECORD_EXPORT
    int close(int fd){WRAP(close, int, (fd), (int)syscall(SYS_close, fd), 0)}

/* ---- streams of the C library, whose own reads do not pass here ---- */

RECORD_EXPORT FILE *fopen(const char *restrict path, const char *restrict mode){
    WRAP(fopen, FILE *, (path, mode), NULL,
         0)} RECORD_EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode){
    WRAP(fopen64, FILE *, (path, mode), NULL, 0)} RECORD_EXPORT
    int fclose(FILE *file){WRAP(fclose, int, (file), EOF, 0)} RECORD_EXPORT size_t
    fread(void *restrict to, size_t size, size_t n, FILE *restrict file){
        WRAP(fread, size_t, (to, size, n, file), 0, result *size)} RECORD_EXPORT size_t
    fwrite(const void *restrict from, size_t size, size_t n, FILE *restrict file){
        WRAP(fwrite, size_t, (from, size, n, file), 0, result *size)} RECORD_EXPORT
    int fflush(FILE *file){WRAP(fflush, int, (file), EOF, 0)}

/* ---- memory and devices ---- */

RECORD_EXPORT void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset){
    WRAP(mmap, void *, (at, n, protection, flags, fd, offset),
         (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset),
         result == MAP_FAILED ? 0 : n)} RECORD_EXPORT
    void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset){
        WRAP(mmap64, void *, (at, n, protection, flags, fd, offset),
             (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset),
             result == MAP_FAILED ? 0 : n)} RECORD_EXPORT int munmap(void *at, size_t n){
        WRAP(munmap, int, (at, n), (int)syscall(SYS_munmap, at, n), n)} RECORD_EXPORT
    int mlock(const void *at, size_t n){WRAP(mlock, int, (at, n), -1, n)} RECORD_EXPORT
    int munlock(const void *at, size_t n){WRAP(munlock, int, (at, n), -1, n)} RECORD_EXPORT
    int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    WRAP(ioctl, int, (fd, request, argument), -1, 0)
}

/* ---- sockets ---- */

RECORD_EXPORT ssize_t recv(int fd, void *to, size_t n, int flags){
    WRAP(recv, ssize_t, (fd, to, n, flags), -1, result)} RECORD_EXPORT ssize_t
    __recv_chk(int fd, void *to, size_t n, size_t cap, int flags){
        WRAP(__recv_chk, ssize_t, (fd, to, n, cap, flags), -1, result)} RECORD_EXPORT ssize_t
    recvfrom(int fd, void *restrict to, size_t n, int flags, struct sockaddr *restrict from,
             socklen_t *restrict bytes){
        WRAP(recvfrom, ssize_t, (fd, to, n, flags, from, bytes), -1, result)} RECORD_EXPORT ssize_t
    recvmsg(int fd, struct msghdr *message, int flags){
        WRAP(recvmsg, ssize_t, (fd, message, flags), -1, result)} RECORD_EXPORT ssize_t
    send(int fd, const void *from, size_t n,
         int flags){WRAP(send, ssize_t, (fd, from, n, flags), -1, result)} RECORD_EXPORT ssize_t
    sendto(int fd, const void *from, size_t n, int flags, const struct sockaddr *to,
           socklen_t bytes){
        WRAP(sendto, ssize_t, (fd, from, n, flags, to, bytes), -1, result)} RECORD_EXPORT ssize_t
    sendmsg(int fd, const struct msghdr *message,
            int flags){WRAP(sendmsg, ssize_t, (fd, message, flags), -1, result)} RECORD_EXPORT
    int accept(int fd, struct sockaddr *restrict from,
               socklen_t *restrict bytes){WRAP(accept, int, (fd, from, bytes), -1, 0)} RECORD_EXPORT
    int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict bytes,
                int flags){WRAP(accept4, int, (fd, from, bytes, flags), -1, 0)} RECORD_EXPORT
    int connect(int fd, const struct sockaddr *to,
                socklen_t bytes){WRAP(connect, int, (fd, to, bytes), -1, 0)}

/* ---- processes ---- */

RECORD_EXPORT pid_t wait(int *status){WRAP(wait, pid_t, (status), -1, 0)} RECORD_EXPORT pid_t
    waitpid(pid_t pid, int *status,
            int options){WRAP(waitpid, pid_t, (pid, status, options), -1, 0)} RECORD_EXPORT pid_t
    wait3(int *status, int options, struct rusage *usage){
        WRAP(wait3, pid_t, (status, options, usage), -1, 0)} RECORD_EXPORT pid_t
    wait4(pid_t pid, int *status, int options, struct rusage *usage){
        WRAP(wait4, pid_t, (pid, status, options, usage), -1, 0)} RECORD_EXPORT
    int waitid(idtype_t type, id_t id, siginfo_t *info,
               int options){WRAP(waitid, int, (type, id, info, options), -1, 0)}

/* Workers of Python's multiprocessing end so: without this their last records would be lost. */
RECORD_EXPORT void _exit(int status)
{
    if (record_os_traced || record_sampling)
        record_os_leave();
    for (;;)
        syscall(SYS_exit_group, status);
}
RECORD_EXPORT void _Exit(int status)
{
    _exit(status);
}
