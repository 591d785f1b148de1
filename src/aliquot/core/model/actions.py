"""The closed list of verbs that a plan is made of, one small frozen class each.

``assert_never`` makes the type checker list every place that a new one must be taught to.
"""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import MigMode
from aliquot.core.model.stored import Stored


class _Action(msgspec.Struct, frozen=True, tag_field="action", kw_only=True):
    gpu: str
    reason: str


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
    """A compute instance to create. ``placement`` is ``start:size`` in compute slots, None where the compute
    instance covers the whole GPU instance and there is no choice.
    """

    profile: str
    profile_id: int
    placement: str | None = None


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
    """Switch the virtual functions of a GPU on (``count`` of them) or off (0). The driver forgets all GPU instances,
    vGPUs and mixed-size mode in both directions.
    """

    count: int


class SetMixedSize(_Action, frozen=True, tag="set-mixed-size"):
    """Set mixed-size mode: vGPUs of different sizes beside each other, each size at fixed places."""

    on: bool


class CreateVgpu(_Action, frozen=True, tag="create-vgpu"):
    """Make one vGPU on a function that has none (or on the GPU itself, where vGPUs are mdevs of it). ``uuid`` is
    stable: the same wish gives the same after a reboot. ``placement`` is the place that the driver will give it in
    mixed-size mode, ``instance`` the placement ``start:size`` of the GPU instance that it will take; both follow from
    the order.
    """

    function: str
    type_id: int
    type: str
    uuid: str
    placement: int | None = None
    instance: str | None = None


class DestroyVgpu(_Action, frozen=True, tag="destroy-vgpu"):
    """Destroy one vGPU, and only this one: ``uuid``, ``type_id`` and ``ownership_token`` must still be its own."""

    function: str
    type_id: int
    type: str
    uuid: str = ""
    ownership_token: str = msgspec.field(default="", name="claim")


class SetPassthrough(_Action, frozen=True, tag="set-passthrough"):
    """Hand the whole GPU to vfio-pci, for one virtual machine, or back to the driver that it had; or one of its virtual
    functions, where ``function`` names one.
    """

    on: bool
    function: str = ""


Action = (
    Destroy
    | DestroyCompute
    | SetMode
    | Reset
    | Create
    | CreateCompute
    | SetFunctions
    | SetMixedSize
    | CreateVgpu
    | DestroyVgpu
    | SetPassthrough
)
