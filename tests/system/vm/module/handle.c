// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* What a hypervisor asks a mediated vGPU: a config space, one small BAR, no interrupts, an empty screen. */
#include <linux/uaccess.h>
#include "standin.h"

#define REGION_SHIFT 40

void vgpu_dress(struct vgpu *vgpu)
{
	const struct model *model = vgpu->offer->seat->card->model;
	u8 *config = vgpu->config;

	*(__le16 *)&config[PCI_VENDOR_ID] = cpu_to_le16(PCI_VENDOR_NVIDIA);
	*(__le16 *)&config[PCI_DEVICE_ID] = cpu_to_le16(model->device);
	*(__le16 *)&config[PCI_COMMAND] = cpu_to_le16(PCI_COMMAND_MEMORY);
	*(__le16 *)&config[PCI_CLASS_DEVICE] = cpu_to_le16(PCI_CLASS_DISPLAY_3D);
	*(__le16 *)&config[PCI_SUBSYSTEM_VENDOR_ID] = cpu_to_le16(PCI_VENDOR_NVIDIA);
	*(__le16 *)&config[PCI_SUBSYSTEM_ID] = cpu_to_le16(model->subsystem);
}

static int vgpu_open(struct vfio_device *vfio)
{
	struct card *card = container_of(vfio, struct vgpu, vfio)->offer->seat->card;

	mutex_lock(&card->lock);
	card->opened++;
	mutex_unlock(&card->lock);
	return 0;
}

static void vgpu_close(struct vfio_device *vfio)
{
	struct card *card = container_of(vfio, struct vgpu, vfio)->offer->seat->card;

	mutex_lock(&card->lock);
	card->opened--;
	mutex_unlock(&card->lock);
}

static unsigned int region_size(unsigned int index)
{
	const struct vgpu *none = NULL;

	if (index == VFIO_PCI_CONFIG_REGION_INDEX)
		return sizeof(none->config);
	return index == VFIO_PCI_BAR0_REGION_INDEX ? sizeof(none->memory) : 0;
}

/* Where a file offset lies, or NULL. ``count`` is limited to the region. */
static u8 *place(struct vgpu *vgpu, loff_t offset, size_t *count)
{
	unsigned int index = offset >> REGION_SHIFT;
	u64 at = offset & (BIT_ULL(REGION_SHIFT) - 1);

	if (at >= region_size(index))
		return NULL;
	*count = min_t(size_t, *count, region_size(index) - at);
	return (index == VFIO_PCI_CONFIG_REGION_INDEX ? vgpu->config : vgpu->memory) + at;
}

static ssize_t vgpu_read(struct vfio_device *vfio, char __user *to, size_t count, loff_t *offset)
{
	u8 *from = place(container_of(vfio, struct vgpu, vfio), *offset, &count);

	if (!from)
		return -EINVAL;
	if (copy_to_user(to, from, count))
		return -EFAULT;
	*offset += count;
	return count;
}

static ssize_t vgpu_write(struct vfio_device *vfio, const char __user *from, size_t count, loff_t *offset)
{
	struct vgpu *vgpu = container_of(vfio, struct vgpu, vfio);
	u8 *to = place(vgpu, *offset, &count);

	if (!to)
		return -EINVAL;
	/* Who it is, and what the hypervisor itself emulates, stays as it was made: only the command word is kept. */
	if (to >= vgpu->config && to < vgpu->config + sizeof(vgpu->config) && to != &vgpu->config[PCI_COMMAND])
		goto done;
	if (copy_from_user(to, from, count))
		return -EFAULT;
done:
	*offset += count;
	return count;
}

static long about_region(void __user *arg)
{
	struct vfio_region_info info;
	unsigned long size = offsetofend(struct vfio_region_info, offset);

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info.size = region_size(info.index);
	info.offset = (u64)info.index << REGION_SHIFT;
	info.flags = info.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long about_device(void __user *arg)
{
	struct vfio_device_info info;
	unsigned long size = offsetofend(struct vfio_device_info, num_irqs);

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size)
		return -EINVAL;
	info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
	info.num_regions = VFIO_PCI_NUM_REGIONS;
	info.num_irqs = VFIO_PCI_NUM_IRQS;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long about_irq(void __user *arg)
{
	struct vfio_irq_info info;
	unsigned long size = offsetofend(struct vfio_irq_info, count);

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index > VFIO_PCI_MSIX_IRQ_INDEX)
		return -EINVAL;
	info.flags = VFIO_IRQ_INFO_EVENTFD;
	info.count = 0;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

/* A screen that the guest has not switched on yet: supported, and empty. */
static long about_screen(void __user *arg)
{
	struct vfio_device_gfx_plane_info info;
	unsigned long size = offsetofend(struct vfio_device_gfx_plane_info, region_index);

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.flags & VFIO_GFX_PLANE_TYPE_DMABUF || !(info.flags & VFIO_GFX_PLANE_TYPE_REGION))
		return -EINVAL;
	if (info.flags & VFIO_GFX_PLANE_TYPE_PROBE)
		return 0;
	info.drm_format = info.width = info.height = info.stride = info.size = 0;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long vgpu_ioctl(struct vfio_device *vfio, unsigned int command, unsigned long arg)
{
	switch (command) {
	case VFIO_DEVICE_GET_INFO:
		return about_device((void __user *)arg);
	case VFIO_DEVICE_GET_REGION_INFO:
		return about_region((void __user *)arg);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return about_irq((void __user *)arg);
	case VFIO_DEVICE_QUERY_GFX_PLANE:
		return about_screen((void __user *)arg);
	case VFIO_DEVICE_RESET:
		return 0;
	default:
		return -ENOTTY;
	}
}

const struct vfio_device_ops vgpu_ops = {
	.name = "standin-vgpu",
	.release = vfio_free_device,
	.open_device = vgpu_open,
	.close_device = vgpu_close,
	.read = vgpu_read,
	.write = vgpu_write,
	.ioctl = vgpu_ioctl,
};
