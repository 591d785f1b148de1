"""The desired state per GPU, after selectors are resolved."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.stored import Stored

_FileRule = Literal["BAD_PLACEMENT", "COMPUTE_DOES_NOT_FIT", "NOTHING_MATCHES", "OVERLAP", "TWICE", "WRONG_CARD"]
_GpuRule = Literal[
    "GPU_LOST", "HELD", "MODE", "NOT_CAPABLE", "NO_SUCH_GPU", "NO_SUCH_INSTANCE", "NO_TABLE", "UNKNOWN_PROFILE"
]
_CountRule = Literal["AT_MOST", "COMPUTE_INSTANCES", "COMPUTE_SLICES", "ENGINES", "EXCLUDES", "MAX_INSTANCES"]
_PlaceRule = Literal["COMPUTE_PLACEMENT", "PLACEMENT"]
_TypeRule = Literal[
    "EQUAL_SIZE", "MAX_VGPUS", "MIG_TYPE", "MIXED_SIZE", "PARAMETER", "SERIES", "TYPE_WITHOUT_ID", "UNKNOWN_TYPE"
]
_FunctionRule = Literal["FUNCTIONS_IN_USE", "NO_FUNCTION", "NO_INSTANCE", "NO_VGPU_DRIVER", "SCHEDULER"]
_HostRule = Literal["FABRIC", "IOMMU_GROUP", "NO_IOMMU", "NO_VFIO", "PASSTHROUGH"]
_MachineRule = Literal["DISPLAY", "ONE_NODE", "PER_VM", "RAMFB"]
PlanRule = Literal[_FileRule, _GpuRule, _CountRule, _PlaceRule, _TypeRule, _FunctionRule, _HostRule, _MachineRule]
"""The rules by which the planner and the file readers refuse. docs/reference/errors.md explains each of them."""
AttachRule = Literal["DUPLICATE", "MANAGED", "NOT_BOUND", "NO_MDEV", "NO_VGPU", "WORLD"]
"""The rules that only a device in a libvirt domain definition can break."""
RuleCode = Literal[PlanRule, AttachRule]


class DesiredInstance(msgspec.Struct, frozen=True):
    """A GPU instance that should exist."""

    profile_id: int
    name: str
    """The name of the profile, for display."""
    compute: tuple[int, ...]
    """Compute instance profile ids.

    A request without compute instances in its text gets the one that covers the whole GPU instance. So this is empty
    only if an empty GPU instance is requested, which checkpoints may do.
    """
    start: int | None = None
    """First memory slice, if the request names one."""
    compute_starts: tuple[int, ...] | None = None
    loose: bool = False
    """Whether only compute instances were requested, such as two ``1c.3g.20gb``.

    The planner then chooses how many GPU instances hold them and which. The grouping in the request is only one
    possibility.
    """


class DesiredVgpu(msgspec.Struct, frozen=True):
    """A vGPU that should exist. ``function``, ``uuid`` and ``placement`` are set only if they were requested or
    recorded.
    """

    type_id: int
    """Follows from the name and the product."""
    type: str
    function: str = ""
    uuid: str = ""
    placement: int | None = None
    parameters: str | None = None
    """Its plugin parameters, as ``plugin_parameters`` writes them. None leaves those of a vGPU that stays."""


class DesiredGpu(msgspec.Struct, frozen=True):
    """The desired state of one GPU."""

    pci: str
    mig: bool | None
    """None leaves the mode unchanged."""
    instances: tuple[DesiredInstance, ...] | None = ()
    """None leaves the instances unchanged (mode only)."""
    source: str = ""
    """The place in the user's text that requests this."""
    vgpus: tuple[DesiredVgpu, ...] | None = None
    """None leaves vGPUs unchanged as far as the rest of the request allows. Empty means none."""
    functions: bool | None = None
    """Virtual functions. None leaves them unchanged unless vGPUs are requested."""
    mixed_size: bool | None = msgspec.field(default=None, name="mixed")
    """Mixed-size mode. None leaves it unchanged."""
    passthrough: bool | None = None
    """True passes the whole GPU through, False takes it back. None takes it back only if the rest of the request needs
    the GPU.
    """
    vfio_bound: tuple[str, ...] | None = msgspec.field(default=None, name="bound")
    """The virtual functions that should be bound to vfio-pci. None leaves them unchanged."""
    scheduler: str | None = None
    """The scheduler of time-sliced vGPUs, as ``vgpu_scheduler`` writes it. None leaves it unchanged."""
    spares_held: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether GPU instances of which a VM has a vGPU keep their scheduler for now, instead of blocking the request."""
    restoring: bool = False
    """The request restores a previous state: rules that refuse only new things do not apply."""

    @property
    def involves_vms(self) -> bool:
        """True if the request concerns virtual functions, vGPUs or passthrough."""
        requested = self.vgpus, self.functions, self.mixed_size, self.passthrough, self.vfio_bound, self.scheduler
        return any(each is not None for each in requested)


class ResolutionFailure(msgspec.Struct, frozen=True):
    """A request for one GPU that cannot be met here. Found while resolving selectors, reported as a blocker."""

    rule: Stored[RuleCode]
    text: str = msgspec.field(name="message")
    """The message. It may be a ``StructuredText``; so may ``step``."""
    pci: str = ""
    step: str | None = msgspec.field(name="next_step", default=None)

    @property
    def message(self) -> str:
        """The message, in words."""
        return str(self.text)

    @property
    def next_step(self) -> str | None:
        """The next command or another action, in words."""
        return None if self.step is None else str(self.step)


class Desired(msgspec.Struct, frozen=True):
    """The desired state of a node. GPUs that are not named are left unchanged."""

    gpus: tuple[DesiredGpu, ...]
    name: str = ""
    notes: tuple[str, ...] = ()
    failures: tuple[ResolutionFailure, ...] = msgspec.field(default=(), name="faults")
    """Any of them blocks the whole request."""
