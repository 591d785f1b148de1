"""Document that an agent publishes about its node: inventory and state as JSON in a ConfigMap.

It is written only when it changed, not as a heartbeat: the node's Ready condition and the agent's pod show whether it
is current. Default values are omitted, so that a node with eight GPUs needs about ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec

from aliquot.core.config.settings import MigStrategy, PodPolicy
from aliquot.core.engine.history import PastRun
from aliquot.core.model.inventory import Gpu, Holder, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Drift
from aliquot.core.model.stored import Stored
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage

LABEL = "aliquot.dev/document"
"""Label of the ConfigMaps with the kind of document: ``gpus`` (the agent) or ``vgpus`` (the devices agent)."""
GPUS, VGPUS = "gpus", "vgpus"
KEY = "inventory.json"
MOST_BYTES = 384 * 1024
"""Maximum size of a document. The limit of Kubernetes for an object is about 1 MiB."""
MOST_SOURCE = 64 * 1024
_MOST_HOLDERS = 8
_NAME_MOST = 253
_LATEST = 32503680000.0
"""The year 3000 in seconds since the epoch, as an upper limit of times."""
_MOST_SLICES = 64
"""Upper limit of memory slices, far more than any GPU has."""


_CONFIG_MAP = "ConfigMap "


def config_map_title(name: str) -> str:
    """Return what messages and documents call a ConfigMap: ``ConfigMap namespace/name``."""
    return f"{_CONFIG_MAP}{name}"


class DocumentSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source of the agent's named configs."""

    name: str
    """The path of a file, or the title of a ConfigMap."""
    text: str = ""
    """The text of a file in the agent's container, which other programs cannot read; empty for a ConfigMap."""

    @property
    def config_map(self) -> str:
        """The ConfigMap as ``namespace/name``, "" for a file. In a document only the title tells which it is."""
        return self.name.removeprefix(_CONFIG_MAP) if self.name.startswith(_CONFIG_MAP) else ""


class NodeDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The published document of a node."""

    inventory: Inventory
    at: str = ""
    """When it was written, or since when ``read_error`` applies (RFC 3339)."""
    pod: str = ""
    """The agent's pod as ``namespace/name``; empty outside a pod."""
    label: str = ""
    """The named config that the agent applies."""
    drift: tuple[Drift, ...] = ()
    """Differences between the GPUs and the named config."""
    reserved: tuple[str, ...] = ()
    """PCI addresses of GPUs that the agent must not change."""
    strategy: Stored[MigStrategy | Literal[""]] = ""
    holders: Stored[PodPolicy | Literal[""]] = ""
    manages: bool = True
    """False if another program applies the label."""
    for_vms: bool = False
    """True if its agent follows ``nvidia.com/vgpu.config`` instead of ``nvidia.com/mig.config``."""
    claims_driver: str = ""
    """The DRA driver whose claims partition the GPUs, so that no label does; empty on other nodes."""
    sources: tuple[DocumentSource, ...] = ()
    """Sources of named configs in the agent's order."""
    usage: tuple[Usage, ...] = ()
    vgpus: tuple[VgpuUsage, ...] = ()
    """The vGPUs that VMs run with, and the state of each guest's license. Nothing else of their usage."""
    past_runs: tuple[PastRun, ...] = msgspec.field(default=(), name="pasts")
    """The newest changes in the node's journal, by any program."""
    notes: tuple[str, ...] = ()
    """Sentences about data that was omitted because of the size limit."""
    read_error: str = msgspec.field(default="", name="trouble")
    """Why the GPUs cannot be read now; empty if they can. The rest is then from the last good read."""


def map_name(node: str, kind: str) -> str:
    """Return the name of the ConfigMap of a node's document."""
    return f"{node}-{kind}"[-_NAME_MOST:]


def encode(document: NodeDocument) -> str:
    """Encode a document in at most ``MOST_BYTES``; ``notes`` name the data that is omitted for this."""
    text = _text(_bounded(document))
    for reduce, note in _REDUCTIONS:
        if len(text) <= MOST_BYTES:
            break
        document = msgspec.structs.replace(reduce(document), notes=(*document.notes, note))
        text = _text(_bounded(document))
    return text


def decode(text: str) -> NodeDocument | None:
    """Decode a document; None if it is invalid, from an incompatible release, or of unknown GPUs."""
    try:
        found = msgspec.json.decode(text, type=NodeDocument)
        return found if _is_valid(found) else None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, KeyError):
        return None


def _is_valid(found: NodeDocument) -> bool:
    places = [d.instance.place for d in found.drift if d.instance]
    valid = all(map(_has_valid_place, filter(None, places))) and all(map(_has_valid_times, found.past_runs))
    return valid and _is_sound(found.inventory)


def _is_sound(inventory: Inventory) -> bool:
    """Report whether an inventory is as consistent as one from the driver, so that one document cannot break the page.

    Raises ValueError and KeyError.
    """
    for gpu in inventory.gpus:
        if gpu.family is not None and not 0 < inventory.family(gpu).memory_slices <= _MOST_SLICES:
            return False
        places = [p for i in gpu.instances for p in (i.place, *(c.place for c in i.compute_instances))]
        if not all(map(_has_valid_place, places)):
            return False
    return len({gpu.pci for gpu in inventory.gpus}) == len(inventory.gpus)


def _has_valid_place(place: Placement) -> bool:
    return place.start >= 0 and 1 <= place.size <= _MOST_SLICES - place.start


def _has_valid_times(past: PastRun) -> bool:
    """Report whether the times are in a plausible range."""
    return all(0 <= at <= _LATEST for at in (past.at, past.ended))


def _text(document: NodeDocument) -> str:
    return msgspec.json.encode(_without_defaults(document)).decode()


def _without_defaults(value: Any) -> Any:
    """Convert structs to mappings without fields that have their default values."""
    if isinstance(value, msgspec.Struct):
        items = ((name, getattr(value, attribute), default) for attribute, name, default in _fields(type(value)))
        return {name: _without_defaults(item) for name, item, default in items if item != default}
    if isinstance(value, tuple | list):
        return [_without_defaults(each) for each in value]
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return the attribute, the encoded name and the default of each field; NODEFAULT equals no value.

    Cached, as msgspec computes them again at each call, which took as long as all the rest.
    """
    found = []
    for field in msgspec.structs.fields(kind):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        found.append((field.name, field.encode_name, default))
    return tuple(found)


def _bounded(document: NodeDocument) -> NodeDocument:
    """Limit the holders to a few: a shared instance may have hundreds of processes."""
    return _each_gpu(document, lambda gpu: _limit_holders(gpu, _MOST_HOLDERS))


def _each_gpu(document: NodeDocument, change: Callable[[Gpu], Gpu]) -> NodeDocument:
    inventory = document.inventory
    gpus = tuple(change(gpu) for gpu in inventory.gpus)
    return msgspec.structs.replace(document, inventory=msgspec.structs.replace(inventory, gpus=gpus))


def _limit_holders(gpu: Gpu, most: int) -> Gpu:
    def limited(found: tuple[Holder, ...]) -> tuple[Holder, ...]:
        more = len(found) - most
        return found if more <= 0 else (*found[:most], Holder("others", f"{more} more"))

    replace = msgspec.structs.replace
    instances = tuple(
        replace(
            i,
            holders=limited(i.holders),
            compute_instances=tuple(replace(c, holders=limited(c.holders)) for c in i.compute_instances),
        )
        for i in gpu.instances
    )
    vgpus = tuple(replace(v, holders=limited(v.holders)) for v in gpu.vgpus)
    return replace(gpu, holders=limited(gpu.holders), instances=instances, vgpus=vgpus)


def _without_usage(document: NodeDocument) -> NodeDocument:
    return msgspec.structs.replace(document, usage=(), vgpus=())


def _without_past_runs(document: NodeDocument) -> NodeDocument:
    return msgspec.structs.replace(document, past_runs=())


def _without_tables(document: NodeDocument) -> NodeDocument:
    return msgspec.structs.replace(document, inventory=msgspec.structs.replace(document.inventory, vgpu_tables=()))


def _without_holders(document: NodeDocument) -> NodeDocument:
    return _each_gpu(document, lambda gpu: _limit_holders(gpu, 1))


def _without_functions(document: NodeDocument) -> NodeDocument:
    def bare(gpu: Gpu) -> Gpu:
        if gpu.virtual is None:
            return gpu
        return msgspec.structs.replace(gpu, virtual=msgspec.structs.replace(gpu.virtual, functions=(), addresses=()))

    return _each_gpu(document, bare)


def _limit_gpus(document: NodeDocument) -> NodeDocument:
    inventory = msgspec.structs.replace(document.inventory, gpus=document.inventory.gpus[:8])
    return msgspec.structs.replace(document, inventory=inventory)


_REDUCTIONS: tuple[tuple[Callable[[NodeDocument], NodeDocument], str], ...] = (
    (_without_usage, "GPU usage is omitted: the document would be too large"),
    (_without_past_runs, "past changes are omitted: the document would be too large"),
    (_without_tables, "the driver's vGPU tables are omitted: the document would be too large"),
    (_without_holders, "only one of several holders is named: the document would be too large"),
    (_without_functions, "virtual functions are omitted: the document would be too large"),
    (_limit_gpus, "only the first eight GPUs are included: the document would be too large"),
)
