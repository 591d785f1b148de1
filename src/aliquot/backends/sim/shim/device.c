/* The system, finding devices, and what monitors ask of one. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS "%d %d %d"
#define PLACE(a) (a).gpu, (a).gi, (a).ci

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

static int ask_device(struct reply *r, handle h, const char *call)
{
    struct address a;
    int rc = open_handle(h, DEVICE, MIG_DEVICE, &a);
    return rc ? rc : ask(r, "%s " WORDS, call, PLACE(a));
}

static int ask_device_about(struct reply *r, handle h, const char *call, int argument)
{
    struct address a;
    int rc = open_handle(h, DEVICE, MIG_DEVICE, &a);
    return rc ? rc : ask(r, "%s " WORDS " %d", call, PLACE(a), argument);
}

static int device_text(handle h, const char *call, char *out, unsigned length)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, call);
    return rc ? rc : copy_text(&r, out, length);
}

/* -- session and system */

API int nvmlInit_v2(void) { return session_open(); }
API int nvmlInit(void) { return session_open(); }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; return session_open(); }
API int nvmlShutdown(void) { return session_close(); }

API const char *nvmlErrorString(int result)
{
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "The operating system has blocked the request.",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "vgpu operation not supported with ECC enabled", "Insufficient Resources", "Frequency Not Supported",
        "Argument Version Mismatch", "Deprecated", "Not Ready", "GPU Not Found", "Invalid State",
        "Reset type not supported",
    };
    if (result >= 0 && result < (int)(sizeof words / sizeof *words))
        return words[result];
    return "Unknown Error";
}

static int system_text(const char *call, char *out, unsigned length)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "%s", call);
    return rc ? rc : copy_text(&r, out, length);
}

API int nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    return system_text("SystemGetDriverVersion", out, length);
}

API int nvmlSystemGetNVMLVersion(char *out, unsigned length)
{
    return system_text("SystemGetNVMLVersion", out, length);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "SystemGetCudaDriverVersion");
    if (!rc)
        *out = (int)r.number[0];
    return rc;
}

API int nvmlSystemGetCudaDriverVersion(int *out) { return nvmlSystemGetCudaDriverVersion_v2(out); }

API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "SystemGetProcessName %u", pid);
    return rc ? rc : copy_text(&r, out, length);
}

/* -- finding devices */

API int nvmlDeviceGetCount_v2(unsigned *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetCount");
    if (!rc)
        *out = (unsigned)r.number[0];
    return rc;
}

API int nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

static int found(const struct reply *r, int rc, handle *out)
{
    if (!rc)
        *out = make_handle(r->number[1] < 0 ? DEVICE : MIG_DEVICE, r->number[0], r->number[1], r->number[2]);
    return rc;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out)
{
    struct reply r;
    return out ? found(&r, ask(&r, "DeviceGetHandleByIndex %u", index), out) : INVALID_ARGUMENT;
}

API int nvmlDeviceGetHandleByIndex(unsigned index, handle *out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

static int found_by(const char *call, const char *text, handle *out)
{
    struct reply r;
    if (!text || !out || strlen(text) > 256)
        return INVALID_ARGUMENT;
    return found(&r, ask(&r, "%s|%s", call, text), out);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, handle *out)
{
    return found_by("DeviceGetHandleByUUID", uuid, out);
}

API int nvmlDeviceGetHandleBySerial(const char *serial, handle *out)
{
    return found_by("DeviceGetHandleBySerial", serial, out);
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, handle *out)
{
    return found_by("DeviceGetHandleByPciBusId", id, out);
}

API int nvmlDeviceGetHandleByPciBusId(const char *id, handle *out) { return nvmlDeviceGetHandleByPciBusId_v2(id, out); }

/* -- identity */

API int nvmlDeviceGetName(handle h, char *out, unsigned length) { return device_text(h, "DeviceGetName", out, length); }
API int nvmlDeviceGetUUID(handle h, char *out, unsigned length) { return device_text(h, "DeviceGetUUID", out, length); }

API int nvmlDeviceGetSerial(handle h, char *out, unsigned length)
{
    return device_text(h, "DeviceGetSerial", out, length);
}

struct pci_v2 {
    char bus_id[16];
    unsigned domain, bus, device, id, subsystem, reserved[4];
};

struct pci_v3 {
    char bus_id_legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

struct pci_ext {
    unsigned version, domain, bus, device, id, subsystem, base_class, sub_class;
    char bus_id[32];
};

API int nvmlDeviceGetPciInfo_v3(handle h, struct pci_v3 *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetPciInfo");
    if (rc)
        return rc;
    memset(out, 0, sizeof *out);
    out->domain = (unsigned)r.number[0];
    out->bus = (unsigned)r.number[1];
    out->device = (unsigned)r.number[2];
    out->id = (unsigned)r.number[3];
    out->subsystem = (unsigned)r.number[4];
    snprintf(out->bus_id, sizeof out->bus_id, "%s", r.text);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0", out->domain & 0xFFFF, out->bus & 0xFF,
             out->device & 0xFF);
    return SUCCESS;
}

API int nvmlDeviceGetPciInfo_v2(handle h, struct pci_v2 *out)
{
    struct pci_v3 full;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = nvmlDeviceGetPciInfo_v3(h, &full);
    if (rc)
        return rc;
    memset(out, 0, sizeof *out);
    memcpy(out->bus_id, full.bus_id_legacy, sizeof out->bus_id);
    out->domain = full.domain, out->bus = full.bus, out->device = full.device;
    out->id = full.id, out->subsystem = full.subsystem;
    return SUCCESS;
}

API int nvmlDeviceGetPciInfo(handle h, struct pci_v2 *out) { return nvmlDeviceGetPciInfo_v2(h, out); }

API int nvmlDeviceGetPciInfoExt(handle h, struct pci_ext *out)
{
    struct pci_v3 full;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (1u << 24 | sizeof *out))
        return VERSION_MISMATCH;
    int rc = nvmlDeviceGetPciInfo_v3(h, &full);
    if (rc)
        return rc;
    out->domain = full.domain, out->bus = full.bus, out->device = full.device;
    out->id = full.id, out->subsystem = full.subsystem;
    out->base_class = 3, out->sub_class = 2; /* a 3D controller */
    memcpy(out->bus_id, full.bus_id, sizeof out->bus_id);
    return SUCCESS;
}

API int nvmlDeviceGetCudaComputeCapability(handle h, int *major, int *minor)
{
    struct reply r;
    if (!major || !minor)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetCudaComputeCapability");
    if (!rc)
        *major = (int)r.number[0], *minor = (int)r.number[1];
    return rc;
}

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
    if (!rc) /* version 1 counts what is reserved as used */
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

/* Simulated processes all compute: there are none of the other sorts. */
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

/* -- single numbers */

#define NUMBER(type, name, call)                       \
    API int name(handle h, type *out)                  \
    {                                                  \
        struct reply r;                                \
        if (!out)                                      \
            return INVALID_ARGUMENT;                   \
        int rc = ask_device(&r, h, call);              \
        if (!rc)                                       \
            *out = (type)r.number[0];                  \
        return rc;                                     \
    }

#define NUMBER_OF(type, name, call)                          \
    API int name(handle h, int argument, type *out)          \
    {                                                        \
        struct reply r;                                      \
        if (!out)                                            \
            return INVALID_ARGUMENT;                         \
        int rc = ask_device_about(&r, h, call, argument);    \
        if (!rc)                                             \
            *out = (type)r.number[0];                        \
        return rc;                                           \
    }

#define TWO_NUMBERS(name, call)                                                   \
    API int name(handle h, unsigned *first, unsigned *second)                     \
    {                                                                             \
        struct reply r;                                                           \
        if (!first || !second)                                                    \
            return INVALID_ARGUMENT;                                              \
        int rc = ask_device(&r, h, call);                                         \
        if (!rc)                                                                  \
            *first = (unsigned)r.number[0], *second = (unsigned)r.number[1];      \
        return rc;                                                                \
    }

NUMBER(unsigned, nvmlDeviceGetIndex, "DeviceGetIndex")
NUMBER(unsigned, nvmlDeviceGetMinorNumber, "DeviceGetMinorNumber")
NUMBER(unsigned, nvmlDeviceGetBrand, "DeviceGetBrand")
NUMBER(unsigned, nvmlDeviceGetArchitecture, "DeviceGetArchitecture")
NUMBER(unsigned, nvmlDeviceGetPersistenceMode, "DeviceGetPersistenceMode")
NUMBER(unsigned, nvmlDeviceGetComputeMode, "DeviceGetComputeMode")
NUMBER(unsigned, nvmlDeviceGetDisplayMode, "DeviceGetDisplayMode")
NUMBER(unsigned, nvmlDeviceGetDisplayActive, "DeviceGetDisplayActive")
NUMBER(unsigned, nvmlDeviceGetVirtualizationMode, "DeviceGetVirtualizationMode")
NUMBER(unsigned, nvmlDeviceGetPerformanceState, "DeviceGetPerformanceState")
NUMBER(unsigned, nvmlDeviceGetPowerState, "DeviceGetPowerState")
NUMBER(unsigned, nvmlDeviceGetPowerManagementMode, "DeviceGetPowerManagementMode")
NUMBER(unsigned, nvmlDeviceGetPowerUsage, "DeviceGetPowerUsage")
NUMBER(unsigned, nvmlDeviceGetEnforcedPowerLimit, "DeviceGetEnforcedPowerLimit")
NUMBER(unsigned, nvmlDeviceGetPowerManagementLimit, "DeviceGetPowerManagementLimit")
NUMBER(unsigned, nvmlDeviceGetPowerManagementDefaultLimit, "DeviceGetPowerManagementDefaultLimit")
NUMBER(unsigned, nvmlDeviceGetCurrPcieLinkGeneration, "DeviceGetCurrPcieLinkGeneration")
NUMBER(unsigned, nvmlDeviceGetMaxPcieLinkGeneration, "DeviceGetMaxPcieLinkGeneration")
NUMBER(unsigned, nvmlDeviceGetCurrPcieLinkWidth, "DeviceGetCurrPcieLinkWidth")
NUMBER(unsigned, nvmlDeviceGetMaxPcieLinkWidth, "DeviceGetMaxPcieLinkWidth")
NUMBER(unsigned, nvmlDeviceGetPcieReplayCounter, "DeviceGetPcieReplayCounter")
NUMBER(unsigned, nvmlDeviceGetMultiGpuBoard, "DeviceGetMultiGpuBoard")
NUMBER(unsigned, nvmlDeviceGetAccountingMode, "DeviceGetAccountingMode")
NUMBER(unsigned, nvmlDeviceGetMemoryBusWidth, "DeviceGetMemoryBusWidth")
NUMBER(unsigned long long, nvmlDeviceGetTotalEnergyConsumption, "DeviceGetTotalEnergyConsumption")
NUMBER(unsigned long long, nvmlDeviceGetCurrentClocksEventReasons, "DeviceGetCurrentClocksEventReasons")
NUMBER(unsigned long long, nvmlDeviceGetCurrentClocksThrottleReasons, "DeviceGetCurrentClocksEventReasons")
NUMBER(unsigned long long, nvmlDeviceGetSupportedClocksEventReasons, "DeviceGetSupportedClocksEventReasons")
NUMBER(unsigned long long, nvmlDeviceGetSupportedClocksThrottleReasons, "DeviceGetSupportedClocksEventReasons")
NUMBER(unsigned long long, nvmlDeviceGetSupportedEventTypes, "DeviceGetSupportedEventTypes")
NUMBER_OF(unsigned, nvmlDeviceGetClockInfo, "DeviceGetClockInfo")
NUMBER_OF(unsigned, nvmlDeviceGetMaxClockInfo, "DeviceGetMaxClockInfo")
NUMBER_OF(unsigned, nvmlDeviceGetApplicationsClock, "DeviceGetApplicationsClock")
NUMBER_OF(unsigned, nvmlDeviceGetDefaultApplicationsClock, "DeviceGetDefaultApplicationsClock")
NUMBER_OF(unsigned, nvmlDeviceGetTemperature, "DeviceGetTemperature")
NUMBER_OF(unsigned, nvmlDeviceGetTemperatureThreshold, "DeviceGetTemperatureThreshold")
NUMBER_OF(unsigned, nvmlDeviceGetPcieThroughput, "DeviceGetPcieThroughput")
TWO_NUMBERS(nvmlDeviceGetEncoderUtilization, "DeviceGetEncoderUtilization")
TWO_NUMBERS(nvmlDeviceGetDecoderUtilization, "DeviceGetDecoderUtilization")
TWO_NUMBERS(nvmlDeviceGetEccMode, "DeviceGetEccMode")

struct utilization {
    unsigned gpu, memory;
};

API int nvmlDeviceGetUtilizationRates(handle h, struct utilization *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetUtilizationRates");
    if (!rc)
        *out = (struct utilization){(unsigned)r.number[0], (unsigned)r.number[1]};
    return rc;
}

struct temperature {
    unsigned version, sensor;
    int degrees;
};

API int nvmlDeviceGetTemperatureV(handle h, struct temperature *out)
{
    unsigned degrees;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (1u << 24 | sizeof *out))
        return VERSION_MISMATCH;
    int rc = nvmlDeviceGetTemperature(h, (int)out->sensor, &degrees);
    if (!rc)
        out->degrees = (int)degrees;
    return rc;
}

API int nvmlDeviceGetTotalEccErrors(handle h, int error, int counter, unsigned long long *out)
{
    struct reply r;
    if (!out || error < 0 || error > 1 || counter < 0 || counter > 1)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetTotalEccErrors");
    if (!rc)
        *out = (unsigned long long)r.number[0];
    return rc;
}

API int nvmlDeviceGetPowerManagementLimitConstraints(handle h, unsigned *least, unsigned *most)
{
    if (!least)
        return INVALID_ARGUMENT;
    int rc = nvmlDeviceGetPowerManagementDefaultLimit(h, most);
    if (!rc)
        *least = *most / 4;
    return rc;
}

API int nvmlDeviceSetPersistenceMode(handle h, unsigned mode)
{
    struct reply r;
    struct address a;
    int rc = open_handle(h, DEVICE, DEVICE, &a);
    return rc ? rc : ask_once(&r, "DeviceSetPersistenceMode " WORDS " %u", PLACE(a), mode);
}

struct field_value {
    unsigned field, scope;
    int64_t timestamp, latency;
    unsigned value_type;
    int result;
    unsigned long long value;
};

/* An idle board has no counters to read: each field answers for itself. */
API int nvmlDeviceGetFieldValues(handle h, int count, struct field_value *values)
{
    unsigned index;
    if (count <= 0 || !values)
        return INVALID_ARGUMENT;
    int rc = nvmlDeviceGetIndex(h, &index);
    for (int i = 0; !rc && i < count; i++)
        values[i].result = NOT_SUPPORTED;
    return rc;
}

/* -- where it is in the machine */

API int nvmlDeviceGetCpuAffinity(handle h, unsigned size, unsigned long *out)
{
    unsigned index;
    if (!out || !size)
        return INVALID_ARGUMENT;
    int rc = nvmlDeviceGetIndex(h, &index);
    if (rc)
        return rc;
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    memset(out, 0, size * sizeof *out);
    for (long i = 0; i < processors && i < (long)(size * 8 * sizeof *out); i++)
        out[i / (8 * (long)sizeof *out)] |= 1ul << i % (8 * (long)sizeof *out);
    return SUCCESS;
}

API int nvmlDeviceGetCpuAffinityWithinScope(handle h, unsigned size, unsigned long *out, unsigned scope)
{
    return scope > 1 ? INVALID_ARGUMENT : nvmlDeviceGetCpuAffinity(h, size, out);
}

API int nvmlDeviceGetMemoryAffinity(handle h, unsigned size, unsigned long *out, unsigned scope)
{
    unsigned index;
    if (!out || !size || scope > 1)
        return INVALID_ARGUMENT;
    int rc = nvmlDeviceGetIndex(h, &index);
    if (rc)
        return rc;
    memset(out, 0, size * sizeof *out);
    out[0] = 1;
    return SUCCESS;
}

API int nvmlDeviceGetTopologyCommonAncestor(handle one, handle two, unsigned *level)
{
    struct reply r;
    struct address a, b;
    if (!level || open_handle(one, DEVICE, DEVICE, &a) || open_handle(two, DEVICE, DEVICE, &b))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetTopologyCommonAncestor " WORDS " %d", PLACE(a), b.gpu);
    if (!rc)
        *level = (unsigned)r.number[0];
    return rc;
}

/* -- events: sets can be made and watched, nothing ever happens */

API int nvmlEventSetCreate(void **set)
{
    struct reply r;
    if (!set)
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetCount");
    if (!rc && !(*set = malloc(1)))
        return UNKNOWN;
    return rc;
}

API int nvmlEventSetFree(void *set)
{
    free(set);
    return SUCCESS;
}

API int nvmlDeviceRegisterEvents(handle h, unsigned long long types, void *set)
{
    unsigned index;
    return set && types ? nvmlDeviceGetIndex(h, &index) : INVALID_ARGUMENT;
}

API int nvmlEventSetWait_v2(void *set, void *data, unsigned milliseconds)
{
    if (!set || !data)
        return INVALID_ARGUMENT;
    usleep(milliseconds * 1000u);
    return TIMEOUT;
}

API int nvmlEventSetWait(void *set, void *data, unsigned milliseconds)
{
    return nvmlEventSetWait_v2(set, data, milliseconds);
}
