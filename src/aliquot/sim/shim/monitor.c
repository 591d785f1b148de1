/* Values for monitors: single numbers, the location in the host, events. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* An idle board has no counters: each field reports its own refusal. */
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

/* -- location in the host */

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
