// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Vendor-specific VFIO: the virtual function stays with this driver, which is a VFIO driver itself, and the type is a
 * number in a file of the function.
 */
#include "standin.h"

static struct seat *seat_of(struct device *dev)
{
	return dev_get_drvdata(dev); /* core is the seat's first member */
}

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attr, char *text)
{
	const struct vgpu_type *type = READ_ONCE(seat_of(dev)->type);

	return sysfs_emit(text, "%u\n", type ? type->id : 0);
}

/* As the driver's own: every refusal is an I/O error, its reason is in the kernel's log only. */
static int set_type(struct seat *seat, unsigned int id)
{
	const struct vgpu_type *type = id ? model_type(seat->card->model, id) : NULL;

	lockdep_assert_held(&seat->card->lock);
	if (seat->opened)
		return -EBUSY;
	if (!id) {
		if (seat->type)
			card_give(seat);
		seat->type = NULL;
		return 0;
	}
	if (!type || !card_room(seat, type))
		return -EIO;
	card_take(seat, type);
	seat->type = type;
	return 0;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attr, const char *text, size_t count)
{
	struct seat *seat = seat_of(dev);
	unsigned int id;
	int failed = kstrtouint(text, 10, &id);

	if (failed)
		return failed;
	mutex_lock(&seat->card->lock);
	failed = set_type(seat, id);
	mutex_unlock(&seat->card->lock);
	return failed ?: count;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attr, char *text)
{
	struct seat *seat = seat_of(dev);
	const struct model *model = seat->card->model;
	unsigned int each;
	ssize_t at = 0;

	mutex_lock(&seat->card->lock);
	if (!seat->type) /* empty, even without the heading, on a function that has one */
		at = sysfs_emit(text, "ID    : vGPU Name\n");
	for (each = 0; each < model->count; each++)
		if (card_room(seat, &model->types[each]))
			at += sysfs_emit_at(text, at, "%-6u: %s\n", model->types[each].id, model->types[each].name);
	mutex_unlock(&seat->card->lock);
	return at;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

/* Both have no value before a type is set; outside MIG mode and mixed-size mode neither means anything. */
static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return seat_of(dev)->type ? sysfs_emit(text, "%u\n", 0xffffffffu) : -ENXIO;
}
static DEVICE_ATTR_RO(gpu_instance_id);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attr, char *text)
{
	return seat_of(dev)->type ? sysfs_emit(text, "%u\n", 0xffffu) : -ENXIO;
}
static DEVICE_ATTR_RO(placement_id);

static struct attribute *vendor_files[] = {
	&dev_attr_current_vgpu_type.attr,
	&dev_attr_creatable_vgpu_types.attr,
	&dev_attr_gpu_instance_id.attr,
	&dev_attr_placement_id.attr,
	NULL,
};
static const struct attribute_group vendor_group = { .name = "nvidia", .attrs = vendor_files };
static const struct attribute_group *vendor_groups[] = { &vendor_group, NULL };

static int vendor_open(struct vfio_device *vfio)
{
	struct seat *seat = container_of(vfio, struct seat, core.vdev);
	int failed = 0;

	mutex_lock(&seat->card->lock);
	if (seat->type) {
		seat->opened = true;
		seat->card->opened++;
	} else {
		failed = -ENODEV;
	}
	mutex_unlock(&seat->card->lock);
	if (failed)
		return failed;
	failed = vfio_pci_core_enable(&seat->core);
	if (!failed) {
		vfio_pci_core_finish_enable(&seat->core);
		return 0;
	}
	mutex_lock(&seat->card->lock);
	seat->opened = false;
	seat->card->opened--;
	mutex_unlock(&seat->card->lock);
	return failed;
}

static void vendor_close(struct vfio_device *vfio)
{
	struct seat *seat = container_of(vfio, struct seat, core.vdev);

	vfio_pci_core_close_device(vfio);
	mutex_lock(&seat->card->lock);
	seat->opened = false;
	seat->card->opened--;
	mutex_unlock(&seat->card->lock);
}

const struct vfio_device_ops vendor_ops = {
	.name = "standin-vgpu-vendor",
	.init = vfio_pci_core_init_dev,
	.release = vfio_pci_core_release_dev,
	.open_device = vendor_open,
	.close_device = vendor_close,
	.ioctl = vfio_pci_core_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = vfio_pci_core_read,
	.write = vfio_pci_core_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
};

/* The seat was allocated as a VFIO device: the last one to put it frees it. */
int vendor_seat(struct seat *seat)
{
	int failed = vfio_pci_core_register_device(&seat->core);

	if (failed)
		goto put;
	failed = sysfs_create_groups(&seat->pdev->dev.kobj, vendor_groups);
	if (!failed)
		return 0;
	vfio_pci_core_unregister_device(&seat->core);
put:
	vfio_put_device(&seat->core.vdev);
	return failed;
}

void vendor_leave(struct seat *seat)
{
	sysfs_remove_groups(&seat->pdev->dev.kobj, vendor_groups);
	vfio_pci_core_unregister_device(&seat->core); /* waits until it is closed */
	mutex_lock(&seat->card->lock);
	set_type(seat, 0);
	mutex_unlock(&seat->card->lock);
	vfio_put_device(&seat->core.vdev);
}
