/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A stand-in for a vGPU host driver, for tests on emulated PCI devices. What the kernel does (mdev, VFIO, SR-IOV,
 * IOMMU groups, driver binding) is the kernel's own code; what this module adds is the choice of types and the counting.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/mdev.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/vfio.h>
#include <linux/vfio_pci_core.h>

#define PCI_VENDOR_NVIDIA 0x10de
#define MAX_TYPES 32

/* A vGPU type as the vendor names it. ``max``: as many on one GPU. */
struct vgpu_type {
	unsigned int id;
	const char *name;
	unsigned int memory; /* MiB */
	unsigned int heads;
	unsigned int frames; /* limit per second */
	const char *resolution;
	unsigned int max;
};

/* A GPU that an emulated device is dressed as. */
struct model {
	const char *name;
	unsigned short device, subsystem;
	bool sriov;
	const struct vgpu_type *types;
	unsigned int count;
};

const struct model *model_named(const char *name);
const struct vgpu_type *model_type(const struct model *model, unsigned int id);

/* The physical function. One size of framebuffer at a time, as in equal-size mode. */
struct card {
	struct list_head link;
	struct pci_dev *pdev;
	const struct model *model;
	bool vendor_vfio; /* VFs have current_vgpu_type, not mdev types */
	struct mutex lock; /* of what follows and of every seat's vgpus, type and opened */
	unsigned int vgpus;
	unsigned int memory;
	unsigned int opened;
};

/* A type as one function offers it. */
struct offer {
	struct mdev_type mdev;
	const struct vgpu_type *type;
	struct seat *seat;
	char sysfs_name[16];
};

/* A function that can carry vGPUs: the GPU itself, or one of its virtual functions. */
struct seat {
	struct vfio_pci_core_device core; /* first: it is the driver data that vfio_pci_core looks for */
	struct card *card;
	struct pci_dev *pdev;
	unsigned int vgpus;
	bool opened;
	bool mediated;
	const struct vgpu_type *type; /* with vendor VFIO: what it is set to */
	struct mdev_parent parent;
	struct offer offers[MAX_TYPES];
	struct mdev_type *list[MAX_TYPES];
};

/* A mediated vGPU: as much of a PCI device as a hypervisor wants to see before it starts a guest. */
struct vgpu {
	struct vfio_device vfio;
	struct offer *offer;
	u8 config[256];
	u8 memory[4096];
};

/* card.c: what may be created; the caller holds card->lock */
unsigned int card_room(const struct seat *seat, const struct vgpu_type *type);
void card_take(struct seat *seat, const struct vgpu_type *type);
void card_give(struct seat *seat);
struct card *card_of(struct pci_dev *pdev);

/* dress.c */
int dress_cards(const char *wish);
void undress_cards(void);
void bind_cards(void);

/* mediated.c: mdevs on a function */
extern struct mdev_driver vgpu_mdev_driver;
int mediated_seat(struct seat *seat);

/* handle.c: what VFIO is asked about a mediated vGPU */
extern const struct vfio_device_ops vgpu_ops;
void vgpu_dress(struct vgpu *vgpu);

/* vendor.c: vendor-specific VFIO on a virtual function */
extern const struct vfio_device_ops vendor_ops;
int vendor_seat(struct seat *seat);
void vendor_leave(struct seat *seat);

#endif
