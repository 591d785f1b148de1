/* A tripwire for one process, loaded with LD_PRELOAD: it counts fsync and fdatasync, and at the TRIP_AT-th call raises
 * TRIP_SIGNAL just "before" or just "after" the real call (TRIP_WHEN). SIGKILL cuts the process off there; SIGSTOP holds
 * it there while a test does something to the world. TRIP_LOG gets one byte for each call that was made.
 *
 * Only this process is meant: its children do not inherit it.
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

/* At the first call and not at the start: a fork server has this library loaded before it knows what it forks. */
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
