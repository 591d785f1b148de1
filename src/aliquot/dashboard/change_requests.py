"""Change requests that a user can submit. A source previews each one (``ChangePreview``) before it is executed."""

from __future__ import annotations

import msgspec

from aliquot.core.model.plan import HeldPolicy
from aliquot.core.model.stored import Stored


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", forbid_unknown_fields=True):
    """A request with its policy for held instances: ``refuse``, ``wait`` (up to ``timeout_s`` seconds) or ``force``."""

    policy: Stored[HeldPolicy] = "refuse"
    timeout_s: float = 60.0


class PartitionGpu(ChangeRequest, frozen=True, tag="cut"):
    """Partition a GPU. ``mig`` has the syntax of ``--mig``: ``3g.20gb,1g.5gb*2``, ``empty``, ``disabled``."""

    node: str
    gpu: str
    mig: str


class FitInstance(ChangeRequest, frozen=True, tag="make-room"):
    """Create one more instance of a profile and keep the others. Idle instances may move; none is given up."""

    node: str
    gpu: str
    profile: str


class SwitchFunctions(ChangeRequest, frozen=True, tag="functions"):
    """Enable or disable the virtual functions of GPUs, each given as ``node/address``."""

    gpus: tuple[str, ...]
    on: bool


class SetVgpus(ChangeRequest, frozen=True, tag="vgpus"):
    """Create one vGPU type at each of these places (``node/name`` of a VgpuRow), or destroy the vGPUs if it is ""."""

    places: tuple[str, ...]
    type: str


class SetLayout(ChangeRequest, frozen=True, tag="layout"):
    """Set a MIG configuration: the number of instances by profile name, enabled or disabled."""

    node: str
    gpu: str
    counts: dict[str, int]
    enabled: bool


class UseConfig(ChangeRequest, frozen=True, tag="config"):
    """Use a named config on nodes: the node label in a cluster, the config file of the dashboard on one node."""

    nodes: tuple[str, ...]
    config: str


class Repair(ChangeRequest, frozen=True, tag="repair"):
    """Restore the state that was requested last."""

    node: str


class AttachDevices(ChangeRequest, frozen=True, tag="attach"):
    """Attach devices (``VmDeviceRow.id``) to a VM."""

    namespace: str
    vm: str = msgspec.field(name="machine")
    node: str
    devices: tuple[str, ...]


class DetachDevices(ChangeRequest, frozen=True, tag="detach"):
    """Detach devices (``VmDeviceRow.id``) from a VM."""

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
