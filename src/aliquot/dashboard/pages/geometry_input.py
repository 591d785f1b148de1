"""Validation of a typed geometry. Its errors are shown next to the input field."""

from __future__ import annotations

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.dashboard import formatting as words
from aliquot.dashboard.change_requests import AnyChangeRequest, PartitionGpu
from aliquot.dashboard.pages.shared import gpu_at
from aliquot.dashboard.view_models import ObservedFleet
from aliquot.errors import AliquotError


def errors(inventory: Inventory, gpu: Gpu, text: str) -> tuple[str, ...]:
    """Return the errors of a text as a geometry of this GPU, empty if it is valid."""
    if not text:
        return ()
    try:
        found = adhoc([gpu.pci], [text], inventory).failures
    except AliquotError as error:
        return tuple(words.clean(line, 400) for line in (error.brief, *error.details))
    return tuple(words.clean(found_error.message, 400) for found_error in found)


def form_path(fleet: ObservedFleet, request: AnyChangeRequest) -> str:
    """Return the path of the page that shows a typed geometry with its errors, "" if there are none."""
    view = fleet.by_name.get(request.node) if isinstance(request, PartitionGpu) else None
    if view is None or not isinstance(request, PartitionGpu):
        return ""
    found = gpu_at(view, request.gpu)
    if found is None or not errors(*found, request.mig):
        return ""
    return words.path("nodes", view.name, "gpus", request.gpu) + "?" + words.query({"mig": request.mig}) + "#forms"
