/* Sharing a GPU with VMs: mixed-size mode ("heterogeneous" in NVML), and the scheduler of time-sliced vGPUs. */
#include "shim.h"

struct heterogeneous_mode {
    unsigned version, mode;
};

/* NVML's version word: the structure's size, and its number in the highest byte. */
enum { MODE_VERSION = sizeof(struct heterogeneous_mode) | 1 << 24 };

static int open_mode(handle h, enum kind kind, const struct heterogeneous_mode *mode, struct address *a)
{
    if (!mode || open_handle(h, kind, kind, a))
        return INVALID_ARGUMENT;
    return mode->version == MODE_VERSION ? SUCCESS : VERSION_MISMATCH;
}

static int get_mode(handle h, enum kind kind, struct heterogeneous_mode *mode, const char *call)
{
    struct reply r;
    struct address a;
    int rc = open_mode(h, kind, mode, &a);
    if (!rc)
        rc = ask(&r, "%s " WORDS, call, PLACE(a));
    if (!rc)
        mode->mode = (unsigned)r.number[0];
    return rc;
}

static int set_mode(handle h, enum kind kind, const struct heterogeneous_mode *mode, const char *call)
{
    struct reply r;
    struct address a;
    int rc = open_mode(h, kind, mode, &a);
    return rc ? rc : ask_once(&r, "%s " WORDS " %u", call, PLACE(a), mode->mode);
}

API int nvmlDeviceGetVgpuHeterogeneousMode(handle h, struct heterogeneous_mode *mode)
{
    return get_mode(h, DEVICE, mode, "DeviceGetVgpuHeterogeneousMode");
}

API int nvmlDeviceSetVgpuHeterogeneousMode(handle h, const struct heterogeneous_mode *mode)
{
    return set_mode(h, DEVICE, mode, "DeviceSetVgpuHeterogeneousMode");
}

API int nvmlGpuInstanceGetVgpuHeterogeneousMode(handle h, struct heterogeneous_mode *mode)
{
    return get_mode(h, GPU_INSTANCE, mode, "GpuInstanceGetVgpuHeterogeneousMode");
}

API int nvmlGpuInstanceSetVgpuHeterogeneousMode(handle h, const struct heterogeneous_mode *mode)
{
    return set_mode(h, GPU_INSTANCE, mode, "GpuInstanceSetVgpuHeterogeneousMode");
}

/* With strict round robin ("ARR"), two numbers; without, only the time slice. */
union scheduler_parameters {
    struct {
        unsigned average, second;
    } strict;
    unsigned time_slice;
};

struct scheduler_state {
    unsigned policy, arr;
    union scheduler_parameters parameters;
};

enum { LOOSE = 1 };

static int get_scheduler(handle h, enum kind kind, struct scheduler_state *state, const char *call)
{
    struct reply r;
    struct address a;
    if (!state || open_handle(h, kind, kind, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "%s " WORDS, call, PLACE(a));
    if (rc)
        return rc;
    state->policy = (unsigned)r.number[0];
    state->arr = (unsigned)r.number[1];
    state->parameters.strict.average = (unsigned)r.number[2];
    state->parameters.strict.second = (unsigned)r.number[3];
    if (state->arr == LOOSE)
        state->parameters.time_slice = (unsigned)r.number[3];
    return rc;
}

static int set_scheduler(handle h, enum kind kind, const struct scheduler_state *state, const char *call)
{
    struct reply r;
    struct address a;
    if (!state || open_handle(h, kind, kind, &a))
        return INVALID_ARGUMENT;
    int loose = state->arr == LOOSE;
    return ask_once(&r, "%s " WORDS " %u %u %u %u", call, PLACE(a), state->policy, state->arr,
                    loose ? state->parameters.time_slice : 0, loose ? 0 : state->parameters.strict.second);
}

API int nvmlDeviceGetVgpuSchedulerState(handle h, struct scheduler_state *state)
{
    return get_scheduler(h, DEVICE, state, "DeviceGetVgpuSchedulerState");
}

API int nvmlDeviceSetVgpuSchedulerState(handle h, const struct scheduler_state *state)
{
    return set_scheduler(h, DEVICE, state, "DeviceSetVgpuSchedulerState");
}

/* The same of a GPU instance, for one engine: only that of graphics has a scheduler. */
struct engine_scheduler {
    unsigned version, engine;
    struct scheduler_state state;
};

enum { GRAPHICS = 1, ENGINE_VERSION = sizeof(struct engine_scheduler) | 1 << 24 };

static int check_engine(const struct engine_scheduler *of)
{
    if (!of)
        return INVALID_ARGUMENT;
    if (of->version != ENGINE_VERSION)
        return VERSION_MISMATCH;
    return of->engine == GRAPHICS ? SUCCESS : INVALID_ARGUMENT;
}

API int nvmlGpuInstanceGetVgpuSchedulerState(handle h, struct engine_scheduler *of)
{
    int rc = check_engine(of);
    return rc ? rc : get_scheduler(h, GPU_INSTANCE, &of->state, "GpuInstanceGetVgpuSchedulerState");
}

API int nvmlGpuInstanceSetVgpuSchedulerState(handle h, const struct engine_scheduler *of)
{
    int rc = check_engine(of);
    return rc ? rc : set_scheduler(h, GPU_INSTANCE, &of->state, "GpuInstanceSetVgpuSchedulerState");
}
