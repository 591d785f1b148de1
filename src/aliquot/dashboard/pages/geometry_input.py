"""A geometry that somebody typed: what is wrong with it, beside the field in which it was typed."""

from __future__ import annotations

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.dashboard import formatting as words
from aliquot.dashboard.change_requests import AnyAsk, Cut
from aliquot.dashboard.pages.shared import gpu_at
from aliquot.dashboard.view_models import Fleet
from aliquot.errors import AliquotError


def faults(inventory: Inventory, gpu: Gpu, text: str) -> tuple[str, ...]:
    """Sentences about a text that is no geometry of this GPU; none where it is one."""
    if not text:
        return ()
    try:
        found = adhoc([gpu.pci], [text], inventory).faults
    except AliquotError as error:
        return tuple(words.clean(line, 400) for line in (error.brief, *error.details))
    return tuple(words.clean(fault.message, 400) for fault in found)


def way_back(fleet: Fleet, ask: AnyAsk) -> str:
    """The page that shows a typed geometry with its faults; "" where nothing was typed, or nothing is wrong with it."""
    look = fleet.by_name.get(ask.node) if isinstance(ask, Cut) else None
    if look is None or not isinstance(ask, Cut):
        return ""
    found = gpu_at(look, ask.gpu)
    if found is None or not faults(*found, ask.mig):
        return ""
    return words.path("nodes", look.name, "gpus", ask.gpu) + "?" + words.query({"mig": ask.mig}) + "#forms"
