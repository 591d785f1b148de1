/* A tripwire for one process, loaded with LD_PRELOAD. It counts fsync and fdatasync, and raises TRIP_SIGNAL just "before"
 * or just "after" (TRIP_WHEN) the TRIP_AT-th real call. SIGKILL ends the process at that point. SIGSTOP stops it while a
 * test changes its environment. Each call that was made appends one byte to TRIP_LOG.
 *
 * Only this process is affected: its children do not inherit the library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static long count, at;
static int after, number, record = -1;

__attribute__((constructor)) static void leave_children_out(void)
{
    unsetenv("LD_PRELOAD");
}

/* Runs at the first call, not at the start: a fork server loads this library before it knows what it forks. */
static void set(void)
{
    const char *log = getenv("TRIP_LOG"), *when = getenv("TRIP_WHEN"), *nth = getenv("TRIP_AT");
    const char *name = getenv("TRIP_SIGNAL");
    at = nth ? atol(nth) : 0;
    after = when && !strcmp(when, "after");
    number = name ? atoi(name) : SIGKILL;
    if (log)
        record = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int trip(const char *call, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    pthread_once(&once, set);
    pthread_mutex_lock(&turn);
    int now = ++count == at;
    pthread_mutex_unlock(&turn);
    if (now && !after)
        kill(getpid(), number);
    int answer = real(fd);
    if (record >= 0 && write(record, ".", 1) != 1)
        abort();
    if (now && after)
        kill(getpid(), number);
    return answer;
}

int fsync(int fd)
{
    return trip("fsync", fd);
}

int fdatasync(int fd)
{
    return trip("fdatasync", fd);
}
