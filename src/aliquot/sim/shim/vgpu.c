/* Sharing a GPU with VMs: mixed-size mode ("heterogeneous" in NVML). */
#include "shim.h"

struct heterogeneous_mode {
    unsigned version, mode;
};

/* NVML's version word: the structure's size, and its number in the highest byte. */
enum { MODE_VERSION = sizeof(struct heterogeneous_mode) | 1 << 24 };

static int open_mode(handle h, const struct heterogeneous_mode *mode, struct address *a)
{
    if (!mode || open_handle(h, DEVICE, DEVICE, a))
        return INVALID_ARGUMENT;
    return mode->version == MODE_VERSION ? SUCCESS : VERSION_MISMATCH;
}

API int nvmlDeviceGetVgpuHeterogeneousMode(handle h, struct heterogeneous_mode *mode)
{
    struct reply r;
    struct address a;
    int rc = open_mode(h, mode, &a);
    if (!rc)
        rc = ask(&r, "DeviceGetVgpuHeterogeneousMode " WORDS, PLACE(a));
    if (!rc)
        mode->mode = (unsigned)r.number[0];
    return rc;
}

API int nvmlDeviceSetVgpuHeterogeneousMode(handle h, const struct heterogeneous_mode *mode)
{
    struct reply r;
    struct address a;
    int rc = open_mode(h, mode, &a);
    return rc ? rc : ask_once(&r, "DeviceSetVgpuHeterogeneousMode " WORDS " %u", PLACE(a), mode->mode);
}
