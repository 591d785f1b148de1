"""The closed list of actions of a plan, one small frozen class each.

``assert_never`` makes the type checker list every place that must handle a new action.
"""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import MigMode
from aliquot.core.model.stored import Stored


class _Action(msgspec.Struct, frozen=True, tag_field="action", kw_only=True):
    gpu: str
    reason: str
    """From the planner, it may be a ``StructuredText``."""


class Destroy(_Action, frozen=True, tag="destroy"):
    """Destroy a GPU instance, its compute instances first."""

    instance: int
    profile: str
    profile_id: int
    placement: str
    compute_instances: tuple[int, ...] = ()


class DestroyCompute(_Action, frozen=True, tag="destroy-compute"):
    """Destroy one compute instance inside a GPU instance that stays."""

    instance: int
    compute_instance: int
    profile: str


class SetMode(_Action, frozen=True, tag="set-mode"):
    """Set MIG mode: ``enabled`` or ``disabled``."""

    mode: Stored[MigMode]


class Reset(_Action, frozen=True, tag="reset"):
    """Reset the GPU so that a pending MIG mode becomes active. Skipped if the driver already did it."""


class ComputePart(msgspec.Struct, frozen=True):
    """A compute instance to create."""

    profile: str
    profile_id: int
    placement: str | None = None
    """``start:size`` in compute slots. None if the compute instance covers the whole GPU instance, which leaves no
    choice.
    """


class Create(_Action, frozen=True, tag="create"):
    """Create a GPU instance at a placement, then its compute instances."""

    profile: str
    profile_id: int
    placement: str
    compute: tuple[ComputePart, ...]


class CreateCompute(_Action, frozen=True, tag="create-compute"):
    """Create one compute instance inside a GPU instance that stays."""

    instance: int
    profile: str
    profile_id: int
    placement: str | None = None


class SetFunctions(_Action, frozen=True, tag="set-functions"):
    """Enable ``count`` virtual functions of a GPU, or disable them (0).

    In both cases the driver forgets all GPU instances, vGPUs, mixed-size mode and scheduler.
    """

    count: int


class SetMixedSize(_Action, frozen=True, tag="set-mixed-size"):
    """Set mixed-size mode: vGPUs of different sizes on one GPU, each size at fixed placements."""

    on: bool


class SetScheduler(_Action, frozen=True, tag="set-scheduler"):
    """Set the scheduler of time-sliced vGPUs, for those that are created later. Possible only without vGPUs.

    In MIG mode it is set on each GPU instance that has another one and no vGPU.
    """

    scheduler: str
    """As ``vgpu_scheduler`` writes it."""


class CreateVgpu(_Action, frozen=True, tag="create-vgpu"):
    """Create one vGPU on a function that has none, or on the GPU itself if vGPUs are mdevs of the physical function.

    ``placement`` and ``instance`` follow from the order of the actions.
    """

    function: str
    type_id: int
    type: str
    uuid: str
    """Stable: after a reboot, the same request gives the same UUID."""
    placement: int | None = None
    """The placement id that the driver will choose in mixed-size mode."""
    instance: str | None = None
    """The placement ``start:size`` of the GPU instance that the vGPU will take."""
    parameters: str = ""
    """Its plugin parameters, as ``plugin_parameters`` writes them."""


class DestroyVgpu(_Action, frozen=True, tag="destroy-vgpu"):
    """Destroy one vGPU and no other.

    ``uuid``, ``type_id`` and ``ownership_token`` must still be those of this vGPU.
    """

    function: str
    type_id: int
    type: str
    uuid: str = ""
    ownership_token: str = msgspec.field(default="", name="claim")


class SetPassthrough(_Action, frozen=True, tag="set-passthrough"):
    """Bind the whole GPU to vfio-pci, for one VM, or bind it back to its previous driver."""

    on: bool
    function: str = ""
    """If set, only this virtual function is bound."""


Action = (
    Destroy
    | DestroyCompute
    | SetMode
    | Reset
    | Create
    | CreateCompute
    | SetFunctions
    | SetMixedSize
    | SetScheduler
    | CreateVgpu
    | DestroyVgpu
    | SetPassthrough
)
