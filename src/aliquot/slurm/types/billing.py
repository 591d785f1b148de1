"""TRESBillingWeights of partitions with MIG devices: what a device takes away from the other users of its GPU.

A weight is the larger of the device's shares of memory slices and of compute slices. What is left of the other one is
of no use to others. A compute instance pays its part of its GPU instance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from aliquot.slurm.conf.statements import Conf, ConfLocation, ConfStatement
from aliquot.slurm.gpus.type_facts import TypeFacts, TypeShare, shares_of

WHOLE = 100.0
"""Weight of a whole GPU, unless the partition has one. Slurm rounds down a job's sum, so small weights would be 0."""
KEY = "TRESBillingWeights"
_ALWAYS = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
"""TRES that slurmctld lists without being asked to."""
_GPU = re.compile(r"gres/gpu(:.*)?", re.IGNORECASE)


class BillingWeight(msgspec.Struct, frozen=True):
    """The weight of a type."""

    type: str
    weight: float | None
    """None if the catalog does not know the type."""
    shares: tuple[TypeShare, ...]
    """One for each kind of board that may have the type, the largest first."""

    @property
    def tres(self) -> str:
        """The TRES in the spelling of slurm.conf: ``GRES/gpu:a100_3g.20gb``."""
        return f"GRES/gpu:{self.type}" if self.type else "GRES/gpu"


class PartitionWeights(msgspec.Struct, frozen=True):
    """The weights of a partition, and its line."""

    partition: str
    location: ConfLocation
    value: str
    """The value of ``TRESBillingWeights``."""
    line: str
    """The partition's line of slurm.conf with this value; the rest of it is unchanged."""
    whole: float
    """The weight of a whole GPU."""


def billing_weights(facts: Mapping[str, TypeFacts], whole: float) -> tuple[BillingWeight, ...]:
    """Return the weight of each type, with ``whole`` for a whole GPU, rounded to two decimals."""
    return tuple(_weight(kind, shares_of(each), whole) for kind, each in facts.items())


def partition_lines(
    conf: Conf, types: Mapping[str, Iterable[str]], facts: Mapping[str, TypeFacts], whole: float | None
) -> tuple[PartitionWeights, ...]:
    """Return the weights of the partitions in slurm.conf that have ``types``, in the order of the file.

    Other weights of a partition stay. A weight for GPUs without a type is removed, because Slurm would count a device
    twice; it is the weight of a whole GPU, unless ``whole`` is given.
    """
    found, inherited = [], ""
    texts = {source.path: source.text for source in conf.sources}
    for statement in conf.headed("PartitionName"):
        name, present = statement.head.value, statement.get(KEY)
        if name.upper() == "DEFAULT":
            inherited = present or inherited
        elif name in types:
            text = texts[statement.location.file]
            wanted = {kind: facts[kind] for kind in types[name] if kind in facts}
            value, scale = _value(present or inherited, wanted, whole)
            found.append(PartitionWeights(name, statement.location, value, _replaced(statement, text, value), scale))
    return tuple(found)


def storage_tres(present: str, types: Iterable[str]) -> str:
    """Return the value of ``AccountingStorageTRES`` with these types, or "" if slurmctld already has all of them."""
    listed = [each for each in present.split(",") if each and each.lower() not in _ALWAYS]
    wanted = ["gres/gpu", *(f"gres/gpu:{kind}" for kind in types if kind)]
    return ",".join(dict.fromkeys([*listed, *wanted])) if set(wanted) - set(listed) else ""


def _weight(kind: str, shares: tuple[TypeShare, ...], whole: float) -> BillingWeight:
    weight = round(float(max(each.share for each in shares) * Fraction(whole)), 2) if shares else None
    return BillingWeight(kind, weight, shares)


def _value(present: str, facts: Mapping[str, TypeFacts], whole: float | None) -> tuple[str, float]:
    """Return the value with the weights of types in place of others for GPUs, and the weight of a whole GPU."""
    pairs = [(key, value) for key, mark, value in (each.partition("=") for each in present.split(",")) if mark]
    untyped = [float(value) for key, value in pairs if key.lower() == "gres/gpu" and _is_number(value)]
    scale = whole if whole is not None else untyped[0] if untyped else WHOLE
    kept = [f"{key}={value}" for key, value in pairs if not _GPU.fullmatch(key)]
    weights = [each for each in billing_weights(facts, scale) if each.weight is not None]
    return ",".join([*kept, *(f"{each.tres}={each.weight:.10g}" for each in weights)]), scale


def _replaced(statement: ConfStatement, text: str, value: str) -> str:
    """Return a statement of the file with another value of ``KEY``, or with the key at its end."""
    pair = statement.pair(KEY)
    if pair is None:
        return f'{text[statement.start : statement.end]} {KEY}="{value}"'
    return f'{text[statement.start : pair.start]}"{value}"{text[pair.end : statement.end]}'


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None
