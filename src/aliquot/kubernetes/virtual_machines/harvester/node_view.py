"""What decisions about Harvester's objects are made from: one node's hardware and objects at one moment, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice

JSON = dict[str, Any]


class Objects(msgspec.Struct, frozen=True):
    """The objects of one node, by name."""

    gpus: Mapping[str, SRIOVGPUDevice] = {}
    vgpus: Mapping[str, VGPUDevice] = {}
    migs: Mapping[str, MigConfiguration] = {}
    functions: Mapping[str, PCIDevice] = {}
    claims: Mapping[str, PCIDeviceClaim] = {}


class NodeView(msgspec.Struct, frozen=True):
    """One look. ``functions`` need no driver: NVIDIA's functions and what shares an IOMMU group with them.
    ``inventory`` is None while no driver answers; ``driver_error`` says why, by ``reason`` and a sentence. ``now`` is
    wall time for conditions (seconds), ``boot`` the id of this boot.
    """

    node: str
    boot: str
    now: float
    functions: tuple[PciFunction, ...] = ()
    inventory: Inventory | None = None
    reason: str = ""
    driver_error: str = ""


class Result(msgspec.Struct, frozen=True):
    """How the last attempt at one GPU's wish ended. ``reason`` is a word for conditions (``Applied``, ``Held``,
    ``NoInstance``, ``HardwareRefused``), ``message`` the sentence with the next command. ``attempt`` is the digest of
    the wish that it is about: the result of another wish says nothing.
    """

    attempt: str
    ok: bool
    reason: str
    message: str = ""


class Intent(msgspec.Struct, frozen=True):
    """What should be done to one GPU now: a wish for the planner, or nothing with the reason. ``desired`` None leaves
    the GPU alone. ``applies`` are the names of MigConfigurations whose ``appliedBoot`` becomes this boot when it is
    done.
    """

    pci: str
    desired: DesiredGpu | None = None
    reason: str = ""
    message: str = ""
    applies: tuple[str, ...] = ()


class ObjectChange(msgspec.Struct, frozen=True):
    """One write to the API server. ``verb``: create, patch (merge patch of metadata and spec), status (merge patch of
    the status alone) or delete. ``version`` is the resourceVersion that it is based on, empty where none matters.
    """

    verb: str
    kind: str
    name: str
    body: JSON = {}
    version: str = ""
    uid: str = ""
    why: str = ""
