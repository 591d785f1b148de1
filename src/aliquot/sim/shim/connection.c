/* Connections to the node's server: a pool shared by all threads, one session per process. */
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POOL 64

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int idle[POOL], idle_count;
static unsigned epoch;       /* increases when pooled connections become invalid */
static unsigned sessions;    /* number of sessions that this process opened */
static int references;       /* calls of nvmlInit minus calls of nvmlShutdown */
static char token[64];
static char folder[4096];    /* directory of this library and of the socket */
static int home = -1;        /* descriptor of that directory */

static void forget_connections(void)
{
    while (idle_count > 0)
        close(idle[--idle_count]);
    epoch++;
}

static void new_token(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(token, sizeof token, "%d-%u-%lld%09ld", (int)getpid(), ++sessions, (long long)now.tv_sec, now.tv_nsec);
}

static void in_child(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    forget_connections();
    new_token(); /* its own session */
}

/* Mount point of a node's directory in a container; the same as in aliquot.cdi.options. /run may be a symbolic link. */
#define MOUNTED "/run/aliquot-sim"
static int mounted;

int in_container(void) { return mounted; }

__attribute__((constructor)) static void find_home(void)
{
    Dl_info info;
    char path[4096];
    if (!dladdr((void *)find_home, &info) || !realpath(info.dli_fname, path))
        return;
    strcpy(folder, dirname(path));
    size_t length = strlen(folder), end = strlen(MOUNTED);
    mounted = length >= end && !strcmp(folder + length - end, MOUNTED);
    pthread_atfork(NULL, NULL, in_child);
}

/* A node that was stopped and started again has another directory with the same name. */
static void open_home(void)
{
    int found = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (found < 0)
        return;
    if (home < 0) {
        home = found;
        return;
    }
    dup3(found, home, O_CLOEXEC);
    close(found);
}

/* A socket path is limited to 107 bytes, a state directory may have more: connect through the open directory. */
static int dial(void)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    snprintf(where.sun_path, sizeof where.sun_path, "/proc/self/fd/%d/nvml.sock", home);
    if (connect(fd, (struct sockaddr *)&where, sizeof where) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The server stores its start command in the parent directory, because it may have been killed. */
static int revive(void)
{
    char words[8192], *argument[8], *save = NULL;
    int count = 0, fd = openat(home, "../server.argv", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, words, sizeof words - 1);
    close(fd);
    if (length <= 0)
        return 0;
    words[length] = 0;
    char *path = strtok_r(words, "\n", &save);
    for (char *word; count < 7 && (word = strtok_r(NULL, "\n", &save));)
        argument[count++] = word;
    argument[count] = NULL;
    if (!path || count < 2)
        return 0;

    int variables = 0;
    while (environ[variables])
        variables++;
    char **env = calloc((size_t)variables + 2, sizeof *env);
    if (!env)
        return 0;
    int kept = 0;
    for (int i = 0; i < variables; i++)
        if (strncmp(environ[i], "PYTHONPATH=", 11) && strncmp(environ[i], "LD_LIBRARY_PATH=", 16))
            env[kept++] = environ[i];
    env[kept++] = path;

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    int failed = posix_spawn(&child, argument[0], &actions, &attributes, argument, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(env);
    if (!failed)
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ; /* it detaches the server and ends */
    return !failed;
}

static int dial_or_revive(void)
{
    int fd = dial();
    if (fd >= 0 || faccessat(home, "calls.jsonl", F_OK, 0) < 0 || !revive())
        return fd; /* a node that was stopped stays stopped */
    struct timespec pause = {0, 20 * 1000 * 1000};
    for (int i = 0; i < 500 && fd < 0; i++) {
        nanosleep(&pause, NULL);
        fd = dial();
    }
    return fd;
}

static int send_all(int fd, const char *data, size_t length)
{
    while (length) {
        ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return 0;
        data += sent;
        length -= (size_t)sent;
    }
    return 1;
}

static int receive_line(int fd, char *line, size_t room)
{
    size_t have = 0;
    while (have + 1 < room) {
        ssize_t got = recv(fd, line + have, room - 1 - have, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        have += (size_t)got;
        if (line[have - 1] == '\n') {
            line[have - 1] = 0;
            return 1;
        }
    }
    return 0;
}

static int parse(struct reply *r)
{
    char *bar = strchr(r->line, '|'), *at = r->line, *end;
    r->text = "";
    if (bar) {
        *bar = 0;
        r->text = bar + 1;
    }
    long rc = strtol(at, &end, 10);
    if (end == at)
        return UNKNOWN;
    r->count = 0;
    for (at = end; r->count < MAX_NUMBERS; at = end) {
        long long value = strtoll(at, &end, 10);
        if (end == at)
            break;
        r->number[r->count++] = value;
    }
    return (int)rc;
}

/* Return a connection that has joined this process's session, or -1; then "refused" is the code to return. A call
 * that opens a session may be refused, or hang in the driver. A call that joins an open session does neither. */
static int joined(const char *name, int *refused)
{
    char line[128];
    *refused = DRIVER_NOT_LOADED;
    struct timespec pause = {0, 20 * 1000 * 1000};
    for (int i = 0; i < 100; i++) {
        int fd = dial_or_revive();
        if (fd < 0)
            return -1;
        snprintf(line, sizeof line, "hello %s%s\n", name, restricted() ? " restricted" : "");
        if (send_all(fd, line, strlen(line)) && receive_line(fd, line, sizeof line)) {
            if (!strcmp(line, "0"))
                return fd;
            i = 100; /* the server answers with a refusal */
            *refused = atoi(line);
        }
        close(fd);
        nanosleep(&pause, NULL); /* a server that is being killed still accepts for a moment */
    }
    return -1;
}

static int take(unsigned *taken_in, char *name)
{
    int fd = -1, refused;
    pthread_mutex_lock(&lock);
    int open_sessions = references;
    if (idle_count > 0)
        fd = idle[--idle_count];
    *taken_in = epoch;
    memcpy(name, token, sizeof token);
    pthread_mutex_unlock(&lock);
    if (!open_sessions)
        return -2;
    return fd >= 0 ? fd : joined(name, &refused);
}

static void give(int fd, unsigned taken_in)
{
    pthread_mutex_lock(&lock);
    int keep = taken_in == epoch && idle_count < POOL && references;
    if (keep)
        idle[idle_count++] = fd;
    pthread_mutex_unlock(&lock);
    if (!keep)
        close(fd);
}

static int exchange(struct reply *r, int repeatable, const char *format, va_list arguments)
{
    char line[1024], name[sizeof token];
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    if (length < 0 || length >= (int)sizeof line - 1 || strchr(line, '\n'))
        return INVALID_ARGUMENT;
    line[length++] = '\n';
    for (int i = 0; i < 3; i++) {
        unsigned taken_in;
        int fd = take(&taken_in, name);
        if (fd == -2)
            return UNINITIALIZED;
        if (fd < 0)
            return DRIVER_NOT_LOADED;
        int sent = send_all(fd, line, (size_t)length);
        if (sent && receive_line(fd, r->line, sizeof r->line)) {
            give(fd, taken_in);
            return parse(r);
        }
        close(fd);
        pthread_mutex_lock(&lock);
        forget_connections(); /* the server is gone: the other connections are invalid, too */
        pthread_mutex_unlock(&lock);
        if (sent && !repeatable)
            return UNKNOWN; /* it may or may not have been executed */
    }
    return UNKNOWN;
}

int ask(struct reply *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int rc = exchange(r, 1, format, arguments);
    va_end(arguments);
    return rc;
}

int ask_once(struct reply *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int rc = exchange(r, 0, format, arguments);
    va_end(arguments);
    return rc;
}

int session_open(void)
{
    pthread_mutex_lock(&lock);
    if (references > 0) {
        references++;
        pthread_mutex_unlock(&lock);
        return SUCCESS;
    }
    new_token();
    open_home();
    int refused = DRIVER_NOT_LOADED;
    int fd = home < 0 ? -1 : joined(token, &refused);
    if (fd >= 0) {
        references = 1;
        idle[idle_count++] = fd;
    }
    pthread_mutex_unlock(&lock);
    return fd < 0 ? refused : SUCCESS;
}

int session_close(void)
{
    struct reply r;
    pthread_mutex_lock(&lock);
    int before = references;
    if (references > 1)
        references--;
    pthread_mutex_unlock(&lock);
    if (before == 0)
        return UNINITIALIZED;
    if (before > 1)
        return SUCCESS;
    ask(&r, "Shutdown");
    pthread_mutex_lock(&lock);
    references = 0;
    forget_connections();
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int unimplemented(const char *name)
{
    struct reply r;
    int rc = ask(&r, "unimplemented %s", name);
    return rc == UNINITIALIZED ? UNINITIALIZED : NOT_SUPPORTED;
}
