// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The GPUs it can stand in for, written down apart from the program's catalog: ids, names, sizes and numbers of types. */
#include "standin.h"

static const struct vgpu_type a2_types[] = {
	{ 742, "NVIDIA A2-1B", 1024, 4, 45, "5120x2880", 16 },
	{ 743, "NVIDIA A2-2B", 2048, 4, 45, "5120x2880", 8 },
	{ 744, "NVIDIA A2-1Q", 1024, 4, 60, "5120x2880", 16 },
	{ 745, "NVIDIA A2-2Q", 2048, 4, 60, "7680x4320", 8 },
	{ 746, "NVIDIA A2-4Q", 4096, 4, 60, "7680x4320", 4 },
	{ 747, "NVIDIA A2-8Q", 8192, 4, 60, "7680x4320", 2 },
	{ 748, "NVIDIA A2-16Q", 16384, 4, 60, "7680x4320", 1 },
	{ 749, "NVIDIA A2-1A", 1024, 1, 60, "1280x1024", 16 },
	{ 750, "NVIDIA A2-2A", 2048, 1, 60, "1280x1024", 8 },
	{ 751, "NVIDIA A2-4A", 4096, 1, 60, "1280x1024", 4 },
	{ 752, "NVIDIA A2-8A", 8192, 1, 60, "1280x1024", 2 },
	{ 753, "NVIDIA A2-16A", 16384, 1, 60, "1280x1024", 1 },
	{ 754, "NVIDIA A2-4C", 4096, 1, 60, "4096x2400", 4 },
	{ 755, "NVIDIA A2-8C", 8192, 1, 60, "4096x2400", 2 },
	{ 756, "NVIDIA A2-16C", 16384, 1, 60, "4096x2400", 1 },
};

static const struct vgpu_type t4_types[] = {
	{ 222, "GRID T4-1B", 1024, 4, 45, "5120x2880", 16 },
	{ 252, "GRID T4-1B4", 1024, 4, 45, "5120x2880", 16 },
	{ 223, "GRID T4-2B", 2048, 4, 45, "5120x2880", 8 },
	{ 224, "GRID T4-2B4", 2048, 4, 45, "5120x2880", 8 },
	{ 230, "GRID T4-1Q", 1024, 4, 60, "5120x2880", 16 },
	{ 231, "GRID T4-2Q", 2048, 4, 60, "7680x4320", 8 },
	{ 232, "GRID T4-4Q", 4096, 4, 60, "7680x4320", 4 },
	{ 233, "GRID T4-8Q", 8192, 4, 60, "7680x4320", 2 },
	{ 234, "GRID T4-16Q", 16384, 4, 60, "7680x4320", 1 },
	{ 225, "GRID T4-1A", 1024, 1, 60, "1280x1024", 16 },
	{ 226, "GRID T4-2A", 2048, 1, 60, "1280x1024", 8 },
	{ 227, "GRID T4-4A", 4096, 1, 60, "1280x1024", 4 },
	{ 228, "GRID T4-8A", 8192, 1, 60, "1280x1024", 2 },
	{ 229, "GRID T4-16A", 16384, 1, 60, "1280x1024", 1 },
	{ 319, "GRID T4-4C", 4096, 1, 60, "4096x2400", 4 },
	{ 320, "GRID T4-8C", 8192, 1, 60, "4096x2400", 2 },
	{ 321, "GRID T4-16C", 16384, 1, 60, "4096x2400", 1 },
};

static const struct model models[] = {
	{ "a2", 0x25b6, 0x157e, true, a2_types, ARRAY_SIZE(a2_types) },
	{ "t4", 0x1eb8, 0x12a2, false, t4_types, ARRAY_SIZE(t4_types) },
};

const struct model *model_named(const char *name)
{
	unsigned int each;

	for (each = 0; each < ARRAY_SIZE(models); each++)
		if (!strcmp(models[each].name, name))
			return &models[each];
	return NULL;
}

const struct vgpu_type *model_type(const struct model *model, unsigned int id)
{
	unsigned int each;

	for (each = 0; each < model->count; each++)
		if (model->types[each].id == id)
			return &model->types[each];
	return NULL;
}
