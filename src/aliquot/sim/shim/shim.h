/* A libnvidia-ml.so.1 for a simulated node: every call becomes one line to the node's server, and its answer.
 *
 * Names, numbers and layouts are NVML's published interface (nvml.h 13), reproduced as far as they are used here. A
 * function that is not implemented returns NOT_SUPPORTED and is logged in the node; none is guessed. */
#ifndef ALIQUOT_SHIM_H
#define ALIQUOT_SHIM_H

#include <stdint.h>

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* A handle is a number stored as a pointer: the kind and the address for the server. It is never dereferenced. As
 * with the driver, the handle of a destroyed instance becomes valid again for a later one at the same placement. */
enum kind { DEVICE = 1, GPU_INSTANCE, COMPUTE_INSTANCE, MIG_DEVICE };

typedef void *handle;

struct address {
    int gpu, gi, ci;
};

handle make_handle(enum kind kind, long long gpu, long long gi, long long ci);
int open_handle(handle h, enum kind kind, enum kind other, struct address *a);

#define MAX_NUMBERS 1024

struct reply {
    int count;
    long long number[MAX_NUMBERS];
    const char *text;
    char line[16384];
};

/* Send one request, printf-style, and return NVML's code. Numbers and text of the answer are in the reply. */
int ask(struct reply *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a call that changes something: it is not repeated if the server dies meanwhile. */
int ask_once(struct reply *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The server's address of a target, as three words. */
#define WORDS "%d %d %d"
#define PLACE(a) (a).gpu, (a).gi, (a).ci

/* A call about a GPU or MIG device, with at most one further number; the answer's text. */
int ask_device(struct reply *r, handle h, const char *call);
int ask_device_about(struct reply *r, handle h, const char *call, int argument);
int device_text(handle h, const char *call, char *out, unsigned length);

int copy_text(const struct reply *r, char *out, unsigned length);
int unimplemented(const char *name);

/* What this process may access (container_access.c): whether a target is visible; the node's index from the
 * caller's, INVALID_ARGUMENT past the last; whether the process lacks permission to change or list instances. */
int visible(const struct address *a);
int node_index(unsigned *index);
int restricted(void);
int in_container(void);
API int nvmlDeviceGetIndex(handle h, unsigned *out);
API int nvmlDeviceGetSupportedEventTypes(handle h, unsigned long long *out);

int session_open(void);
int session_close(void);

#endif
