/* GPM: how busy a GPU or a GPU instance was between two samples. Hopper and later support it. */
#include "shim.h"

#include <stdlib.h>

/* NVML_GPM_METRIC_*: time in which anything computed, and busy multiprocessors; in percent. */
enum { GRAPHICS_UTIL = 1, SM_UTIL = 2, METRICS = 1024 };
/* These structures have plain numbers as versions, not sizes like the others. */
enum { VERSION = 1 };

struct gpm_support {
    unsigned version, supported;
};

/* A simulated sample: millionths of busy multiprocessors of a GPU or GPU instance. */
struct sample {
    struct address of;
    int taken;
    long long busy;
};

struct metric {
    unsigned id;
    int result;
    double value;
    struct {
        char *name, *title, *unit;
    } info;
};

struct metrics {
    unsigned version, count;
    struct sample *first, *second;
    struct metric metric[];
};

API int nvmlGpmQueryDeviceSupport(handle h, struct gpm_support *out)
{
    struct reply r;
    struct address a;
    if (!out || open_handle(h, DEVICE, MIG_DEVICE, &a))
        return INVALID_ARGUMENT;
    if (out->version != VERSION)
        return VERSION_MISMATCH;
    int rc = ask(&r, "GpmQueryDeviceSupport %d -1 -1", a.gpu);
    if (!rc)
        out->supported = (unsigned)r.number[0];
    return rc;
}

API int nvmlGpmSampleAlloc(struct sample **out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetCount"); /* a session must be open */
    if (!rc)
        *out = calloc(1, sizeof **out);
    return rc ? rc : *out ? SUCCESS : UNKNOWN;
}

API int nvmlGpmSampleFree(struct sample *sample)
{
    free(sample);
    return sample ? SUCCESS : INVALID_ARGUMENT;
}

static int take(struct address of, struct sample *sample)
{
    struct reply r;
    int rc = ask(&r, "GpmSampleGet %d -1 -1 %d", of.gpu, of.gi);
    if (!rc)
        *sample = (struct sample){of, 1, r.number[0]};
    return rc;
}

API int nvmlGpmSampleGet(handle h, struct sample *sample)
{
    struct address a;
    if (!sample || open_handle(h, DEVICE, DEVICE, &a))
        return INVALID_ARGUMENT;
    return take((struct address){a.gpu, -1, -1}, sample);
}

API int nvmlGpmMigSampleGet(handle h, unsigned instance, struct sample *sample)
{
    struct address a;
    if (!sample || instance > 14 || open_handle(h, DEVICE, MIG_DEVICE, &a))
        return INVALID_ARGUMENT;
    return take((struct address){a.gpu, (int)instance, -1}, sample);
}

API int nvmlGpmMetricsGet(struct metrics *wanted)
{
    if (!wanted)
        return INVALID_ARGUMENT;
    if (wanted->version != VERSION)
        return VERSION_MISMATCH;
    const struct sample *one = wanted->first, *two = wanted->second;
    if (!one || !two || wanted->count > METRICS || !one->taken || !two->taken || one->of.gpu != two->of.gpu ||
        one->of.gi != two->of.gi)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < wanted->count; i++) {
        struct metric *metric = wanted->metric + i;
        metric->result = metric->id == GRAPHICS_UTIL || metric->id == SM_UTIL ? SUCCESS : NOT_SUPPORTED;
        if (!metric->result)
            metric->value = (double)(one->busy + two->busy) / 2 / 1e4;
    }
    return SUCCESS;
}
