"""slurmctld is to know of no fence: whoever may ask for it would be given the GPUs that it keeps jobs from."""

from __future__ import annotations

import os

from aliquot.slurm.files import fence
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import SlurmNodeSettings


def hide_fences(settings: SlurmNodeSettings, context: SlurmChangeContext) -> None:
    """Have slurmctld forget the fences of this node and of those that share its gres.conf: reading its files again, it
    has learnt of all that stand in slurm.conf. Raises as the port.
    """
    text = files.content(os.path.join(settings.conf_dir, "gres.conf"))
    fenced = {each.node for each in block.blocks(text) if fence.has_fence(each.lines)}
    if settings.name not in fenced:
        return
    for name in sorted(fenced):
        node = waiting.fetch_node(name, context)
        if node is not None and any(fence.is_fence(str(gres)) for gres in node.gres):
            context.slurm.describe(name, {"gres": fence.without_fence(",".join(map(str, node.gres)))})
