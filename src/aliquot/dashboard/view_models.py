"""What the pages show, as frozen values. Sources fill them, pages draw them; nothing here reads or computes."""

from __future__ import annotations

from functools import cached_property

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift
from aliquot.core.model.usage import Usage
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.core.rendering.vgpu_picture import DrawnVgpu

NODE, SIMULATOR, CLUSTER = "node", "simulator", "cluster"
"""Kinds of source: this machine (or one simulated node), the simulated nodes of a state directory, a cluster."""


class ObservedNode(msgspec.Struct, frozen=True):
    """One node as it was last seen. ``inventory`` is None where it was never read; ``observed_at`` is when it was
    (seconds of wall time, 0 for never); ``error`` says why it could not be read since, "" where it is fresh: everything
    shown of a node with trouble is marked as stale. ``desired`` names what its GPUs should be (a named config, "the
    record"), "" where nobody asked; ``drift`` is how they differ from that. ``changing`` says who is at it just now, ""
    for nobody. ``config`` and ``state`` are the label's named config and the agent's state word (clusters).
    ``revision`` is another one whenever anything shown of the node is; ``begun`` is when the reading began
    (``time.monotonic``), where several may be under way.
    """

    name: str
    inventory: Inventory | None = None
    observed_at: float = 0.0
    error: str = ""
    next_step: str = ""
    desired: str = ""
    drift: tuple[Drift, ...] = ()
    changing: str = ""
    config: str = ""
    state: str = ""
    message: str = ""
    usage: tuple[Usage, ...] = ()
    revision: int = 0
    begun: float = 0.0

    @property
    def stale(self) -> bool:
        return bool(self.error)


class ObservedFleet(msgspec.Struct, frozen=True, dict=True):
    """All nodes, by name. ``error`` says why the source as a whole cannot be asked (API server away), "" if it can.
    ``ready`` is False until everything was looked at once: an empty fleet and an unknown one are not the same.
    """

    nodes: tuple[ObservedNode, ...] = ()
    revision: int = 0
    ready: bool = False
    error: str = ""
    next_step: str = ""

    @cached_property
    def by_name(self) -> dict[str, ObservedNode]:
        return {node.name: node for node in self.nodes}


# -- what virtual machines can have (the pages of Harvester's users)


class SriovRow(msgspec.Struct, frozen=True):
    """A GPU that can have virtual functions. ``name`` is Harvester's object name where there is one, else the GPU's
    address. ``state`` is one sentence ("16 functions, 3 vGPUs", or why not); ``why_not`` why it cannot be switched now.
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
    """A place for a vGPU: a virtual function, or one more mdev of a GPU. ``type`` is "" where there is none. ``types``
    are those that can be made here now (product names). ``holders`` are in words; ``why_not`` why it cannot be changed.
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
    """One profile in a MIG configuration: how many are asked for, there, possible now, and possible at all."""

    name: str
    id: int
    requested: int
    present: int
    available: int
    total: int


class MigRow(msgspec.Struct, frozen=True):
    """A GPU's MIG configuration. ``status`` is Harvester's word (synced, out-of-sync, disabled) or our sentence."""

    node: str
    gpu: str
    product: str
    name: str
    enabled: bool
    status: str
    profiles: tuple[ProfileRow, ...]
    why_not: str = ""


class VmDeviceRow(msgspec.Struct, frozen=True):
    """A device that a machine has or could have. ``id`` is what attaching names: an mdev's UUID, an address, or the
    name of an object; ``resource`` is what KubeVirt asks for. ``several`` says whether more than one of its type may be
    in one machine (None: nobody says).
    """

    id: str
    node: str
    type: str
    parent: str = ""
    resource: str = ""
    several: bool | None = None


class VmRow(msgspec.Struct, frozen=True):
    """A virtual machine of KubeVirt or libvirt. ``free`` are the devices that could be attached: of the same node
    alone. ``warnings`` are rules that a saved change must heed (one ramFB, Q-series alone in several). ``why_not`` is
    why it cannot be changed now.
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
    """Everything for virtual machines. ``missing`` are sentences about what must be there and is not (the controller,
    the driver toolkit, a vGPU host driver), each with what to do about it; ``no_vms`` are those about the machines
    themselves (libvirtd, KubeVirt).
    """

    sriov: tuple[SriovRow, ...] = ()
    vgpus: tuple[VgpuRow, ...] = ()
    migs: tuple[MigRow, ...] = ()
    vms: tuple[VmRow, ...] = ()
    missing: tuple[str, ...] = ()
    no_vms: tuple[str, ...] = ()


# -- changes


class GpuPicture(msgspec.Struct, frozen=True):
    """One GPU before and after. ``slices`` is the number of memory slices, 0 where the picture is not of MIG.
    ``region`` is the memory in GiB that ``shares`` lie in, 0 without. ``now`` and ``planned`` are the geometries in
    words. ``divided``: profiles and places alone do not say what was there (``rendering.mig_picture.divided``).
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


class ActionLine(msgspec.Struct, frozen=True):
    """One line of a plan: ``destroy b 2g.10gb at 2:2 — not asked``. ``size`` is the profile or vGPU type in ``what``,
    ``placement`` where a GPU instance is or comes. ``feature`` is what ``set`` switches on, or off (``on``).
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


class Obstacle(msgspec.Struct, frozen=True):
    """Why there is no way: the rule, who is in the way, what would fit, and what to do next."""

    rule: str
    message: str
    node: str = ""
    gpu: str = ""
    holders: tuple[str, ...] = ()
    suggestion: str = ""
    next_step: str = ""


class ChangePreview(msgspec.Struct, frozen=True):
    """What an ask comes to, before anything is touched. ``summary`` is one line (``3 kept, 2 to destroy``), ``kept``
    how many instances stay, where one node's plan tells, ``notes`` and ``warnings`` are sentences. Without acts and
    obstacles there is nothing to do. ``secret`` is the source's own: the plan, the versions of objects.
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
    """How a change ended: ``done``, ``nothing``, ``reboot``, ``undone`` (failed, and the former state is back),
    ``partial`` (failed, and not all could be undone), ``refused`` (nothing was touched: it moved since, it is locked,
    it is forbidden). ``details`` are sentences.
    """

    status: str
    sentence: str
    details: tuple[str, ...] = ()
    code: str = ""
    next_step: str = ""


class PastChange(msgspec.Struct, frozen=True):
    """One change of the past, from the journal. ``at`` and ``ended`` are seconds of wall time, 0 where not recorded;
    ``by`` is who asked ("" unknown); ``outcome`` as in ``ChangeOutcome``, or ``cut off`` for one that never ended.
    """

    node: str
    at: float
    ended: float
    by: str
    title: str
    outcome: str
    actions: tuple[str, ...] = ()
    sentence: str = ""


class Person(msgspec.Struct, frozen=True):
    """Who asks. ``name`` is for the record. ``token`` is a cluster user's own bearer token, with which writes are made;
    ``reads_only`` refuses every change.
    """

    name: str
    token: str = ""
    groups: tuple[str, ...] = ()
    reads_only: bool = False
