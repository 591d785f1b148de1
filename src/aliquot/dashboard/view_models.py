"""View models: frozen values that sources create and pages render. Nothing here reads or computes."""

from __future__ import annotations

from functools import cached_property

import msgspec

from aliquot.core.engine.history import EndStatus, PastOutcome
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift
from aliquot.core.model.usage import Usage
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.core.rendering.vgpu_picture import DrawnVgpu

NODE, SIMULATOR, CLUSTER = "node", "simulator", "cluster"
"""Kinds of source: this host or one simulated node, all simulated nodes of a state directory, a cluster."""


class ObservedNode(msgspec.Struct, frozen=True):
    """The last observed state of a node. A node with an ``error`` is shown as stale."""

    name: str
    inventory: Inventory | None = None
    """None if the node was never read."""
    observed_at: float = 0.0
    """Seconds of wall time, 0 for never."""
    error: str = ""
    """Why the last attempt to read the node failed, "" if it succeeded."""
    next_step: str = ""
    desired: str = ""
    """The name of the desired state: a named config or "the record"; "" if none was requested."""
    drift: tuple[Drift, ...] = ()
    changing: str = ""
    """The user or process that changes the node now, "" if there is none."""
    config: str = ""
    """The named config of the node label (clusters only)."""
    state: str = ""
    """The state that the agent reports (clusters only)."""
    message: str = ""
    usage: tuple[Usage, ...] = ()
    revision: int = 0
    """Increases whenever anything shown of the node changes."""
    begun: float = 0.0
    """When the observation began (``time.monotonic``). It orders concurrent observations."""

    @property
    def stale(self) -> bool:
        return bool(self.error)


class ObservedFleet(msgspec.Struct, frozen=True, dict=True):
    """All nodes, sorted by name. ``error`` says why the whole source is unavailable (for example the API server).

    ``ready`` is False until all nodes were read once. An unknown fleet is not an empty one.
    """

    nodes: tuple[ObservedNode, ...] = ()
    revision: int = 0
    ready: bool = False
    error: str = ""
    next_step: str = ""

    @cached_property
    def by_name(self) -> dict[str, ObservedNode]:
        return {node.name: node for node in self.nodes}


# -- devices for VMs


class SriovRow(msgspec.Struct, frozen=True):
    """A GPU that supports virtual functions. ``name`` is that of Harvester's object, or else the GPU's address.

    ``state`` is a sentence ("16 functions, 3 vGPUs"). ``why_not`` says why they cannot be enabled or disabled now.
    """

    node: str
    gpu: str
    product: str
    name: str
    enabled: bool
    functions: int
    total: int
    vgpus: int
    state: str = ""
    why_not: str = ""


class VgpuRow(msgspec.Struct, frozen=True):
    """A place for a vGPU: a virtual function, or one more mdev of a GPU. ``type`` is "" if it has no vGPU.

    ``types`` are the product names that can be created here now. ``why_not`` says why the place cannot be changed.
    """

    node: str
    name: str
    address: str
    parent: str
    parent_product: str
    type: str = ""
    uuid: str = ""
    types: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    state: str = ""
    why_not: str = ""

    @property
    def enabled(self) -> bool:
        return bool(self.type)


class ProfileRow(msgspec.Struct, frozen=True):
    """A profile of a MIG configuration with its numbers of instances. ``total`` is the maximum of an empty GPU."""

    name: str
    id: int
    requested: int
    present: int
    available: int
    total: int


class MigRow(msgspec.Struct, frozen=True):
    """A GPU's MIG configuration. ``status`` is Harvester's state (synced, out-of-sync, disabled) or a sentence."""

    node: str
    gpu: str
    product: str
    name: str
    enabled: bool
    status: str
    profiles: tuple[ProfileRow, ...]
    why_not: str = ""


class VmDeviceRow(msgspec.Struct, frozen=True):
    """A device that is or can be attached to a VM."""

    id: str
    """The UUID of an mdev, a PCI address, or the name of an object."""
    node: str
    type: str
    parent: str = ""
    resource: str = ""
    """The resource name that KubeVirt requests."""
    several: bool | None = None
    """Whether one VM may have more than one device of this type; None if unknown."""


class VmRow(msgspec.Struct, frozen=True):
    """A VM of KubeVirt or libvirt. ``free`` are the unused devices of its node, which can be attached.

    ``warnings`` are rules for its devices, such as one ramFB. ``why_not`` says why it cannot be changed now.
    """

    name: str
    namespace: str
    node: str
    running: bool
    devices: tuple[VmDeviceRow, ...] = ()
    free: tuple[VmDeviceRow, ...] = ()
    warnings: tuple[str, ...] = ()
    why_not: str = ""


class VirtualizationView(msgspec.Struct, frozen=True):
    """All rows for VMs. ``missing`` are sentences about missing requirements, each with a next step.

    Examples are the controller, the driver toolkit or a vGPU host driver.
    ``no_vms`` are sentences on why no VMs can be listed (libvirtd, KubeVirt).
    """

    sriov: tuple[SriovRow, ...] = ()
    vgpus: tuple[VgpuRow, ...] = ()
    migs: tuple[MigRow, ...] = ()
    vms: tuple[VmRow, ...] = ()
    missing: tuple[str, ...] = ()
    no_vms: tuple[str, ...] = ()


# -- changes


class GpuPicture(msgspec.Struct, frozen=True):
    """A GPU before and after a plan. ``now`` and ``planned`` are the geometries as text.

    ``slices`` is the number of memory slices, 0 if the picture does not show MIG.
    ``region`` is the memory in GiB of the vGPUs, 0 without vGPUs.
    ``divided`` is True if profiles and placements do not describe the previous state fully
    (``mig_picture.has_divided_instances``). ``mig_disabled`` is True if MIG mode is disabled now.
    """

    node: str
    gpu: str
    title: str
    slices: int = 0
    before: tuple[DrawnInstance, ...] = ()
    after: tuple[DrawnInstance, ...] = ()
    now: str = ""
    planned: str = ""
    region: int = 0
    shares_before: tuple[DrawnVgpu, ...] = ()
    shares_after: tuple[DrawnVgpu, ...] = ()
    divided: bool = False
    mig_disabled: bool = False


class ActionLine(msgspec.Struct, frozen=True):
    """An action of a plan: ``destroy b 2g.10gb at 2:2 (not requested)``.

    ``size`` is the profile or vGPU type, and ``inside`` describes the compute instances.
    ``feature`` is what the verb ``set`` enables (``on``) or disables.
    """

    node: str
    gpu: str
    verb: str
    letter: str
    what: str
    reason: str
    size: str = ""
    placement: str = ""
    feature: str = ""
    on: bool = False
    inside: str = ""


class Obstacle(msgspec.Struct, frozen=True):
    """A reason that a request cannot be applied, with its holders, what would fit instead, and the next step."""

    rule: str
    message: str
    node: str = ""
    gpu: str = ""
    holders: tuple[str, ...] = ()
    suggestion: str = ""
    next_step: str = ""


class ChangePreview(msgspec.Struct, frozen=True):
    """The preview of a request, before anything is changed. Without actions and obstacles there is nothing to do.

    ``summary`` is one line (``keep 3, destroy 2``). ``kept`` is the number of instances that stay, if known.
    ``secret`` is data of the source: the plan, the versions of objects.
    """

    title: str
    nodes: tuple[str, ...]
    pictures: tuple[GpuPicture, ...] = ()
    actions: tuple[ActionLine, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    summary: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kept: int = 0
    secret: object = None

    @property
    def blocked(self) -> bool:
        return bool(self.obstacles)

    @property
    def changes(self) -> bool:
        return bool(self.actions) and not self.obstacles


class ChangeOutcome(msgspec.Struct, frozen=True):
    """The outcome of a change.

    ``undone`` means that it failed and the previous state was restored; ``partial`` that not everything was reverted.
    ``refused`` means that nothing was changed, because of a changed state, a lock or a missing permission.
    """

    status: EndStatus
    sentence: str
    details: tuple[str, ...] = ()
    code: str = ""
    next_step: str = ""
    predicate: str = ""
    """The sentence without the outcome that it starts with; "" if it starts with none."""

    @classmethod
    def done(cls, what: str, details: tuple[str, ...] = ()) -> ChangeOutcome:
        return cls("done", f"Done: {what}", details, predicate=what)

    @classmethod
    def nothing(cls, why: str) -> ChangeOutcome:
        return cls("nothing", f"Nothing to do: {why}", predicate=why)

    @classmethod
    def refused(
        cls, why: str, details: tuple[str, ...] = (), code: str = "", next_step: str | None = None
    ) -> ChangeOutcome:
        """Build the outcome of a change that was not started."""
        return cls("refused", f"Nothing was changed: {why}", details, code, next_step or "", why)


class PastChange(msgspec.Struct, frozen=True):
    """A past change from the journal. ``at`` and ``ended`` are seconds of wall time, 0 if not recorded.

    ``by`` is the user, "" if unknown. ``outcome`` is as in ``ChangeOutcome``, or ``cut off`` without a recorded end.
    """

    node: str
    at: float
    ended: float
    by: str
    title: str
    outcome: PastOutcome
    actions: tuple[str, ...] = ()
    sentence: str = ""


class Person(msgspec.Struct, frozen=True):
    """The user of a request. ``name`` is recorded in the journal.

    ``token`` is a cluster user's own bearer token, used for writes. With ``reads_only``, every change is refused.
    """

    name: str
    token: str = ""
    groups: tuple[str, ...] = ()
    reads_only: bool = False
