/* Another host's network, for one daemon: it listens on and speaks from $ALIQUOT_TEST_ADDRESS (of 127.0.0.0/8), as a
 * dynamic node's slurmctld takes the address that a registration came from, and the port that all have in common. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int mine(struct sockaddr_in *own)
{
    const char *text = getenv("ALIQUOT_TEST_ADDRESS");
    memset(own, 0, sizeof *own);
    own->sin_family = AF_INET;
    return text != NULL && inet_pton(AF_INET, text, &own->sin_addr) == 1;
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = (typeof(real))dlsym(RTLD_NEXT, "bind");
    struct sockaddr_in own, given;
    if (address->sa_family == AF_INET && length >= sizeof given && mine(&own)) {
        memcpy(&given, address, sizeof given);
        own.sin_port = given.sin_port;
        if (given.sin_addr.s_addr == htonl(INADDR_ANY) && given.sin_port != 0)
            return real(fd, (struct sockaddr *)&own, sizeof own);
    }
    return real(fd, address, length);
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = (typeof(real))dlsym(RTLD_NEXT, "connect");
    int (*name)(int, const struct sockaddr *, socklen_t) = (typeof(name))dlsym(RTLD_NEXT, "bind");
    struct sockaddr_in own, bound;
    socklen_t size = sizeof bound;
    if (address->sa_family == AF_INET && mine(&own) && getsockname(fd, (struct sockaddr *)&bound, &size) == 0 &&
        bound.sin_port == 0)
        name(fd, (struct sockaddr *)&own, sizeof own);
    return real(fd, address, length);
}
