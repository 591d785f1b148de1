/* The system, finding devices, and their identity. */
#include "shim.h"

#include <stdio.h>
#include <string.h>

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

static int found(const struct reply *r, int rc, handle *out)
{
    if (rc)
        return rc;
    struct address a = {(int)r->number[0], (int)r->number[1], (int)r->number[2]};
    if (!visible(&a))
        return NOT_FOUND;
    *out = make_handle(a.gi < 0 ? DEVICE : MIG_DEVICE, a.gpu, a.gi, a.ci);
    return SUCCESS;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out)
{
    struct reply r;
    int rc = out ? node_index(&index) : INVALID_ARGUMENT;
    return rc ? rc : found(&r, ask(&r, "DeviceGetHandleByIndex %u", index), out);
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
    struct reply r;
    struct pci_v3 full;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (1u << 24 | sizeof *out))
        return VERSION_MISMATCH;
    int rc = nvmlDeviceGetPciInfo_v3(h, &full);
    if (!rc)
        rc = ask_device(&r, h, "DeviceGetPciClass");
    if (rc)
        return rc;
    out->domain = full.domain, out->bus = full.bus, out->device = full.device;
    out->id = full.id, out->subsystem = full.subsystem;
    out->base_class = (unsigned)r.number[0], out->sub_class = (unsigned)r.number[1];
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
