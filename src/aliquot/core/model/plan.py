"""A plan: the ordered actions that lead from an inventory to the desired state, or the blockers. Data only."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, get_args

import msgspec

from aliquot.core.model.actions import Action, Create, CreateVgpu, Destroy, DestroyVgpu, Reset
from aliquot.core.model.desired import Desired, RuleCode
from aliquot.core.model.inventory import API_VERSION, Holder
from aliquot.core.model.placement import Placement
from aliquot.core.model.stored import Stored

HeldPolicy = Literal["refuse", "wait", "force"]
HELD_POLICIES: tuple[HeldPolicy, ...] = get_args(HeldPolicy)
_MigDrift = Literal["unresolved", "missing-gpu", "lost-gpu", "mode", "pending-mode", "missing", "extra"]
_VmDrift = Literal[
    "passthrough",
    "functions",
    "mixed-size",
    "bound",
    "vgpu-type",
    "vgpu-missing",
    "vgpu-extra",
    "vgpu-parameters",
    "scheduler",
]
DriftKind = Literal[_MigDrift, _VmDrift]


class Policy(msgspec.Struct, frozen=True):
    """The policy for held instances."""

    held: Stored[HeldPolicy] = "refuse"
    """``refuse`` (block the plan), ``wait`` (at most ``timeout_s`` seconds) or ``force``."""
    timeout_s: float = 60.0
    reset: bool = True
    """False leaves a mode change pending until the next reset or reboot (mig-parted's skip-reset)."""

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid policy, also when it is decoded."""
        if self.held not in HELD_POLICIES:
            raise ValueError(f"invalid policy {self.held!r}: use refuse, wait or force")
        if not 0 <= self.timeout_s < float("inf"):
            raise ValueError(f"invalid timeout {self.timeout_s:g}: use 0 seconds or more")


class Blocker(msgspec.Struct, frozen=True):
    """A reason why one GPU cannot reach the desired state, with the blocking slices, holders and the next command."""

    rule: Stored[RuleCode]
    text: str = msgspec.field(name="message")
    """The message. It may be a ``StructuredText``; so may ``step``."""
    gpu: str = ""
    slices: tuple[int, ...] = ()
    holders: tuple[Holder, ...] = ()
    suggestion: str | None = None
    """The nearest geometry that is feasible on this GPU now."""
    step: str | None = msgspec.field(name="next", default=None)

    @property
    def message(self) -> str:
        """The message, in words."""
        return str(self.text)

    @property
    def next_step(self) -> str | None:
        """The next command or another action, in words."""
        return None if self.step is None else str(self.step)


class Plan(msgspec.Struct, frozen=True, dict=True):
    """The actions in order and their purpose. A plan that cannot be applied has ``blockers`` and no actions.

    ``destroyed`` and ``created`` count instances and vGPUs.
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
    """Number of instances and vGPUs that no action touches."""
    destroyed: int = 0
    created: int = 0
    resets: tuple[str, ...] = ()
    reboots: tuple[str, ...] = ()
    """GPUs whose mode change can only become active with a reboot."""
    blockers: tuple[Blocker, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def actions_by_gpu(self) -> dict[str, tuple[Action, ...]]:
        """The actions of each GPU, in order. Actions of one GPU are serial, GPUs are independent of each other."""
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
    """Build a plan and fill in the counts that follow from its actions."""
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


class DriftInstance(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU instance that is missing or should not exist."""

    profile: str
    placement: str = ""
    """Empty if a missing instance may have any placement."""
    id: int | None = None
    """Set only for an instance that exists. The same holds for ``compute``."""
    compute: tuple[str, ...] = ()
    """Profiles of its compute instances."""

    @property
    def place(self) -> Placement | None:
        return Placement.parse(self.placement) if self.placement else None

    @property
    def about(self) -> str:
        """Return the id, and the compute instances unless the only one fills the GPU instance: ``id 3, 1c.3g.20gb``."""
        if self.compute == (self.profile,):
            return f"id {self.id}"
        return f"id {self.id}, {', '.join(self.compute) or 'no compute instance'}"


class Drift(msgspec.Struct, frozen=True):
    """A difference between inventory and desired state, as a sentence and in parts."""

    gpu: str
    kind: Stored[DriftKind]
    message: str
    expected: str = ""
    found: str = ""
    instance: DriftInstance | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def on(
        cls,
        gpu: str,
        kind: DriftKind,
        sentence: str,
        expected: str = "",
        found: str = "",
        instance: DriftInstance | msgspec.UnsetType = msgspec.UNSET,
    ) -> Drift:
        """Build a difference whose message names the GPU first, then has a sentence about it."""
        return cls(gpu, kind, f"GPU {gpu}: {sentence}", expected, found, instance)

    @property
    def sentence(self) -> str:
        """The sentence without the GPU before it. Documents of a node have only the message."""
        return self.message.removeprefix(f"GPU {self.gpu}: ")
