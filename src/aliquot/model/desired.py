"""What should be, per GPU, after selectors are resolved."""

from __future__ import annotations

import msgspec


class InstanceWish(msgspec.Struct, frozen=True):
    """One GPU instance that should exist: a profile by id (``name`` is for people), at ``start`` if that was asked.

    ``compute`` are compute instance profile ids; one that covers the whole instance is the default of the field's
    meaning, so every wish names at least one unless an empty GPU instance is wanted (checkpoints may).
    """

    profile_id: int
    name: str
    compute: tuple[int, ...]
    start: int | None = None
    compute_starts: tuple[int, ...] | None = None


class GpuWish(msgspec.Struct, frozen=True):
    """What one GPU should become. ``mig`` None leaves the mode as it is; ``instances`` None leaves them alone
    (mode-only). ``source`` says where in the user's text this was asked.
    """

    pci: str
    mig: bool | None
    instances: tuple[InstanceWish, ...] | None = ()
    source: str = ""


class Fault(msgspec.Struct, frozen=True):
    """Why a wish for one GPU cannot be met at all here: found while resolving selectors, reported as a blocker."""

    rule: str
    message: str
    pci: str = ""
    next_step: str | None = None


class Desired(msgspec.Struct, frozen=True):
    """The wish for a node. GPUs that are not named are left alone. ``faults`` block the whole wish."""

    gpus: tuple[GpuWish, ...]
    name: str = ""
    notes: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
