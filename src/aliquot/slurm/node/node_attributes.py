"""Attributes of a node's record in Slurm, other than hardware and GPUs, that deleting the record would lose.

These are GRES that are not GPUs, features and weight set by an operator, comments, and partitions that have the node
only in slurmctld's memory. They are restored after a change of GPUs, because ``scontrol delete`` and a new registration
lose all of them (tested on 22.05 and 24.11). Pending jobs that request the node by name survive.
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
    """The attributes to preserve."""

    gres: tuple[str, ...] = ()
    """Entries of ``Gres=`` that are not GPUs, as written."""
    weight: int = 0
    """0 if unknown."""
    comment: str = ""
    extra: str = ""
    partitions: tuple[str, ...] = ()


def attributes_of(node: SlurmNode | None, gres_text: str) -> NodeAttributes:
    """Return the current attributes of a node. ``gres_text`` is the value of its ``Gres=``."""
    other = tuple(other_gres(gres_text))
    if node is None:
        return NodeAttributes(other)
    return NodeAttributes(other, node.weight, node.comment, node.extra, node.partitions)


def other_gres(gres_text: str) -> Iterator[str]:
    """Yield the entries of ``Gres=`` that are neither GPUs nor our fence."""
    for part in grestext.parts(gres_text):
        if part.partition(":")[0].lower() != "gpu" and not fence.is_fence(part):
            yield part


def joined_gres(gpus: str, attributes: NodeAttributes) -> str:
    """Return the value of ``Gres=`` for the GPUs and the other GRES."""
    return ",".join([gpus, *attributes.gres])


def restore(attributes: NodeAttributes, now: SlurmNode, slurm: Slurm, *, noted: bool) -> tuple[str, ...]:
    """Restore the attributes of a node that registered again, and return a message for each refusal by Slurm.

    ``noted`` means that Extra has a new value to keep.
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
            yield f"{name} had {values}, but Slurm refused to set it again: {error.brief}"
    for partition in partitions:
        try:
            slurm.join(partition, name)
        except AliquotError as error:
            yield (
                f"{name} is no longer in partition {partition} ({error.brief}): run "
                f"scontrol update partitionname={partition} nodes=+{name}"
            )
