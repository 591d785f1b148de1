/* MIG: mode, GPU instances, compute instances and MIG devices. */
#include "shim.h"

#include <stdio.h>

struct placement {
    unsigned start, size;
};

static int on_gpu(handle h, struct address *a) { return open_handle(h, DEVICE, DEVICE, a); }
static int on_device(handle h, struct address *a) { return open_handle(h, DEVICE, MIG_DEVICE, a); }
static int on_instance(handle h, struct address *a) { return open_handle(h, GPU_INSTANCE, GPU_INSTANCE, a); }
static int on_compute(handle h, struct address *a) { return open_handle(h, COMPUTE_INSTANCE, COMPUTE_INSTANCE, a); }

/* -- mode */

API int nvmlDeviceGetMigMode(handle h, unsigned *current, unsigned *pending)
{
    struct reply r;
    struct address a;
    if (!current || !pending || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetMigMode " WORDS, PLACE(a));
    if (!rc)
        *current = (unsigned)r.number[0], *pending = (unsigned)r.number[1];
    return rc;
}

API int nvmlDeviceSetMigMode(handle h, unsigned mode, int *activation)
{
    struct reply r;
    struct address a;
    if (!activation || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask_once(&r, "DeviceSetMigMode " WORDS " %u", PLACE(a), mode);
    *activation = rc ? rc : (int)r.number[0];
    return rc;
}

/* -- GPU instance profiles */

struct gpu_profile_v1 {
    unsigned id, p2p, slices, instances, sm, ce, dec, enc, jpeg, ofa;
    unsigned long long memory;
};

struct gpu_profile_v2 {
    unsigned version, id, p2p, slices, instances, sm, ce, dec, enc, jpeg, ofa;
    unsigned long long memory;
    char name[96];
};

struct gpu_profile_v3 {
    unsigned version, id, slices, instances, sm, ce, dec, enc, jpeg, ofa;
    unsigned long long memory;
    char name[96];
    unsigned capabilities;
};

enum { ID, P2P, SLICES, INSTANCES, SM, CE, DEC, ENC, JPEG, OFA, MEMORY, CAPABILITIES };

#define N(i) ((unsigned)r.number[i])

static int gpu_profile(const char *call, handle h, unsigned key, void *out)
{
    struct reply r;
    struct address a;
    if (!out || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    unsigned version = *(unsigned *)out;
    if (version != (2u << 24 | sizeof(struct gpu_profile_v2)) && version != (3u << 24 | sizeof(struct gpu_profile_v3)))
        return VERSION_MISMATCH;
    int rc = ask(&r, "%s " WORDS " %d", call, PLACE(a), (int)key);
    if (rc)
        return rc;
    if (version >> 24 == 2) {
        struct gpu_profile_v2 *p = out;
        *p = (struct gpu_profile_v2){version, N(ID), N(P2P), N(SLICES), N(INSTANCES), N(SM), N(CE), N(DEC), N(ENC),
                                     N(JPEG), N(OFA), (unsigned long long)r.number[MEMORY], ""};
        snprintf(p->name, sizeof p->name, "%s", r.text);
    } else {
        struct gpu_profile_v3 *p = out;
        *p = (struct gpu_profile_v3){version, N(ID), N(SLICES), N(INSTANCES), N(SM), N(CE), N(DEC), N(ENC), N(JPEG),
                                     N(OFA), (unsigned long long)r.number[MEMORY], "", N(CAPABILITIES)};
        snprintf(p->name, sizeof p->name, "%s", r.text);
    }
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(handle h, unsigned index, void *out)
{
    return gpu_profile("DeviceGetGpuInstanceProfileInfo", h, index, out);
}

API int nvmlDeviceGetGpuInstanceProfileInfoByIdV(handle h, unsigned id, void *out)
{
    return gpu_profile("DeviceGetGpuInstanceProfileInfoById", h, id, out);
}

API int nvmlDeviceGetGpuInstanceProfileInfo(handle h, unsigned index, struct gpu_profile_v1 *out)
{
    struct gpu_profile_v2 p = {.version = 2u << 24 | sizeof p};
    if (!out)
        return INVALID_ARGUMENT;
    int rc = gpu_profile("DeviceGetGpuInstanceProfileInfo", h, index, &p);
    if (!rc)
        *out = (struct gpu_profile_v1){p.id,  p.p2p, p.slices, p.instances, p.sm,    p.ce,
                                       p.dec, p.enc, p.jpeg,   p.ofa,       p.memory};
    return rc;
}

/* Lists: NULL requests only the count. */
static int placements(const struct reply *r, struct placement *out, unsigned *count)
{
    *count = (unsigned)r->count / 2;
    for (unsigned i = 0; out && i < *count; i++)
        out[i] = (struct placement){(unsigned)r->number[2 * i], (unsigned)r->number[2 * i + 1]};
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle h, unsigned id, struct placement *out, unsigned *count)
{
    struct reply r;
    struct address a;
    if (!count || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetGpuInstancePossiblePlacements " WORDS " %d", PLACE(a), (int)id);
    return rc ? rc : placements(&r, out, count);
}

API int nvmlDeviceGetGpuInstancePossiblePlacements(handle h, unsigned id, struct placement *out, unsigned *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(h, id, out, count);
}

API int nvmlDeviceGetGpuInstanceRemainingCapacity(handle h, unsigned id, unsigned *count)
{
    struct reply r;
    struct address a;
    if (!count || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetGpuInstanceRemainingCapacity " WORDS " %d", PLACE(a), (int)id);
    if (!rc)
        *count = N(0);
    return rc;
}

/* -- GPU instances */

API int nvmlDeviceCreateGpuInstance(handle h, unsigned id, handle *out)
{
    struct reply r;
    struct address a;
    if (!out || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask_once(&r, "DeviceCreateGpuInstance " WORDS " %d", PLACE(a), (int)id);
    if (!rc)
        *out = make_handle(GPU_INSTANCE, a.gpu, r.number[0], 0);
    return rc;
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(handle h, unsigned id, const struct placement *at, handle *out)
{
    struct reply r;
    struct address a;
    if (!at || !out || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask_once(&r, "DeviceCreateGpuInstanceWithPlacement " WORDS " %d %u %u", PLACE(a), (int)id, at->start,
                      at->size);
    if (!rc)
        *out = make_handle(GPU_INSTANCE, a.gpu, r.number[0], 0);
    return rc;
}

API int nvmlGpuInstanceDestroy(handle h)
{
    struct reply r;
    struct address a;
    int rc = on_instance(h, &a);
    return rc ? rc : ask_once(&r, "GpuInstanceDestroy " WORDS, PLACE(a));
}

API int nvmlDeviceGetGpuInstances(handle h, unsigned id, handle *out, unsigned *count)
{
    struct reply r;
    struct address a;
    if (!count || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetGpuInstances " WORDS " %d", PLACE(a), (int)id);
    if (rc)
        return rc;
    *count = (unsigned)r.count;
    for (unsigned i = 0; out && i < *count; i++)
        out[i] = make_handle(GPU_INSTANCE, a.gpu, r.number[i], 0);
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceById(handle h, unsigned id, handle *out)
{
    struct reply r;
    struct address a;
    if (!out || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetGpuInstanceById " WORDS " %d", PLACE(a), (int)id);
    if (!rc)
        *out = make_handle(GPU_INSTANCE, a.gpu, r.number[0], 0);
    return rc;
}

struct gpu_instance {
    handle device;
    unsigned id, profile;
    struct placement placement;
};

API int nvmlGpuInstanceGetInfo(handle h, struct gpu_instance *out)
{
    struct reply r;
    struct address a;
    if (!out || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "GpuInstanceGetInfo " WORDS, PLACE(a));
    if (!rc)
        *out = (struct gpu_instance){make_handle(DEVICE, a.gpu, 0, 0), N(0), N(1), {N(2), N(3)}};
    return rc;
}

/* -- compute instance profiles */

struct compute_profile_v1 {
    unsigned id, slices, instances, sm, ce, dec, enc, jpeg, ofa;
};

struct compute_profile_v2 {
    unsigned version, id, slices, instances, sm, ce, dec, enc, jpeg, ofa;
    char name[96];
};

struct compute_profile_v3 {
    unsigned version, id, slices, instances, sm, ce, dec, enc, jpeg, ofa;
    char name[96];
    unsigned capabilities;
};

API int nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle h, unsigned index, unsigned engine,
                                                      struct compute_profile_v2 *out)
{
    struct reply r;
    struct address a;
    if (!out || on_instance(h, &a))
        return INVALID_ARGUMENT;
    unsigned version = out->version;
    if (version != (2u << 24 | sizeof(struct compute_profile_v2)) &&
        version != (3u << 24 | sizeof(struct compute_profile_v3)))
        return VERSION_MISMATCH;
    int rc = ask(&r, "GpuInstanceGetComputeInstanceProfileInfo " WORDS " %d %d", PLACE(a), (int)index, (int)engine);
    if (rc)
        return rc;
    *out = (struct compute_profile_v2){version, N(0), N(1), N(2), N(3), N(4), N(5), N(6), N(7), N(8), ""};
    snprintf(out->name, sizeof out->name, "%s", r.text);
    if (version >> 24 == 3)
        ((struct compute_profile_v3 *)out)->capabilities = N(9);
    return SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfo(handle h, unsigned index, unsigned engine,
                                                     struct compute_profile_v1 *out)
{
    struct compute_profile_v2 p = {.version = 2u << 24 | sizeof p};
    if (!out)
        return INVALID_ARGUMENT;
    int rc = nvmlGpuInstanceGetComputeInstanceProfileInfoV(h, index, engine, &p);
    if (!rc)
        *out = (struct compute_profile_v1){p.id, p.slices, p.instances, p.sm, p.ce, p.dec, p.enc, p.jpeg, p.ofa};
    return rc;
}

API int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(handle h, unsigned id, unsigned *count)
{
    struct reply r;
    struct address a;
    if (!count || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "GpuInstanceGetComputeInstanceRemainingCapacity " WORDS " %d", PLACE(a), (int)id);
    if (!rc)
        *count = N(0);
    return rc;
}

API int nvmlGpuInstanceGetComputeInstancePossiblePlacements(handle h, unsigned id, struct placement *out,
                                                            unsigned *count)
{
    struct reply r;
    struct address a;
    if (!count || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "GpuInstanceGetComputeInstancePossiblePlacements " WORDS " %d", PLACE(a), (int)id);
    return rc ? rc : placements(&r, out, count);
}

/* -- compute instances */

API int nvmlGpuInstanceCreateComputeInstance(handle h, unsigned id, handle *out)
{
    struct reply r;
    struct address a;
    if (!out || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask_once(&r, "GpuInstanceCreateComputeInstance " WORDS " %d", PLACE(a), (int)id);
    if (!rc)
        *out = make_handle(COMPUTE_INSTANCE, a.gpu, a.gi, r.number[0]);
    return rc;
}

API int nvmlGpuInstanceCreateComputeInstanceWithPlacement(handle h, unsigned id, const struct placement *at,
                                                          handle *out)
{
    struct reply r;
    struct address a;
    if (!at || !out || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask_once(&r, "GpuInstanceCreateComputeInstanceWithPlacement " WORDS " %d %u %u", PLACE(a), (int)id,
                      at->start, at->size);
    if (!rc)
        *out = make_handle(COMPUTE_INSTANCE, a.gpu, a.gi, r.number[0]);
    return rc;
}

API int nvmlComputeInstanceDestroy(handle h)
{
    struct reply r;
    struct address a;
    int rc = on_compute(h, &a);
    return rc ? rc : ask_once(&r, "ComputeInstanceDestroy " WORDS, PLACE(a));
}

API int nvmlGpuInstanceGetComputeInstances(handle h, unsigned id, handle *out, unsigned *count)
{
    struct reply r;
    struct address a;
    if (!count || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "GpuInstanceGetComputeInstances " WORDS " %d", PLACE(a), (int)id);
    if (rc)
        return rc;
    *count = (unsigned)r.count;
    for (unsigned i = 0; out && i < *count; i++)
        out[i] = make_handle(COMPUTE_INSTANCE, a.gpu, a.gi, r.number[i]);
    return SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstanceById(handle h, unsigned id, handle *out)
{
    struct reply r;
    struct address a;
    if (!out || on_instance(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "GpuInstanceGetComputeInstanceById " WORDS " %d", PLACE(a), (int)id);
    if (!rc)
        *out = make_handle(COMPUTE_INSTANCE, a.gpu, a.gi, r.number[0]);
    return rc;
}

struct compute_instance_v1 {
    handle device, gpu_instance;
    unsigned id, profile;
};

struct compute_instance {
    handle device, gpu_instance;
    unsigned id, profile;
    struct placement placement;
};

API int nvmlComputeInstanceGetInfo_v2(handle h, struct compute_instance *out)
{
    struct reply r;
    struct address a;
    if (!out || on_compute(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "ComputeInstanceGetInfo " WORDS, PLACE(a));
    if (!rc)
        *out = (struct compute_instance){make_handle(DEVICE, a.gpu, 0, 0), make_handle(GPU_INSTANCE, a.gpu, a.gi, 0),
                                         N(0), N(1), {N(2), N(3)}};
    return rc;
}

API int nvmlComputeInstanceGetInfo(handle h, struct compute_instance_v1 *out)
{
    struct compute_instance full;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = nvmlComputeInstanceGetInfo_v2(h, &full);
    if (!rc)
        *out = (struct compute_instance_v1){full.device, full.gpu_instance, full.id, full.profile};
    return rc;
}

/* -- MIG devices */

API int nvmlDeviceIsMigDeviceHandle(handle h, unsigned *out)
{
    struct reply r;
    struct address a;
    if (!out || on_device(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetUUID " WORDS, PLACE(a)); /* a destroyed device is not a valid handle any more */
    if (!rc)
        *out = a.gi >= 0;
    return rc;
}

static int part_of_handle(handle h, unsigned *out, int compute)
{
    struct reply r;
    struct address a;
    if (!out || on_device(h, &a))
        return INVALID_ARGUMENT;
    if (a.gi < 0)
        return NOT_SUPPORTED;
    int rc = ask(&r, "DeviceGetUUID " WORDS, PLACE(a));
    if (!rc)
        *out = (unsigned)(compute ? a.ci : a.gi);
    return rc;
}

API int nvmlDeviceGetGpuInstanceId(handle h, unsigned *out) { return part_of_handle(h, out, 0); }
API int nvmlDeviceGetComputeInstanceId(handle h, unsigned *out) { return part_of_handle(h, out, 1); }

API int nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *out)
{
    struct reply r;
    struct address a;
    if (!out || on_gpu(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetMaxMigDeviceCount " WORDS, PLACE(a));
    if (!rc)
        *out = N(0);
    return rc;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle h, handle *out)
{
    struct address a;
    if (!out || open_handle(h, MIG_DEVICE, MIG_DEVICE, &a))
        return INVALID_ARGUMENT;
    *out = make_handle(DEVICE, a.gpu, 0, 0);
    return SUCCESS;
}

struct attributes {
    unsigned sm, ce, dec, enc, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory;
};

API int nvmlDeviceGetAttributes_v2(handle h, struct attributes *out)
{
    struct reply r;
    struct address a;
    if (!out || on_device(h, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetAttributes " WORDS, PLACE(a));
    if (!rc)
        *out = (struct attributes){N(0), N(1), N(2), N(3), N(4), N(5), N(6), N(7), (unsigned long long)r.number[8]};
    return rc;
}

API int nvmlDeviceGetAttributes(handle h, struct attributes *out) { return nvmlDeviceGetAttributes_v2(h, out); }
