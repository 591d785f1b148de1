// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The PCI driver, under the name that the vendor's has. */
#include <linux/module.h>
#include <linux/slab.h>
#include "standin.h"

static char *cards = "";
module_param(cards, charp, 0444);
MODULE_PARM_DESC(cards, "ADDRESS=GPU-WORLD,...: GPU is a2 or t4, WORLD is mdev or vfio (vendor-specific VFIO)");

static int take(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct card *card = card_of(pdev);
	struct seat *seat;
	bool vendor;
	int failed = 0;

	if (!card)
		return -ENODEV;
	vendor = card->vendor_vfio && pdev->is_virtfn;
	seat = vendor ? vfio_alloc_device(seat, core.vdev, &pdev->dev, &vendor_ops) : kzalloc(sizeof(*seat), GFP_KERNEL);
	if (IS_ERR_OR_NULL(seat))
		return seat ? PTR_ERR(seat) : -ENOMEM;
	seat->card = card;
	seat->pdev = pdev;
	dev_set_drvdata(&pdev->dev, seat);
	if (vendor)
		failed = vendor_seat(seat);
	else if (pdev->is_virtfn || !card->model->sriov)
		failed = mediated_seat(seat);
	if (failed && !vendor)
		kfree(seat);
	return failed;
}

static void leave(struct pci_dev *pdev)
{
	struct seat *seat = dev_get_drvdata(&pdev->dev);

	pci_disable_sriov(pdev);
	if (seat->mediated)
		mdev_unregister_parent(&seat->parent);
	if (!(seat->card->vendor_vfio && pdev->is_virtfn)) {
		kfree(seat);
		return;
	}
	vendor_leave(seat);
}

static int resize(struct pci_dev *pdev, int functions)
{
	struct card *card = card_of(pdev);
	bool opened;

	mutex_lock(&card->lock);
	opened = card->opened;
	mutex_unlock(&card->lock);
	return opened ? -EBUSY : pci_sriov_configure_simple(pdev, functions);
}

static const struct pci_device_id nvidia_ids[] = { { PCI_DEVICE(PCI_VENDOR_NVIDIA, PCI_ANY_ID) }, {} };

static struct pci_driver nvidia_driver = {
	.name = "nvidia",
	.id_table = nvidia_ids,
	.probe = take,
	.remove = leave,
	.sriov_configure = resize,
	.driver_managed_dma = true, /* it does no DMA; VFIO users may have the group */
};

static int __init start(void)
{
	int failed = mdev_register_driver(&vgpu_mdev_driver);

	if (failed)
		return failed;
	failed = dress_cards(cards);
	if (failed)
		goto mdev;
	failed = pci_register_driver(&nvidia_driver);
	if (failed)
		goto undress;
	bind_cards();
	return 0;
undress:
	undress_cards();
mdev:
	mdev_unregister_driver(&vgpu_mdev_driver);
	return failed;
}

static void __exit stop(void)
{
	pci_unregister_driver(&nvidia_driver);
	undress_cards();
	mdev_unregister_driver(&vgpu_mdev_driver);
}

module_init(start);
module_exit(stop);
MODULE_DESCRIPTION("A stand-in for a vGPU host driver, for tests on emulated devices");
MODULE_LICENSE("Dual MIT/GPL");
