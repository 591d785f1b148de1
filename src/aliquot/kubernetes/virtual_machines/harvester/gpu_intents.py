"""The intents for a node's GPUs, from its hardware and its objects."""

from __future__ import annotations

import hashlib

from aliquot.core.model.encoding import encode
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import decide
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import list_physical_gpus


def intents(view: NodeView, objects: Objects) -> tuple[Intent, ...]:
    """Return the intent for each GPU of which an object requests something, by PCI address.

    A GPU whose request is met has an intent, too: its plan is empty.
    """
    found = (decide(physical_gpu).intent for physical_gpu in list_physical_gpus(view, objects))
    return tuple(intent for intent in found if intent is not None)


def digest(intent: Intent) -> str:
    """Return the digest of an intent. A failed attempt says nothing about an intent with another digest."""
    return hashlib.sha256(encode([intent.pci, intent.desired, intent.applies])).hexdigest()[:16]


def driver_needed(view: NodeView, objects: Objects) -> bool:
    """Report whether the node needs the vGPU driver: it has a GPU with SR-IOV, or another one that should be shared."""
    return any(gpu.function.sriov or (gpu.enabled and gpu.slots) for gpu in list_physical_gpus(view, objects))
