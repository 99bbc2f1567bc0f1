/* Where results go: standard output, alone in it if they are JSON. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static FILE *apart; /* NULL: results go to stdout */

FILE *cli_results(void)
{
    return apart ? apart : stdout;
}

void cli_results_apart(void)
{
    if (!cli.json || apart)
        return;
    fflush(stdout);
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return; /* standard output is closed */
    apart = fdopen(fd, "w");
    if (!apart)
        close(fd);
    else
        dup2(STDERR_FILENO, STDOUT_FILENO);
}

uint32_t cli_columns(void)
{
    return isatty(STDOUT_FILENO) ? 0 : UINT32_MAX;
}

int cli_results_drop(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return mr_error_set(-errno, "/dev/null: %s", strerror(errno));
    fflush(stdout);
    dup2(null, STDOUT_FILENO);
    if (apart)
        dup2(null, fileno(apart));
    close(null);
    return 0;
}

int cli_results_flush(void)
{
    int failed = fflush(stdout) != 0 || ferror(stdout);
    if (apart)
        failed |= fflush(apart) != 0 || ferror(apart);
    return failed;
}
