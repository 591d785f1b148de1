"""Everything that a decision is made from, as frozen values. Nothing here reads; ``observe`` fills it."""

from __future__ import annotations

import time

import msgspec

from aliquot.core.config.settings import POD_POLICIES, AgentSettings, HolderPolicy
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.hardware.systemd.units import StoppedServices
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure, DesiredConfig
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch, restore
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.gpu.prediction import Prediction


def boot_clock() -> float:
    """Seconds since the machine's boot, sleep included. Nobody sets it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RebootMark(msgspec.Struct, frozen=True):
    """That we asked for a reboot: for which wish, in which boot, when (``Observation.clock`` of that boot)."""

    digest: str
    boot: str
    at: float


class Durable(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must outlive the agent and cannot lie in the API server: written to disk before it is done. ``stopped`` are
    host services to start again, and ``stopped_by`` the agent that stopped them, None in records of older versions.
    """

    stopped: StoppedServices | None = None
    reboot: RebootMark | None = None
    stopped_by: PauseOwner | None = None


class Observation(msgspec.Struct, frozen=True):
    """One look at ``node``. ``label`` is the wish's name, None without one. ``failure`` is why the GPUs cannot be read.
    ``plan`` leads from ``inventory`` to the wish, ``forced_plan`` without regard to holders; ``kubelet_error`` says why
    kubelet could not be asked who is on what. ``services`` are the host's services to stop before a GPU is reset;
    ``hint`` is about labels that look like ours; ``unhealthy`` are the UUIDs of devices that nobody should be given;
    ``settings_warnings`` are faults in settings whose last good text still holds; ``reserved`` the PCI addresses that
    are out of bounds; ``held`` the UUIDs of devices that somebody holds, told where the plan is blocked.

    ``now`` is wall time, for people alone: it may jump. What waits counts on ``clock``, seconds since the machine's
    boot. ``uid`` tells a node object from another that was made under its name. ``owner`` is this agent; ``writer``
    the process that holds the change lock, "" while none does.
    """

    node: str
    now: float
    clock: float
    boot: str
    marks: NodeMarks
    settings: AgentSettings
    durable: Durable = Durable()
    label: str | None = None
    state: str = ""
    status: AgentStatus | None = None
    request: DesiredConfig | None = None
    inventory: Inventory | None = None
    failure: ConfigFailure | None = None
    plan: Plan | None = None
    forced_plan: Plan | None = None
    prediction: Prediction | None = None
    kubelet_error: str = ""
    services: tuple[str, ...] = ()
    hint: str = ""
    unhealthy: frozenset[str] = frozenset()
    settings_warnings: tuple[str, ...] = ()
    reserved: frozenset[str] = frozenset()
    uid: str = ""
    owner: PauseOwner = PauseOwner()
    writer: str = ""
    held: frozenset[str] = frozenset()

    @property
    def restoration(self) -> NodePatch:
        """What gives back paused operands now; empty where nothing is paused, or it is not for this agent to do."""
        return restore(self.marks, self.owner, self.writer)

    @property
    def owes_services(self) -> bool:
        """Whether this agent may start services of the host again."""
        return not self.writer and self.durable.stopped is not None and self.owner.may_undo(self.durable.stopped_by)

    @property
    def held_back(self) -> bool:
        """Whether something is to be given back that must wait until another process has changed the GPUs."""
        free = msgspec.structs.replace(self, writer="")
        return bool(self.writer) and (free.owes_services or bool(free.restoration))

    @property
    def other_agent(self) -> str:
        """Another living agent that has paused operands or stopped services here, "" where there is none."""
        record = self.marks.pause_record
        owners = (record.owner if record is not None else None, self.durable.stopped_by)
        return next((each.name for each in owners if each is not None and not self.owner.may_undo(each)), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What somebody wrote and nothing came of."""
        requested = self.marks.annotations.get(names.HOLDERS_ANNOTATION)
        if requested is None or requested in POD_POLICIES:
            return self.settings_warnings
        known = ", ".join(POD_POLICIES)
        sentence = f"annotation {names.HOLDERS_ANNOTATION}={requested[:60]!r} means nothing: it can be {known}"
        return (sentence, *self.settings_warnings)

    @property
    def digest(self) -> str:
        return self.request.digest if self.request is not None else ""

    @property
    def key(self) -> str:
        """What labels, plugins and CDI follow: the GPUs as they are, how they are to be named, on which node object."""
        if self.inventory is None:
            return ""
        lost = ",".join(g.pci for g in self.inventory.gpus if g.lost)
        unfit = ",".join(sorted(self.unhealthy))
        settings = self.settings
        ways = (settings.device_plugin, settings.cdi, settings.env, settings.device_nodes)
        how = "/".join(str(each) for each in (settings.strategy, settings.labels, *ways))
        reserved = ",".join(sorted(self.reserved))
        return f"{self.inventory.fingerprint}/{lost}/{unfit}/{reserved}/{how}/{self.uid}"

    @property
    def holder_policy(self) -> HolderPolicy:
        """What may be done to holders here."""
        return self.settings.holder_policy(self.label or "", self.marks.annotations.get(names.HOLDERS_ANNOTATION))

    def was_requested_again(self, now: NodeMarks) -> bool:
        """True if the same was asked again, or another policy for holders, since this look."""
        then_annotations = self.marks.annotations
        taken_away = names.STATUS_ANNOTATION in then_annotations and names.STATUS_ANNOTATION not in now.annotations
        return taken_away or now.annotations.get(names.HOLDERS_ANNOTATION) != then_annotations.get(
            names.HOLDERS_ANNOTATION
        )

    @property
    def patience(self) -> str:
        """What a wait for holders is counted under: another patience is another wait."""
        return f"{self.attempt}/{self.holder_policy.timeout_s}"

    @property
    def attempt(self) -> str:
        """What a failed attempt is remembered under: another wish is another attempt, and so is another policy for
        holders.
        """
        return f"{self.label}/{self.digest}/{self.holder_policy.policy}"


class AgentMemory(msgspec.Struct, frozen=True):
    """What this process remembers between looks. Losing it costs time, never safety.

    ``failed`` is the trouble of the last attempt at ``attempt``, ``failures`` how many in a row, ``retry_at`` when the
    next may start (``Observation.clock``). ``operands_gone`` says that the paused operands' pods were seen gone and
    ``services_stopped`` that host services are stopped, both for the pause that is on. ``published`` is what the
    labels, plugins and CDI follow. ``waiting_since`` is when holders were first found in the way (same clock),
    ``awaited`` the UUIDs of the devices that were held since. ``last_change`` is the sentence of the last change.
    ``rebooting`` is the boot in which this process gave the order to reboot. ``pauses`` counts how often the pause for
    the attempt ``paused_for`` had to be made. ``locked_by`` is who held the change lock when an apply was tried, ""
    before the next try, and ``lockouts`` how often in a row that was waited for. ``status_seen`` says that a status was
    seen on the node: one that is gone was taken away, which is how the same is asked again.
    """

    attempt: str = ""
    failed: ConfigFailure | None = None
    failures: int = 0
    retry_at: float = 0.0
    operands_gone: bool = False
    services_stopped: bool = False
    published: str = ""
    unpublished: str = ""
    waiting_since: float = 0.0
    waiting_for: str = ""
    awaited: frozenset[str] = frozenset()
    no_reset: str = ""
    last_change: str = ""
    last_change_for: str = ""
    rebooting: str = ""
    paused_for: str = ""
    pauses: int = 0
    status_seen: bool = False
    locked_by: str = ""
    lockouts: int = 0

    def after_observation(self, observation: Observation) -> AgentMemory:
        """After each look."""
        return (
            msgspec.structs.replace(self, status_seen=True)
            if observation.status is not None and not self.status_seen
            else self
        )

    def after_retry_request(self) -> AgentMemory:
        """The same is to be tried as if it had not failed: once, until a status stands there again, which an agent that
        cannot write never sees. ``failures`` stay: the next pause is no shorter for it.
        """
        return msgspec.structs.replace(self, failed=None, retry_at=0.0, waiting_since=0.0, status_seen=False)

    def while_waiting(self, observation: Observation) -> AgentMemory:
        """Patience counts from when this very wish found holders in the way, under this policy."""
        goes_on = self.waiting_since and self.waiting_for == observation.patience
        since = self.waiting_since if goes_on else observation.clock
        awaited = self.awaited_devices(observation) | observation.held
        return msgspec.structs.replace(self, waiting_since=since, waiting_for=observation.patience, awaited=awaited)

    def awaited_devices(self, observation: Observation) -> frozenset[str]:
        """The devices that were held at an earlier look of this wait."""
        return self.awaited if self.waiting_since and self.waiting_for == observation.patience else frozenset()
