"""View models of the claims of Dynamic Resource Allocation (DRA). Frozen values, as in ``view_models``."""

from __future__ import annotations

import msgspec


class ClaimRow(msgspec.Struct, frozen=True):
    """A device of a claim. ``pods`` are the names of the pods that may use it, in the namespace of the claim.

    ``problem`` is why the device does not work, or why its room is not safe; empty if all is well.
    """

    namespace: str
    claim: str
    node: str
    gpu: str
    """The PCI address; empty if the device is not published."""
    product: str
    device: str
    """The name that the driver gives the device."""
    what: str
    """``3g.20gb at 4:4`` or ``whole GPU``; empty if the device is not published."""
    pods: tuple[str, ...] = ()
    admin: bool = False
    """Access for administration, which takes nothing from others."""
    problem: str = ""


class ClaimableProfile(msgspec.Struct, frozen=True):
    """The number of devices of a profile that a claim can still get on a GPU. ``reason`` says why there is none.

    With ``more``, others may follow that the node publishes once these are taken.
    """

    profile: str
    count: int
    reason: str = ""
    more: bool = False


class ClaimableGpu(msgspec.Struct, frozen=True):
    """A GPU with the devices that claims can still get. ``problems`` are those of its pool."""

    driver: str
    pool: str
    gpu: str
    product: str
    profiles: tuple[ClaimableProfile, ...] = ()
    problems: tuple[str, ...] = ()


class ClaimsView(msgspec.Struct, frozen=True):
    """Claims on GPUs, and for a single node what is left of its GPUs.

    ``missing`` are sentences on why claims cannot be listed, each with a next step.
    """

    rows: tuple[ClaimRow, ...] = ()
    room: tuple[ClaimableGpu, ...] = ()
    missing: tuple[str, ...] = ()
