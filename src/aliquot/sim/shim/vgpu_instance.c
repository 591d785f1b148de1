/* vGPUs that VMs run with: their identity, load and license. A vGPU instance is a number, not a handle. */
#include "shim.h"

/* NVML_VALUE_TYPE_UNSIGNED_INT and NVML_VGPU_VM_ID_UUID. */
enum { UNSIGNED_INT = 1, VM_UUID = 1 };

/* One value of a sample is a union of 8 bytes. */
struct utilization {
    unsigned vgpu;
    unsigned long long time, value[4];
};
enum { SAMPLE_NUMBERS = 6 };

struct license_expiry {
    uint32_t year;
    uint16_t part[5]; /* month, day, hour, minute, second */
    uint8_t status;
};

struct license_info {
    uint8_t licensed;
    struct license_expiry expiry;
    unsigned state;
};

static int ask_instance(struct reply *r, unsigned vgpu, const char *call)
{
    return ask(r, "%s %u", call, vgpu);
}

static int instance_text(unsigned vgpu, const char *call, char *out, unsigned length)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_instance(&r, vgpu, call);
    return rc ? rc : copy_text(&r, out, length);
}

/* Report how many entries there are. SUCCESS without any, or if they fit; the caller then copies them. */
static int sized(unsigned *count, unsigned found, const void *out)
{
    unsigned room = *count;
    *count = found;
    return found && (!out || room < found) ? INSUFFICIENT_SIZE : SUCCESS;
}

API int nvmlDeviceGetActiveVgpus(handle h, unsigned *count, unsigned *out)
{
    struct reply r;
    struct address a;
    if (!count || open_handle(h, DEVICE, DEVICE, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetActiveVgpus " WORDS, PLACE(a));
    if (!rc)
        rc = sized(count, (unsigned)r.count, out);
    for (int i = 0; !rc && i < r.count; i++)
        out[i] = (unsigned)r.number[i];
    return rc;
}

API int nvmlDeviceGetVgpuUtilization(handle h, unsigned long long since, int *type, unsigned *count,
                                     struct utilization *out)
{
    struct reply r;
    struct address a;
    if (!type || !count || open_handle(h, DEVICE, DEVICE, &a))
        return INVALID_ARGUMENT;
    int rc = ask(&r, "DeviceGetVgpuUtilization " WORDS " %llu", PLACE(a), since);
    if (!rc)
        rc = sized(count, (unsigned)(r.count / SAMPLE_NUMBERS), out);
    *type = UNSIGNED_INT;
    for (int i = 0; !rc && i < r.count / SAMPLE_NUMBERS; i++) {
        const long long *number = r.number + i * SAMPLE_NUMBERS;
        out[i].vgpu = (unsigned)number[0];
        out[i].time = (unsigned long long)number[1];
        for (int n = 0; n < 4; n++)
            out[i].value[n] = (unsigned long long)number[2 + n];
    }
    return rc;
}

API int nvmlVgpuInstanceGetType(unsigned vgpu, unsigned *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_instance(&r, vgpu, "VgpuInstanceGetType");
    if (!rc)
        *out = (unsigned)r.number[0];
    return rc;
}

API int nvmlVgpuInstanceGetUUID(unsigned vgpu, char *out, unsigned length)
{
    return instance_text(vgpu, "VgpuInstanceGetUUID", out, length);
}

API int nvmlVgpuInstanceGetMdevUUID(unsigned vgpu, char *out, unsigned length)
{
    return instance_text(vgpu, "VgpuInstanceGetMdevUUID", out, length);
}

API int nvmlVgpuInstanceGetVmID(unsigned vgpu, char *out, unsigned length, unsigned *type)
{
    if (!type)
        return INVALID_ARGUMENT;
    *type = VM_UUID;
    return instance_text(vgpu, "VgpuInstanceGetVmID", out, length);
}

API int nvmlVgpuInstanceGetFbUsage(unsigned vgpu, unsigned long long *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_instance(&r, vgpu, "VgpuInstanceGetFbUsage");
    if (!rc)
        *out = (unsigned long long)r.number[0];
    return rc;
}

API int nvmlVgpuInstanceGetLicenseStatus(unsigned vgpu, unsigned *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_instance(&r, vgpu, "VgpuInstanceGetLicenseStatus");
    if (!rc)
        *out = (unsigned)r.number[0];
    return rc;
}

API int nvmlVgpuInstanceGetLicenseInfo_v2(unsigned vgpu, struct license_info *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_instance(&r, vgpu, "VgpuInstanceGetLicenseInfo");
    if (rc)
        return rc;
    out->licensed = (uint8_t)r.number[0];
    out->state = (unsigned)r.number[1];
    out->expiry.year = (uint32_t)r.number[2];
    for (int n = 0; n < 5; n++)
        out->expiry.part[n] = (uint16_t)r.number[3 + n];
    out->expiry.status = (uint8_t)r.number[8];
    return SUCCESS;
}
