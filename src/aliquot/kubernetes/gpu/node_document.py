"""What an agent publishes of its node: the inventory and how it stands, as one small JSON document in a ConfigMap.

Written when it changed, never to say that somebody is still alive: whether it holds is told by the node's own Ready
condition and the agent's pod. What has its default value is left out, so that a node of eight GPUs needs some
ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec

from aliquot.core.config.settings import MigStrategy, PodPolicy
from aliquot.core.engine.history import PastRun
from aliquot.core.model.inventory import Gpu, Holder, Inventory
from aliquot.core.model.plan import Drift
from aliquot.core.model.stored import Stored
from aliquot.core.model.usage import Usage

LABEL = "aliquot.dev/document"
"""On the ConfigMaps: whose document it is, ``gpus`` (the agent) or ``vgpus`` (the devices agent)."""
GPUS, VGPUS = "gpus", "vgpus"
KEY = "inventory.json"
MOST_BYTES = 384 * 1024
"""Of a document's text. Kubernetes' own bound for an object is some 1 MiB."""
MOST_SOURCE = 64 * 1024
_MOST_HOLDERS = 8
_NAME_MOST = 253
_LATEST = 32503680000.0
"""The year 3000 in seconds: dates end somewhere."""
_MOST_SLICES = 64
"""More than any GPU has, by far."""


class DocumentSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place where the agent reads named configs, in its order. ``text`` only of what nobody else can read: a file of
    its container.
    """

    name: str
    text: str = ""


class NodeDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """``at`` is when it was written, or its ``read_error`` began (RFC 3339), ``pod`` the agent's own
    (``namespace/name``, "" outside a pod). ``label`` is the named config that it carries out, ``drift`` how the GPUs
    differ from that, ``reserved`` PCI addresses that are out of bounds for it. ``manages`` is False where another
    program carries the label out. ``notes`` are sentences about what was left out for its size; ``read_error`` says why
    the GPUs cannot be read now, "" where they can: all else is then as it was before. ``past_runs`` are the newest
    changes of the node's journal, whoever made them.
    """

    inventory: Inventory
    at: str = ""
    pod: str = ""
    label: str = ""
    drift: tuple[Drift, ...] = ()
    reserved: tuple[str, ...] = ()
    strategy: Stored[MigStrategy | Literal[""]] = ""
    holders: Stored[PodPolicy | Literal[""]] = ""
    manages: bool = True
    sources: tuple[DocumentSource, ...] = ()
    usage: tuple[Usage, ...] = ()
    past_runs: tuple[PastRun, ...] = msgspec.field(default=(), name="pasts")
    notes: tuple[str, ...] = ()
    read_error: str = msgspec.field(default="", name="trouble")


def map_name(node: str, kind: str) -> str:
    """The ConfigMap of a node's document."""
    return f"{node}-{kind}"[-_NAME_MOST:]


def encode(document: NodeDocument) -> str:
    """The text, cut to ``MOST_BYTES`` where it must be; then ``notes`` say what is missing."""
    text = _text(_bounded(document))
    for reduce, note in _REDUCTIONS:
        if len(text) <= MOST_BYTES:
            break
        document = msgspec.structs.replace(reduce(document), notes=(*document.notes, note))
        text = _text(_bounded(document))
    return text


def decode(text: str) -> NodeDocument | None:
    """None for what is none of ours, or from a release that writes otherwise: of GPUs, too, that are not known here."""
    try:
        found = msgspec.json.decode(text, type=NodeDocument)
        return found if _is_sound(found.inventory) and all(map(_has_valid_times, found.past_runs)) else None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, KeyError):
        return None


def _is_sound(inventory: Inventory) -> bool:
    """Whether everything can be asked of it that is asked of an inventory that was read here: one document must not
    take the whole page with it. Raises ValueError, KeyError.
    """
    for gpu in inventory.gpus:
        if gpu.family is not None and not 0 < inventory.family(gpu).memory_slices <= _MOST_SLICES:
            return False
        places = [p for i in gpu.instances for p in (i.place, *(c.place for c in i.compute_instances))]
        if any(p.start < 0 or p.size < 1 or p.start + p.size > _MOST_SLICES for p in places):
            return False
    return len({gpu.pci for gpu in inventory.gpus}) == len(inventory.gpus)


def _has_valid_times(past: PastRun) -> bool:
    """Whether it has times that there are."""
    return all(0 <= at <= _LATEST for at in (past.at, past.ended))


def _text(document: NodeDocument) -> str:
    return msgspec.json.encode(_without_defaults(document)).decode()


def _without_defaults(value: Any) -> Any:
    """Structs as mappings without what is as it is made by default."""
    if isinstance(value, msgspec.Struct):
        items = ((name, getattr(value, attribute), default) for attribute, name, default in _fields(type(value)))
        return {name: _without_defaults(item) for name, item, default in items if item != default}
    if isinstance(value, tuple | list):
        return [_without_defaults(each) for each in value]
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Of each field its attribute, its name in the text, and what it is by default: nothing equals NODEFAULT. Kept,
    for msgspec works them out anew whenever it is asked, which took as long as all the rest.
    """
    found = []
    for field in msgspec.structs.fields(kind):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        found.append((field.name, field.encode_name, default))
    return tuple(found)


def _bounded(document: NodeDocument) -> NodeDocument:
    """Of many holders a few by name: a shared instance may have hundreds of processes."""
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
    return msgspec.structs.replace(document, usage=())


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
    (_without_usage, "what the GPUs are used for is left out: the document would be too big"),
    (_without_past_runs, "what was changed before is left out: the document would be too big"),
    (_without_tables, "the driver's vGPU tables are left out: the document would be too big"),
    (_without_holders, "of several holders one is named: the document would be too big"),
    (_without_functions, "virtual functions are left out: the document would be too big"),
    (_limit_gpus, "only the first eight GPUs are here: the document would be too big"),
)
