"""What a person can ask of the page, as data. A source says what it comes to (``Preview``) before anything is done."""

from __future__ import annotations

import msgspec

from aliquot.core.model.plan import HeldPolicy
from aliquot.core.model.stored import Stored


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", forbid_unknown_fields=True):
    """``policy`` is what may be done to held instances: ``refuse``, ``wait`` (``timeout_s`` seconds) or ``force``."""

    policy: Stored[HeldPolicy] = "refuse"
    timeout_s: float = 60.0


class PartitionGpu(ChangeRequest, frozen=True, tag="cut"):
    """Cut a GPU. ``mig`` as ``--mig`` takes it: ``3g.20gb,1g.5gb*2``, ``empty``, ``disabled``."""

    node: str
    gpu: str
    mig: str


class FitInstance(ChangeRequest, frozen=True, tag="make-room"):
    """One more of a profile, beside as many of each as there are: idle instances may move, none is given up."""

    node: str
    gpu: str
    profile: str


class SwitchFunctions(ChangeRequest, frozen=True, tag="functions"):
    """Virtual functions of GPUs, each ``node/address``, on or off."""

    gpus: tuple[str, ...]
    on: bool


class SetVgpus(ChangeRequest, frozen=True, tag="vgpus"):
    """The same vGPU type on each of these places (``node/name`` of a VgpuRow); "" destroys what is there."""

    places: tuple[str, ...]
    type: str


class SetLayout(ChangeRequest, frozen=True, tag="layout"):
    """A MIG configuration: how many of each profile (by name), switched on or off."""

    node: str
    gpu: str
    counts: dict[str, int]
    enabled: bool


class UseConfig(ChangeRequest, frozen=True, tag="config"):
    """A named config for nodes: in a cluster the label, on a node the config file that the page was started with."""

    nodes: tuple[str, ...]
    config: str


class Repair(ChangeRequest, frozen=True, tag="repair"):
    """Back to what was asked last."""

    node: str


class AttachDevices(ChangeRequest, frozen=True, tag="attach"):
    """Devices (``Device.id``) for a machine."""

    namespace: str
    vm: str = msgspec.field(name="machine")
    node: str
    devices: tuple[str, ...]


class DetachDevices(ChangeRequest, frozen=True, tag="detach"):
    """Devices (``Device.id``) away from a machine."""

    namespace: str
    vm: str = msgspec.field(name="machine")
    node: str
    devices: tuple[str, ...]


AnyChangeRequest = (
    PartitionGpu
    | FitInstance
    | SwitchFunctions
    | SetVgpus
    | SetLayout
    | UseConfig
    | Repair
    | AttachDevices
    | DetachDevices
)
