"""What should be, per GPU, after selectors are resolved."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.stored import Stored

_FileRule = Literal["BAD_PLACEMENT", "COMPUTE_DOES_NOT_FIT", "NOTHING_MATCHES", "OVERLAP", "TWICE", "WRONG_CARD"]
_GpuRule = Literal["GPU_LOST", "HELD", "MODE", "NOT_CAPABLE", "NO_SUCH_GPU", "NO_TABLE", "UNKNOWN_PROFILE"]
_CountRule = Literal["AT_MOST", "COMPUTE_INSTANCES", "COMPUTE_SLICES", "ENGINES", "EXCLUDES", "MAX_INSTANCES"]
_PlaceRule = Literal["COMPUTE_PLACEMENT", "PLACEMENT"]
_TypeRule = Literal["EQUAL_SIZE", "MAX_VGPUS", "MIG_TYPE", "MIXED_SIZE", "SERIES", "TYPE_WITHOUT_ID", "UNKNOWN_TYPE"]
_FunctionRule = Literal["FUNCTIONS_IN_USE", "NO_FUNCTION", "NO_INSTANCE", "NO_VGPU_DRIVER"]
_HostRule = Literal["FABRIC", "IOMMU_GROUP", "NO_IOMMU", "NO_VFIO", "PASSTHROUGH"]
_MachineRule = Literal["DISPLAY", "ONE_NODE", "PER_VM", "RAMFB"]
PlanRule = Literal[_FileRule, _GpuRule, _CountRule, _PlaceRule, _TypeRule, _FunctionRule, _HostRule, _MachineRule]
"""The rules that the planner and the readers of files refuse by. docs/reference/errors.md explains each of them."""
AttachRule = Literal["DUPLICATE", "MANAGED", "NOT_BOUND", "NO_MDEV", "NO_VGPU", "WORLD"]
"""The rules that only a device in libvirt's definition of a machine can break."""
RuleCode = Literal[PlanRule, AttachRule]


class DesiredInstance(msgspec.Struct, frozen=True):
    """One GPU instance that should exist: a profile by id (``name`` is for people), at ``start`` if that was asked.

    ``compute`` are compute instance profile ids; one that covers the whole instance is the default of the field's
    meaning, so every wish names at least one unless an empty GPU instance is wanted (checkpoints may).

    ``loose`` if only compute instances were asked for, such as two ``1c.3g.20gb``: the planner chooses which GPU
    instances hold them, and how many. The grouping in such wishes is only one possibility.
    """

    profile_id: int
    name: str
    compute: tuple[int, ...]
    start: int | None = None
    compute_starts: tuple[int, ...] | None = None
    loose: bool = False


class DesiredVgpu(msgspec.Struct, frozen=True):
    """One vGPU that should exist. ``function``, ``uuid`` and ``placement`` only where they were asked (or recorded).
    ``type_id`` follows from the name and the product.
    """

    type_id: int
    type: str
    function: str = ""
    uuid: str = ""
    placement: int | None = None


class DesiredGpu(msgspec.Struct, frozen=True):
    """What one GPU should become. ``mig`` None leaves the mode as it is; ``instances`` None leaves them alone
    (mode-only). ``source`` says where in the user's text this was asked.

    ``vgpus`` None leaves vGPUs alone as far as the rest of the wish allows; empty means none. ``functions`` None leaves
    the virtual functions as they are, unless vGPUs are asked; ``mixed_size`` is mixed-size mode, None for "as it is".
    ``passthrough`` True hands the whole GPU out, False takes it back, None takes it back only where the rest of the
    wish needs the GPU. ``vfio_bound`` are the virtual functions that vfio-pci should have, None leaves them as they
    are. ``restoring``: it asks for what there was before, so that what is refused only where it is new is not.
    """

    pci: str
    mig: bool | None
    instances: tuple[DesiredInstance, ...] | None = ()
    source: str = ""
    vgpus: tuple[DesiredVgpu, ...] | None = None
    functions: bool | None = None
    mixed_size: bool | None = msgspec.field(default=None, name="mixed")
    passthrough: bool | None = None
    vfio_bound: tuple[str, ...] | None = msgspec.field(default=None, name="bound")
    restoring: bool = False


class ResolutionFailure(msgspec.Struct, frozen=True):
    """Why a wish for one GPU cannot be met at all here: found while resolving selectors, reported as a blocker."""

    rule: Stored[RuleCode]
    message: str
    pci: str = ""
    next_step: str | None = None


class Desired(msgspec.Struct, frozen=True):
    """The wish for a node. GPUs that are not named are left alone. ``failures`` block the whole wish."""

    gpus: tuple[DesiredGpu, ...]
    name: str = ""
    notes: tuple[str, ...] = ()
    failures: tuple[ResolutionFailure, ...] = msgspec.field(default=(), name="faults")
