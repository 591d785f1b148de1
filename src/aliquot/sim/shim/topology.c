/* The location of a GPU: its NUMA node and its NVLink fabric. */
#include "shim.h"

#include <stdio.h>
#include <string.h>

API int nvmlDeviceGetMemoryAffinity(handle h, unsigned size, unsigned long *out, unsigned scope)
{
    struct reply r;
    if (!out || !size || scope > 1)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetNumaNode");
    if (rc)
        return rc;
    unsigned node = (unsigned)r.number[0], bits = 8 * sizeof *out;
    memset(out, 0, size * sizeof *out);
    if (node / bits >= size)
        return INSUFFICIENT_SIZE;
    out[node / bits] = 1ul << node % bits;
    return SUCCESS;
}

struct fabric {
    unsigned char cluster[16];
    int status;
    unsigned clique, state;
};

struct fabric_v2 {
    unsigned version;
    struct fabric is;
    unsigned health;
};

struct fabric_v3 {
    unsigned version;
    struct fabric is;
    unsigned health;
    unsigned char summary;
};

API int nvmlDeviceGetGpuFabricInfo(handle h, struct fabric *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetGpuFabricInfo");
    if (rc)
        return rc;
    *out = (struct fabric){.state = (unsigned)r.number[0], .status = (int)r.number[1], .clique = (unsigned)r.number[2]};
    const char *at = r.text;
    for (int i = 0; i < 16; i++, at += 2) {
        at += *at == '-';
        sscanf(at, "%2hhx", &out->cluster[i]);
    }
    return SUCCESS;
}

API int nvmlDeviceGetGpuFabricInfoV(handle h, struct fabric_v3 *out)
{
    if (!out)
        return INVALID_ARGUMENT;
    int third = out->version == (3u << 24 | sizeof(struct fabric_v3));
    if (!third && out->version != (2u << 24 | sizeof(struct fabric_v2)))
        return VERSION_MISMATCH;
    int rc = nvmlDeviceGetGpuFabricInfo(h, &out->is);
    if (rc)
        return rc;
    out->health = 0; /* no statement about bandwidth, access or routes */
    if (third)
        out->summary = 0;
    return SUCCESS;
}
