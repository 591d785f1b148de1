// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The counting: what `available_instances` and `creatable_vgpu_types` are made from, and what a creation changes. */
#include "standin.h"

/* How many more of a type this function could carry: at most one on a virtual function, where each has its own. */
unsigned int card_room(const struct seat *seat, const struct vgpu_type *type)
{
	const struct card *card = seat->card;

	lockdep_assert_held(&card->lock);
	if (seat->pdev->is_virtfn && seat->vgpus)
		return 0;
	if (card->vgpus >= type->max || (card->vgpus && card->memory != type->memory))
		return 0;
	return seat->pdev->is_virtfn ? 1 : type->max - card->vgpus;
}

void card_take(struct seat *seat, const struct vgpu_type *type)
{
	lockdep_assert_held(&seat->card->lock);
	seat->vgpus++;
	seat->card->vgpus++;
	seat->card->memory = type->memory;
}

void card_give(struct seat *seat)
{
	lockdep_assert_held(&seat->card->lock);
	seat->vgpus--;
	seat->card->vgpus--;
}
