"""What should be done to the GPUs of a node now, from its hardware and its objects."""

from __future__ import annotations

import hashlib

import msgspec

from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import decide
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import list_physical_gpus


def intents(view: NodeView, objects: Objects) -> tuple[Intent, ...]:
    """One intent for each GPU of which an object wishes something, by PCI address. One whose wish is met has a wish,
    too: planning it leads to nothing.
    """
    found = (decide(physical_gpu).intent for physical_gpu in list_physical_gpus(view, objects))
    return tuple(intent for intent in found if intent is not None)


def digest(intent: Intent) -> str:
    """Tells one wish from another: an attempt that failed says nothing about a wish of another digest."""
    return hashlib.sha256(msgspec.json.encode([intent.pci, intent.desired, intent.applies])).hexdigest()[:16]


def driver_needed(view: NodeView) -> bool:
    """Whether the node needs the vGPU driver: it has a GPU that can have virtual functions."""
    return any(function.gpu and function.sriov for function in view.functions)
