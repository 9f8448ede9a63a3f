/*
 * Lets user-mode-linux 6.1 run on processors with more registers than it knows.
 *
 * It keeps the floating point registers of its processes in 2696 bytes, which AVX-512 fits. With AMX the host wants 11008 to
 * set any (EFAULT otherwise), and the first process dies. What it does not know stays as it is.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NT_X86_XSTATE 0x202

long ptrace(enum __ptrace_request request, ...)
{
    static char whole[1 << 16];
    struct iovec all = {whole, sizeof whole};

    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    long address = va_arg(rest, long);
    void *data = va_arg(rest, void *);
    va_end(rest);

    if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE &&
        syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) == 0) {
        struct iovec *known = data;
        if (known->iov_len < all.iov_len) {
            memcpy(whole, known->iov_base, known->iov_len);
            data = &all;
        }
    }
    /* The system call writes what it has read; the function returns it. */
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        long word;
        long failed = syscall(SYS_ptrace, request, pid, address, &word);
        return failed ? failed : word;
    }
    return syscall(SYS_ptrace, request, pid, address, data);
}
