/* Memory and processes. */
#include "shim.h"


/* -- memory */

struct memory_v1 {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

API int nvmlDeviceGetMemoryInfo(handle h, struct memory_v1 *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetMemoryInfo");
    if (!rc) /* version 1 counts reserved memory as used */
        *out = (struct memory_v1){(unsigned long long)r.number[0], (unsigned long long)r.number[2],
                                  (unsigned long long)(r.number[1] + r.number[3])};
    return rc;
}

API int nvmlDeviceGetMemoryInfo_v2(handle h, struct memory_v2 *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (2u << 24 | sizeof *out))
        return VERSION_MISMATCH;
    int rc = ask_device(&r, h, "DeviceGetMemoryInfo");
    if (!rc)
        *out = (struct memory_v2){out->version, (unsigned long long)r.number[0], (unsigned long long)r.number[1],
                                  (unsigned long long)r.number[2], (unsigned long long)r.number[3]};
    return rc;
}

API int nvmlDeviceGetBAR1MemoryInfo(handle h, struct memory_v1 *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetBAR1MemoryInfo");
    if (!rc)
        *out = (struct memory_v1){(unsigned long long)r.number[0], (unsigned long long)r.number[1],
                                  (unsigned long long)r.number[2]};
    return rc;
}

/* -- processes */

struct process_v1 {
    unsigned pid;
    unsigned long long memory;
};

struct process_v2 {
    unsigned pid;
    unsigned long long memory;
    unsigned gi, ci;
};

struct process_detail {
    unsigned pid;
    unsigned long long memory;
    unsigned gi, ci;
    unsigned long long protected_memory;
};

struct process_detail_list {
    unsigned version, mode, count;
    struct process_detail *entries;
};

static int ask_processes(struct reply *r, handle h, unsigned *count, const void *out)
{
    if (!count)
        return INVALID_ARGUMENT;
    int rc = ask_device(r, h, "DeviceGetComputeRunningProcesses");
    if (rc)
        return rc;
    unsigned have = (unsigned)r->count / 4, room = *count;
    *count = have;
    return have && (!out || room < have) ? INSUFFICIENT_SIZE : SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *count, struct process_v2 *out)
{
    struct reply r;
    int rc = ask_processes(&r, h, count, out);
    for (unsigned i = 0; !rc && i < *count; i++) {
        const long long *n = r.number + 4 * i;
        out[i] = (struct process_v2){(unsigned)n[0], (unsigned long long)n[1], (unsigned)n[2], (unsigned)n[3]};
    }
    return rc;
}

API int nvmlDeviceGetComputeRunningProcesses_v2(handle h, unsigned *count, struct process_v2 *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(h, count, out);
}

API int nvmlDeviceGetComputeRunningProcesses(handle h, unsigned *count, struct process_v1 *out)
{
    struct reply r;
    int rc = ask_processes(&r, h, count, out);
    for (unsigned i = 0; !rc && i < *count; i++)
        out[i] = (struct process_v1){(unsigned)r.number[4 * i], (unsigned long long)r.number[4 * i + 1]};
    return rc;
}

/* All simulated processes compute; there are no other kinds. */
static int none_of(handle h, unsigned *count)
{
    struct address a;
    struct reply r;
    int rc = open_handle(h, DEVICE, MIG_DEVICE, &a);
    if (!count)
        return INVALID_ARGUMENT;
    if (!rc)
        rc = ask(&r, "DeviceGetUUID " WORDS, PLACE(a));
    if (!rc)
        *count = 0;
    return rc;
}

#define NO_PROCESSES(name) \
    API int name(handle h, unsigned *count, void *out) { (void)out; return none_of(h, count); }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

API int nvmlDeviceGetRunningProcessDetailList(handle h, struct process_detail_list *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (1u << 24 | sizeof *out))
        return VERSION_MISMATCH;
    if (out->mode == 1 || out->mode == 2)
        return none_of(h, &out->count);
    int rc = ask_processes(&r, h, &out->count, out->entries);
    for (unsigned i = 0; !rc && i < out->count; i++) {
        const long long *n = r.number + 4 * i;
        out->entries[i] = (struct process_detail){(unsigned)n[0], (unsigned long long)n[1], (unsigned)n[2],
                                                  (unsigned)n[3], 0};
    }
    return rc;
}
