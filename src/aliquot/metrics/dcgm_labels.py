"""How GPUs are named on a page: as dcgm-exporter names them."""

from __future__ import annotations

from aliquot.core.model.inventory import Gpu, Inventory

_DOUBTS = ("unknown", "estimate", "inferred-open", "inferred-exact", "derived", "secondary", "partly-captured")
"""Words of confidence that are less than a capture or NVIDIA's own tables, the least first."""


def labels(node: str, gpu: Gpu) -> tuple[str, str, str, str]:
    """The values of ``labels.GPU``."""
    return node, str(gpu.index) if gpu.index >= 0 else "", gpu.uuid, bus_id(gpu.pci)


def bus_id(pci: str) -> str:
    """``00000000:0A:00.0`` for ``0000:0a:00.0``: NVML writes eight digits of domain, in capitals."""
    domain, _, rest = pci.upper().partition(":")
    return f"{domain:0>8}:{rest}"


def device(gpu: Gpu) -> str:
    """``nvidia0``, "" for a GPU that has no device node."""
    return f"nvidia{gpu.minor}" if gpu.minor >= 0 else ""


def confidence(inventory: Inventory, gpu: Gpu) -> str:
    """The least sure word about where the profiles of its table may lie; "" for a GPU without a table."""
    if gpu.family is None:
        return ""
    try:
        profiles = inventory.family(gpu).profiles
    except KeyError:
        return ""
    words = {p.confidence.get("placements", "captured") for p in profiles}
    return next((word for word in _DOUBTS if word in words), min(words, default=""))
