"""The closed list of verbs that a plan is made of, one small frozen class each.

``assert_never`` makes the type checker list every place that a new one must be taught to.
"""

from __future__ import annotations

import msgspec


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

    mode: str


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


Action = Destroy | DestroyCompute | SetMode | Reset | Create | CreateCompute
