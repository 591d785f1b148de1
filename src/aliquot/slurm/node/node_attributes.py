"""What a node's record has in Slurm beside its shape and its GPUs, which deleting the record would lose.

GRES that are no GPUs, features and weight as an operator set them, comments, and partitions that name the node only in
slurmctld's memory: whoever gave a node these finds them again after its GPUs changed. Tried on 22.05 and 24.11: all of
it is gone after ``scontrol delete`` and a new registration. Pending jobs that ask for the node by name live on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot.errors import AliquotError
from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.files import fence


class NodeAttributes(msgspec.Struct, frozen=True):
    """``gres`` are entries of ``Gres=`` that are no GPUs, as they were written. ``weight`` 0: not known."""

    gres: tuple[str, ...] = ()
    weight: int = 0
    comment: str = ""
    extra: str = ""
    partitions: tuple[str, ...] = ()


def attributes_of(node: SlurmNode | None, gres_text: str) -> NodeAttributes:
    """What a node has now. ``gres_text`` is the value of its ``Gres=``."""
    other = tuple(other_gres(gres_text))
    if node is None:
        return NodeAttributes(other)
    return NodeAttributes(other, node.weight, node.comment, node.extra, node.partitions)


def other_gres(gres_text: str) -> Iterator[str]:
    """The entries of a ``Gres=`` that are neither GPUs nor the fence, which is ours to say."""
    for part in grestext.parts(gres_text):
        if part.partition(":")[0].lower() != "gpu" and not fence.is_fence(part):
            yield part


def joined_gres(gpus: str, attributes: NodeAttributes) -> str:
    """The value of ``Gres=`` with all of it."""
    return ",".join([gpus, *attributes.gres])


def restore(attributes: NodeAttributes, now: SlurmNode, slurm: Slurm, *, noted: bool) -> tuple[str, ...]:
    """Give a node that was registered anew what it had; sentences for what Slurm refuses. ``noted``: its Extra says
    something new.
    """
    words = {"weight": str(attributes.weight)} if attributes.weight and attributes.weight != now.weight else {}
    words |= {"comment": attributes.comment} if attributes.comment and attributes.comment != now.comment else {}
    words |= {"extra": attributes.extra} if attributes.extra and attributes.extra != now.extra and not noted else {}
    return tuple(_refusals(words, [p for p in attributes.partitions if p not in now.partitions], now.name, slurm))


def _refusals(words: dict[str, str], partitions: Iterable[str], name: str, slurm: Slurm) -> Iterator[str]:
    if words:
        try:
            slurm.describe(name, words)
        except AliquotError as error:
            values = " ".join(f"{key}={value!r}" for key, value in words.items())
            yield f"{name} had {values}, and Slurm does not take that again: {error.brief}"
    for partition in partitions:
        try:
            slurm.join(partition, name)
        except AliquotError as error:
            yield (
                f"{name} was in partition {partition}, and is not any more ({error.brief}): "
                f"scontrol update partitionname={partition} nodes=+{name}"
            )
