// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Emulated devices in NVIDIA's clothes. The kernel's record of an emulated device gets the ids of a GPU, so that all of
 * sysfs shows it as one; its config space, and whatever the device does, stay those of the emulator. They keep the ids
 * after this module is gone.
 */
#include <linux/device/bus.h>
#include <linux/slab.h>
#include "standin.h"

static LIST_HEAD(cards);

struct card *card_of(struct pci_dev *pdev)
{
	struct pci_dev *physical = pci_physfn(pdev);
	struct card *card;

	list_for_each_entry(card, &cards, link)
		if (card->pdev == physical)
			return card;
	return NULL;
}

static void dress(struct pci_dev *pdev, const struct model *model)
{
	pdev->vendor = PCI_VENDOR_NVIDIA;
	pdev->device = model->device;
	pdev->class = PCI_CLASS_DISPLAY_3D << 8;
	pdev->subsystem_vendor = PCI_VENDOR_NVIDIA;
	pdev->subsystem_device = pdev->is_virtfn ? 0 : model->subsystem;
}

/* Virtual functions are dressed as they appear, before a driver or a program finds them. */
static int appeared(struct notifier_block *block, unsigned long event, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct card *card = event == BUS_NOTIFY_ADD_DEVICE ? card_of(pdev) : NULL;

	if (card && pdev->is_virtfn)
		dress(pdev, card->model);
	return NOTIFY_DONE;
}
static struct notifier_block watch = { .notifier_call = appeared };

/* One of "0000:00:10.0=a2-mdev": an address, a GPU, and the vGPU framework of its virtual functions. */
static int dress_card(char *wish)
{
	char *name = strchr(wish, '='), *world = name ? strchr(name, '-') : NULL;
	unsigned int domain, bus, slot, function;
	const struct model *model;
	struct card *card;

	if (!world || sscanf(wish, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return -EINVAL;
	*name++ = *world++ = 0;
	model = model_named(name);
	if (!model || (strcmp(world, "mdev") && strcmp(world, "vfio")))
		return -EINVAL;
	card = kzalloc(sizeof(*card), GFP_KERNEL);
	if (!card)
		return -ENOMEM;
	card->pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	if (!card->pdev) {
		kfree(card);
		return -ENODEV;
	}
	card->model = model;
	card->vendor_vfio = !strcmp(world, "vfio");
	mutex_init(&card->lock);
	list_add_tail(&card->link, &cards);
	device_release_driver(&card->pdev->dev); /* the driver bound to the original device */
	dress(card->pdev, model);
	return 0;
}

int dress_cards(const char *wish)
{
	char *copy = kstrdup(wish, GFP_KERNEL), *rest = copy, *each;
	int failed = copy ? 0 : -ENOMEM;

	while (!failed && (each = strsep(&rest, ",")))
		failed = *each ? dress_card(each) : 0;
	kfree(copy);
	if (failed)
		undress_cards();
	else
		bus_register_notifier(&pci_bus_type, &watch);
	return failed;
}

void bind_cards(void)
{
	struct card *card;

	list_for_each_entry(card, &cards, link) {
		if (device_attach(&card->pdev->dev) != 1)
			dev_warn(&card->pdev->dev, "nothing took it\n");
		kobject_uevent(&card->pdev->dev.kobj, KOBJ_CHANGE);
	}
}

void undress_cards(void)
{
	struct card *card, *next;

	bus_unregister_notifier(&pci_bus_type, &watch);
	list_for_each_entry_safe(card, next, &cards, link) {
		list_del(&card->link);
		pci_dev_put(card->pdev);
		kfree(card);
	}
}
