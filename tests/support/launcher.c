/* python -m aliquot ..., through the fork server whose sockets lie in this program's folder: for shell scripts and
 * other programs that start a command. Where the server refuses, or there is a terminal, the real interpreter starts.
 *
 * Sent: the count of words, the working directory, the words, the environment, each with its NUL; and descriptors 0, 1
 * and 2. Then signals that arrive here, a byte each. Received: the wait status, or -1 for a refusal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char TOOLS[] = "aliquot.sim.tools.", SIMULATOR[] = "aliquot.sim.server";
static const char *const large[] = {LARGE};

enum { REFUSED = -1, LOST = -2 };
extern char **environ;
static int server = -1;
static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof(passed_on) / sizeof(*passed_on) };

static void pass_on(int number)
{
    char byte = (char)number;
    if (write(server, &byte, 1) != 1)
        _exit(128 + number);
}

static char *put(char *to, const char *text)
{
    return stpcpy(to, text) + 1;
}

/* The request, or NULL if it cannot represent the start. */
static char *request(char **words, size_t *size)
{
    char folder[PATH_MAX];
    int32_t count = 0;
    size_t length = sizeof(count) + PATH_MAX;
    if (!getcwd(folder, sizeof(folder)))
        return NULL;
    for (char **each = words; *each; each++, count++)
        length += strlen(*each) + 1;
    for (char **each = environ; *each; each++)
        length += strlen(*each) + 1;
    char *body = malloc(length), *end = body + sizeof(count);
    if (!body)
        return NULL;
    memcpy(body, &count, sizeof(count));
    end = put(end, folder);
    for (char **each = words; *each; each++)
        end = put(end, *each);
    for (char **each = environ; *each; each++)
        end = put(end, *each);
    *size = (size_t)(end - body);
    return body;
}

/* The server that forks for a command, as forkserver.py has it. */
static const char *role(char **words)
{
    if (!strncmp(words[0], TOOLS, sizeof(TOOLS) - 1))
        return "tools";
    if (!strcmp(words[0], SIMULATOR))
        return "lean";
    if (strcmp(words[0], "aliquot"))
        return "full";
    for (size_t n = 0; words[1] && n < sizeof(large) / sizeof(*large); n++)
        if (!strcmp(words[1], large[n]))
            return "full";
    return words[1] && !strcmp(words[1], "slurm") && words[2] && !strcmp(words[2], "controller") ? "full" : "lean";
}

static int reach(char **words)
{
    char own[PATH_MAX] = {0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (readlink("/proc/self/exe", own, sizeof(own) - 1) < 0)
        return -1;
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dirname(own), role(words));
    if (length >= (int)sizeof(address.sun_path))
        return -1;
    int found = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return found >= 0 && !connect(found, (struct sockaddr *)&address, sizeof(address)) ? found : -1;
}

/* The status of the program that the server forked, REFUSED, or LOST where the server has ended: the program may run. */
static int32_t ask(char **words)
{
    size_t size = 0;
    char *body = request(words, &size);
    int32_t length = (int32_t)size, status = LOST;
    int fds[3] = {0, 1, 2};
    union {
        char space[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec head = {&length, sizeof(length)};
    struct msghdr message = {.msg_iov = &head, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(rights), fds, sizeof(fds));
    if (!body || sendmsg(server, &message, MSG_NOSIGNAL) != sizeof(length))
        return REFUSED;
    for (size_t sent = 0; sent < size;) {
        ssize_t more = send(server, body + sent, size - sent, MSG_NOSIGNAL);
        if (more <= 0)
            return REFUSED; /* It forks for a whole request only. */
        sent += (size_t)more;
    }
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    for (int n = 0; n < PASSED_ON; n++)
        sigaction(passed_on[n], &action, NULL);
    return recv(server, &status, sizeof(status), MSG_WAITALL) == sizeof(status) ? status : LOST;
}

static int none_ignored(void)
{
    struct sigaction now;
    for (int n = 0; n < PASSED_ON; n++)
        if (sigaction(passed_on[n], NULL, &now) || now.sa_handler == SIG_IGN)
            return 0;
    return 1;
}

int main(int count, char **words)
{
    if (none_ignored() && count > 2 && !strcmp(words[1], "-m") && !isatty(0) && !isatty(1)) {
        server = reach(words + 2);
        int32_t status = server >= 0 ? ask(words + 2) : REFUSED;
        if (status >= 0 && WIFSIGNALED(status)) {
            signal(WTERMSIG(status), SIG_DFL);
            raise(WTERMSIG(status));
        }
        if (status >= 0)
            return WEXITSTATUS(status);
        if (status == LOST) {
            fputs("the fork server has ended\n", stderr);
            return 70;
        }
        for (int n = 0; n < PASSED_ON; n++)
            signal(passed_on[n], SIG_DFL);
    }
    words[0] = PYTHON;
    execv(PYTHON, words);
    perror(PYTHON);
    return 127;
}
