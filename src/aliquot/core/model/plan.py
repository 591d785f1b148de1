"""A plan: the ordered acts that lead from one inventory to a wish, or why there is no way. Data only."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, get_args

import msgspec

from aliquot.core.model.actions import Action, Create, CreateVgpu, Destroy, DestroyVgpu, Reset
from aliquot.core.model.desired import Desired, RuleCode
from aliquot.core.model.inventory import API_VERSION, Holder
from aliquot.core.model.stored import Stored

HeldPolicy = Literal["refuse", "wait", "force"]
HELD_POLICIES: tuple[HeldPolicy, ...] = get_args(HeldPolicy)
_MigDrift = Literal["unresolved", "missing-gpu", "lost-gpu", "mode", "pending-mode", "missing", "extra"]
_VmDrift = Literal["passthrough", "functions", "mixed-size", "bound", "vgpu-type", "vgpu-missing", "vgpu-extra"]
DriftKind = Literal[_MigDrift, _VmDrift]


class Policy(msgspec.Struct, frozen=True):
    """What may be done to held instances: ``refuse``, ``wait`` (``timeout_s`` seconds at most), or ``force``.

    ``reset`` False leaves a mode change pending until the next reset or reboot (mig-parted's skip-reset).
    """

    held: Stored[HeldPolicy] = "refuse"
    timeout_s: float = 60.0
    reset: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for a policy that cannot exist, also where it is decoded."""
        if self.held not in HELD_POLICIES:
            raise ValueError(f"there is no policy {self.held!r}: use refuse, wait or force")
        if not 0 <= self.timeout_s < float("inf"):
            raise ValueError(f"a policy waits 0 seconds or more, not {self.timeout_s:g}")


class Blocker(msgspec.Struct, frozen=True):
    """Why one GPU cannot get what was asked: the rule, the slices in the way, who holds them, and what to type next.

    ``suggestion`` is the nearest geometry that is feasible here now.
    """

    rule: Stored[RuleCode]
    message: str
    gpu: str = ""
    slices: tuple[int, ...] = ()
    holders: tuple[Holder, ...] = ()
    suggestion: str | None = None
    next_step: str | None = msgspec.field(name="next", default=None)


class Plan(msgspec.Struct, frozen=True, dict=True):
    """The acts in order, one lane per GPU (``actions_by_gpu``), with what they are for. An impossible wish has
    ``blockers`` and no actions. ``unchanged`` counts instances and vGPUs that no call reaches; ``destroyed`` and
    ``created`` count both kinds, too. ``reboots`` lists GPUs whose mode change can only become active with a reboot.
    """

    node: str
    fingerprint: str
    desired: Desired
    actions: tuple[Action, ...] = ()
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "Plan"
    changes: bool = False
    policy: Policy = Policy()
    unchanged: int = msgspec.field(default=0, name="kept")
    destroyed: int = 0
    created: int = 0
    resets: tuple[str, ...] = ()
    reboots: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def actions_by_gpu(self) -> dict[str, tuple[Action, ...]]:
        """The actions of each GPU, in order. Lanes are independent of each other; a lane is serial."""
        grouped: dict[str, list[Action]] = {}
        for action in self.actions:
            grouped.setdefault(action.gpu, []).append(action)
        return {pci: tuple(actions) for pci, actions in grouped.items()}

    @property
    def blocked(self) -> bool:
        return bool(self.blockers)


def make_plan(
    node: str,
    fingerprint: str,
    desired: Desired,
    actions: tuple[Action, ...],
    *,
    policy: Policy,
    unchanged: int,
    reboots: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Plan:
    """A plan with the figures that follow from its actions filled in."""
    return Plan(
        node=node,
        fingerprint=fingerprint,
        desired=desired,
        actions=actions,
        changes=bool(actions),
        policy=policy,
        unchanged=unchanged,
        destroyed=sum(isinstance(a, Destroy | DestroyVgpu) for a in actions),
        created=sum(isinstance(a, Create | CreateVgpu) for a in actions),
        resets=tuple(a.gpu for a in actions if isinstance(a, Reset)),
        reboots=reboots,
        notes=notes,
    )


class Drift(msgspec.Struct, frozen=True):
    """One difference between what is and what should be, as a sentence and in parts."""

    gpu: str
    kind: Stored[DriftKind]
    message: str
    expected: str = ""
    found: str = ""
