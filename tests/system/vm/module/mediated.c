// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The mdev frameworks: a function is the parent of mediated devices, and offers the types of its card. */
#include <linux/module.h>
#include "standin.h"

static struct offer *offer_of(struct mdev_type *type)
{
	return container_of(type, struct offer, mdev);
}

static unsigned int vgpu_available(struct mdev_type *type)
{
	struct offer *offer = offer_of(type);
	unsigned int room;

	mutex_lock(&offer->seat->card->lock);
	room = card_room(offer->seat, offer->type);
	mutex_unlock(&offer->seat->card->lock);
	return room;
}

static ssize_t vgpu_description(struct mdev_type *mdev, char *text)
{
	const struct vgpu_type *type = offer_of(mdev)->type;

	return sysfs_emit(text, "num_heads=%u, frl_config=%u, framebuffer=%uM, max_resolution=%s, max_instance=%u\n",
			  type->heads, type->frames, type->memory, type->resolution, type->max);
}

/* Room is taken before the device is there and given back when it could not be made: two creations at once count. */
static int vgpu_probe(struct mdev_device *mdev)
{
	struct offer *offer = offer_of(mdev->type);
	struct seat *seat = offer->seat;
	struct vgpu *vgpu;
	int failed = 0;

	mutex_lock(&seat->card->lock);
	if (card_room(seat, offer->type))
		card_take(seat, offer->type);
	else
		failed = -ENOSPC;
	mutex_unlock(&seat->card->lock);
	if (failed)
		return failed;
	vgpu = vfio_alloc_device(vgpu, vfio, &mdev->dev, &vgpu_ops);
	if (IS_ERR(vgpu)) {
		failed = PTR_ERR(vgpu);
		goto give;
	}
	vgpu->offer = offer;
	vgpu_dress(vgpu);
	failed = vfio_register_emulated_iommu_dev(&vgpu->vfio);
	if (failed)
		goto put;
	dev_set_drvdata(&mdev->dev, vgpu);
	return 0;
put:
	vfio_put_device(&vgpu->vfio);
give:
	mutex_lock(&seat->card->lock);
	card_give(seat);
	mutex_unlock(&seat->card->lock);
	return failed;
}

static void vgpu_remove(struct mdev_device *mdev)
{
	struct vgpu *vgpu = dev_get_drvdata(&mdev->dev);
	struct seat *seat = vgpu->offer->seat;

	vfio_unregister_group_dev(&vgpu->vfio); /* waits until it is closed, as the kernel does: not an error */
	vfio_put_device(&vgpu->vfio);
	mutex_lock(&seat->card->lock);
	card_give(seat);
	mutex_unlock(&seat->card->lock);
}

struct mdev_driver vgpu_mdev_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = vgpu_probe,
	.remove = vgpu_remove,
	.get_available = vgpu_available,
	.show_description = vgpu_description,
	.driver = { .name = "nvidia-vgpu-vfio", .owner = THIS_MODULE, .mod_name = KBUILD_MODNAME },
};

int mediated_seat(struct seat *seat)
{
	const struct model *model = seat->card->model;
	unsigned int each;
	int failed;

	for (each = 0; each < model->count; each++) {
		struct offer *offer = &seat->offers[each];

		offer->type = &model->types[each];
		offer->seat = seat;
		snprintf(offer->sysfs_name, sizeof(offer->sysfs_name), "%u", offer->type->id);
		offer->mdev.sysfs_name = offer->sysfs_name; /* the core puts the parent's driver before it: nvidia-746 */
		offer->mdev.pretty_name = offer->type->name;
		seat->list[each] = &offer->mdev;
	}
	failed = mdev_register_parent(&seat->parent, &seat->pdev->dev, &vgpu_mdev_driver, seat->list, model->count);
	seat->mediated = !failed;
	return failed;
}
