"""``aliquot slurm weights``: TRESBillingWeights of partitions with MIG devices, as lines of slurm.conf."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import render_sources as slurm_sources
from aliquot.errors import BlockedError, ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.slurm.conf.statements import Conf
    from aliquot.slurm.gpus.type_facts import TypeShare
    from aliquot.slurm.types.billing import BillingWeight, PartitionWeights
    from aliquot.slurm.types.offers import TypeOffer

_NEXT = "aliquot slurm weights --conf-dir DIR"
_RULE = (
    "# The weight of a device is the part of a GPU that it takes from others:",
    "# the larger of its shares of memory slices and of compute slices.",
)


def run(args: Args) -> int:
    from aliquot.slurm.types import billing

    if args.whole is not None and not 0 < args.whole < 1_000_000:
        raise UsageError("--whole takes a number above 0", next_step="aliquot slurm weights --help")
    conf = _conf(args)
    settings, offers = _cluster()
    facts = {each.type: each.facts for each in offers}
    types = _types_by_partition(offers, args.partitions)
    partitions = billing.partition_lines(conf, types, facts, args.whole)
    for name in sorted(set(types) - {each.partition for each in partitions}):
        absent = f"{conf.path} has no line for partition {name}"
        if args.partitions:
            raise BlockedError(absent, code="NO_PARTITION", next_step="scontrol show partitions")
        streams.note(f"note     {absent}")
    weights = billing.billing_weights(
        {kind: facts[kind] for kind in facts if any(kind in each for each in types.values())},
        billing.WHOLE if args.whole is None else args.whole,
    )
    known = tuple(each.type for each in weights if each.weight is not None)
    tres = billing.storage_tres(settings.get("AccountingStorageTRES", ""), known)
    document = output.build(
        "SlurmWeights",
        types=[{**output.document(each), "tres": each.tres} for each in weights],
        accounting_storage_tres=tres,
        partitions=[output.document(each) for each in partitions],
    )
    output.emit(document, args.output, _text(weights, tres, partitions))
    return 0


def _conf(args: Args) -> Conf:
    """Read slurm.conf. Raises ConfigError."""
    from aliquot.slurm.conf.files import read

    path = os.path.join(slurm_sources.conf_folder(args.conf_dir, _NEXT), "slurm.conf")
    found = read(path)
    if found is None:
        raise ConfigError(f"{path} does not exist", next_step=_NEXT)
    return found


def _cluster() -> tuple[dict[str, str], tuple[TypeOffer, ...]]:
    """Return slurmctld's settings, and the types. Raises SlurmError, NoAccountingError without slurmdbd."""
    import time

    from aliquot.slurm.client.connect import open_client
    from aliquot.slurm.client.errors import NoAccountingError
    from aliquot.slurm.types.offers import ClusterView, offered_types
    from aliquot.slurm.types.on_demand import on_demand_types

    with open_client() as slurm:
        settings = slurm.settings()
        if not settings.get("AccountingStorageType", "").endswith("/slurmdbd"):
            raise NoAccountingError(
                "this cluster has no slurmdbd, and slurmctld does not start with weights of GPU types without one",
                details=("AccountingStorageType=accounting_storage/slurmdbd is needed, and a slurmdbd with MariaDB",),
                next_step="scontrol show config",
            )
        nodes = slurm.nodes()
        view = ClusterView(nodes, (), slurm.partitions(), time.time())
    return settings, offered_types(view, on_demand_types(nodes, None))


def _types_by_partition(offers: Sequence[TypeOffer], chosen: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the types of each partition that has MIG devices. Raises BlockedError for a chosen one that has none."""
    found: dict[str, list[TypeOffer]] = {}
    for offer in offers:
        for place in offer.partitions:
            found.setdefault(place.name, []).append(offer)
    sliced = {name: each for name, each in found.items() if any(offer.facts.profile for offer in each)}
    for name in chosen:
        if name not in sliced:
            raise BlockedError(
                f"partition {name} has no MIG devices", code="NO_PARTITION", next_step="aliquot slurm types"
            )
    return {name: tuple(offer.type for offer in each) for name, each in sliced.items() if not chosen or name in chosen}


def _text(weights: Sequence[BillingWeight], tres: str, partitions: Sequence[PartitionWeights]) -> str:
    from aliquot.cli.framework.views import gpu_drawing as draw

    if not partitions:
        return "no partition has MIG devices"
    rows = [(each.type or "gpu", *_explained(each)) for each in weights]
    lines = [*_RULE, *draw.table(rows, indent="#   ")]
    if tres:
        lines += ["# First this, then restart slurmctld: it does not start with weights of other TRES.",
                  f"AccountingStorageTRES={tres}"]  # fmt: skip
    for each in partitions:
        lines += [f"# {each.location}", each.line]
        if not tres:
            lines.append(f"#   without a restart: scontrol update partitionname={each.partition} "
                         f"tresbillingweights={each.value}")  # fmt: skip
    return "\n".join(lines)


def _explained(weight: BillingWeight) -> tuple[str, str]:
    if weight.weight is None:
        return "unknown to the catalog", "no weight"
    return " or ".join(map(_share, weight.shares)), f"{float(weight.shares[0].share) * 100:.4g} % of a GPU"


def _share(share: TypeShare) -> str:
    text = f"{share.memory_slices}/{share.of_memory} memory, {share.compute_slices}/{share.of_compute} compute"
    return text if share.part == share.of_part else f"{share.part}/{share.of_part} of {text}"
