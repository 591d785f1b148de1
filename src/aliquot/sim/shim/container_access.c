/* Visibility in a container. The driver shows a process the GPUs and MIG devices whose device nodes it can open.
 * This library does the same if it is in /run/aliquot-sim, where CDI specifications mount a node's directory, or if
 * ALIQUOT_SIM_DEV_ROOT names another root than "/" for the device nodes.
 *
 * The location decides, not only the variable: `podman exec`, sudo or `env -i` drop a variable, and then the
 * container would see every GPU. A marker file beside the library does not work, because the directory is the
 * host's. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Major numbers for local use that Linux assigns to no driver; the same as in aliquot.cdi.options. */
enum { GPU_MAJOR = 120, CAPS_MAJOR = 122, CONFIG = 1 };

static const char *dev_root(void)
{
    const char *root = getenv("ALIQUOT_SIM_DEV_ROOT");
    return root && *root ? root : in_container() ? "/" : NULL;
}

/* No device answers at this number, which is not a refusal. The cgroup refuses with EPERM, the mode bits with
 * EACCES. */
static int opens(const char *format, int major_number, int minor_number)
{
    char path[4096];
    struct stat facts;
    size_t length = (size_t)snprintf(path, sizeof path, "%s/", dev_root());
    snprintf(path + length, sizeof path - length, format, minor_number);
    if (stat(path, &facts) || !S_ISCHR(facts.st_mode) ||
        facts.st_rdev != makedev((unsigned)major_number, (unsigned)minor_number))
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENXIO || errno == ENODEV;
    close(fd);
    return 1;
}

static int cap_opens(int minor_number) { return opens("dev/nvidia-caps/nvidia-cap%d", CAPS_MAJOR, minor_number); }

int restricted(void) { return dev_root() && !cap_opens(CONFIG); }

int visible(const struct address *a)
{
    struct reply r;
    if (!dev_root())
        return 1;
    if (ask(&r, "DeviceGetMinorNumber %d -1 -1", a->gpu) || r.count < 1)
        return 0;
    int gpu = (int)r.number[0], gi = 3 + 135 * gpu + 9 * a->gi;
    if (!opens("dev/nvidia%d", GPU_MAJOR, gpu))
        return 0;
    return a->gi < 0 || (cap_opens(gi) && cap_opens(gi + 1 + a->ci));
}

/* -- counting and finding visible devices */

static int total(unsigned *out)
{
    struct reply r;
    int rc = ask(&r, "DeviceGetCount");
    if (!rc)
        *out = (unsigned)r.number[0];
    return rc;
}

static int visible_at(unsigned index)
{
    struct reply r;
    if (ask(&r, "DeviceGetHandleByIndex %u", index) || r.count < 1)
        return 0;
    return visible(&(struct address){(int)r.number[0], -1, -1});
}

/* Return how many of the first GPUs, up to the node's index `end`, are visible. */
static unsigned visible_before(unsigned end)
{
    unsigned count = 0;
    for (unsigned i = 0; i < end; i++)
        count += (unsigned)visible_at(i);
    return count;
}

API int nvmlDeviceGetCount_v2(unsigned *out)
{
    if (!out)
        return INVALID_ARGUMENT;
    int rc = total(out);
    if (!rc && dev_root())
        *out = visible_before(*out);
    return rc;
}

API int nvmlDeviceGetCount(unsigned *out) { return nvmlDeviceGetCount_v2(out); }

/* Convert the caller's index of a GPU into the node's; past the last one if fewer GPUs are visible. */
int node_index(unsigned *index)
{
    unsigned count, left = *index;
    if (!dev_root())
        return SUCCESS;
    int rc = total(&count);
    for (unsigned i = 0; !rc && i < count; i++)
        if (visible_at(i) && left-- == 0) {
            *index = i;
            return SUCCESS;
        }
    return rc ? rc : INVALID_ARGUMENT;
}

API int nvmlDeviceGetIndex(handle h, unsigned *out)
{
    struct reply r;
    if (!out)
        return INVALID_ARGUMENT;
    int rc = ask_device(&r, h, "DeviceGetIndex");
    if (!rc)
        *out = dev_root() ? visible_before((unsigned)r.number[0]) : (unsigned)r.number[0];
    return rc;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned index, handle *out)
{
    struct reply r;
    struct address a;
    if (!out || open_handle(h, DEVICE, DEVICE, &a))
        return INVALID_ARGUMENT;
    if (!dev_root()) {
        int rc = ask(&r, "DeviceGetMigDeviceHandleByIndex " WORDS " %d", PLACE(a), (int)index);
        if (!rc)
            *out = make_handle(MIG_DEVICE, r.number[0], r.number[1], r.number[2]);
        return rc;
    }
    for (unsigned i = 0, left = index;; i++) {
        int rc = ask(&r, "DeviceGetMigDeviceHandleByIndex " WORDS " %d", PLACE(a), (int)i);
        if (rc) /* past the last one: return the node's answer, also for indexes that no GPU has */
            return ask(&r, "DeviceGetMigDeviceHandleByIndex " WORDS " %d", PLACE(a), (int)(index > i ? index : i));
        struct address found = {(int)r.number[0], (int)r.number[1], (int)r.number[2]};
        if (visible(&found) && left-- == 0) {
            *out = make_handle(MIG_DEVICE, found.gpu, found.gi, found.ci);
            return SUCCESS;
        }
    }
}
