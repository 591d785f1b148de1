"""What should be, per GPU, after selectors are resolved."""

from __future__ import annotations

import msgspec


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

    rule: str
    message: str
    pci: str = ""
    next_step: str | None = None


class Desired(msgspec.Struct, frozen=True):
    """The wish for a node. GPUs that are not named are left alone. ``failures`` block the whole wish."""

    gpus: tuple[DesiredGpu, ...]
    name: str = ""
    notes: tuple[str, ...] = ()
    failures: tuple[ResolutionFailure, ...] = msgspec.field(default=(), name="faults")
