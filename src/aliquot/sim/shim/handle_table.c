/* Handles, and requests to the node about their targets. */
#include "shim.h"

#include <string.h>

handle make_handle(enum kind kind, long long gpu, long long gi, long long ci)
{
    uintptr_t packed = (uintptr_t)0x4D << 40 | (uintptr_t)kind << 32;
    return (handle)(packed | (uintptr_t)(gpu & 0xFF) << 16 | (uintptr_t)(gi & 0xFF) << 8 | (uintptr_t)(ci & 0xFF));
}

int open_handle(handle h, enum kind kind, enum kind other, struct address *a)
{
    uintptr_t packed = (uintptr_t)h;
    enum kind found = (enum kind)(packed >> 32 & 0xFF);
    if (packed >> 40 != 0x4D || (found != kind && found != other))
        return INVALID_ARGUMENT;
    a->gpu = (int)(packed >> 16 & 0xFF);
    a->gi = found == DEVICE ? -1 : (int)(packed >> 8 & 0xFF);
    a->ci = found == DEVICE || found == GPU_INSTANCE ? -1 : (int)(packed & 0xFF);
    return SUCCESS;
}

int copy_text(const struct reply *r, char *out, unsigned length)
{
    size_t need = strlen(r->text) + 1;
    if (need > length)
        return INSUFFICIENT_SIZE;
    memcpy(out, r->text, need);
    return SUCCESS;
}

int ask_device(struct reply *r, handle h, const char *call)
{
    struct address a;
    int rc = open_handle(h, DEVICE, MIG_DEVICE, &a);
    return rc ? rc : ask(r, "%s " WORDS, call, PLACE(a));
}

int ask_device_about(struct reply *r, handle h, const char *call, int argument)
{
    struct address a;
    int rc = open_handle(h, DEVICE, MIG_DEVICE, &a);
    return rc ? rc : ask(r, "%s " WORDS " %d", call, PLACE(a), argument);
}

int device_text(handle h, const char *call, char *out, unsigned length)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, call);
    return rc ? rc : copy_text(&r, out, length);
}
