"""Frozen inputs of a decision: the observation and the agent's memory. ``Observer`` builds observations."""

from __future__ import annotations

import time

import msgspec

from aliquot.core.config.settings import POD_POLICIES, AgentSettings, HolderPolicy
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.hardware.systemd.units import StoppedServices
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.config_label import ConfigFailure, DesiredConfig
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch, restore
from aliquot.kubernetes.gpu.managed_label import MIG, ManagedLabel
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.gpu.prediction import Prediction


def boot_clock() -> float:
    """Return the seconds since the host's boot, including suspend. This clock is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class RebootMark(msgspec.Struct, frozen=True):
    """Record of a requested reboot."""

    digest: str
    """Digest of the request."""
    boot: str
    """Id of the boot in which it was requested."""
    at: float
    """``Observation.clock`` of that boot."""


class Durable(msgspec.Struct, frozen=True, omit_defaults=True):
    """State that must outlive the agent and cannot be in the API server. It is written to disk before the action."""

    stopped: StoppedServices | None = None
    """Host services to start again."""
    reboot: RebootMark | None = None
    stopped_by: PauseOwner | None = None
    """The agent that stopped the services; None in records of older versions."""


class Observation(msgspec.Struct, frozen=True):
    """An observation of a node."""

    node: str
    now: float
    """Wall time in seconds, only for people: it may jump."""
    clock: float
    """Seconds since the host's boot, for timeouts."""
    boot: str
    marks: NodeMarks
    settings: AgentSettings
    durable: Durable = Durable()
    label: str | None = None
    """Name of the requested config; None without a request."""
    state: str = ""
    status: AgentStatus | None = None
    request: DesiredConfig | None = None
    inventory: Inventory | None = None
    failure: ConfigFailure | None = None
    """Why the GPUs cannot be read, or why the settings or the request are invalid."""
    plan: Plan | None = None
    """Plan from ``inventory`` to the request."""
    forced_plan: Plan | None = None
    """The same, ignoring holders."""
    prediction: Prediction | None = None
    kubelet_error: str = ""
    """Why kubelet could not be asked for the devices of pods."""
    services: tuple[str, ...] = ()
    """Services of the host to stop before a GPU is reset."""
    hint: str = ""
    """Sentences about misspelled labels."""
    unhealthy: frozenset[str] = frozenset()
    """UUIDs of devices that must not be allocated."""
    settings_warnings: tuple[str, ...] = ()
    """Errors in settings whose last valid text stays in use."""
    reserved: frozenset[str] = frozenset()
    """PCI addresses of GPUs that must not be changed."""
    uid: str = ""
    """Uid of the node object, which differs if the node was created again under its name."""
    owner: PauseOwner = PauseOwner()
    """This agent."""
    writer: str = ""
    """The process that holds the change lock; empty if none does."""
    held: frozenset[str] = frozenset()
    """UUIDs of held devices, only if the plan is blocked."""
    managed: ManagedLabel = MIG
    """The label that the agent serves."""
    pod: str = ""
    """The agent's pod as ``namespace/name``; empty outside a pod."""

    @property
    def restoration(self) -> NodePatch:
        """The patch that restores paused operands; empty if nothing is paused or this agent may not restore it now."""
        return restore(self.marks, self.owner, self.writer)

    @property
    def owes_services(self) -> bool:
        """True if there are services of the host that this agent may start again now."""
        return not self.writer and self.durable.stopped is not None and self.owner.may_undo(self.durable.stopped_by)

    @property
    def held_back(self) -> bool:
        """True if a restore must wait until another process has changed the GPUs."""
        free = msgspec.structs.replace(self, writer="")
        return bool(self.writer) and (free.owes_services or bool(free.restoration))

    @property
    def other_agent(self) -> str:
        """Another running agent that has paused operands or stopped services on this node; empty if there is none."""
        record = self.marks.pause_record
        owners = (record.owner if record is not None else None, self.durable.stopped_by)
        return next((each.name for each in owners if each is not None and not self.owner.may_undo(each)), "")

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about user input that is invalid and has no effect, and about a request that is not the node's."""
        found = list(self.settings_warnings)
        requested = self.marks.annotations.get(names.HOLDERS_ANNOTATION)
        if requested is not None and requested not in POD_POLICIES:
            known = ", ".join(POD_POLICIES)
            found.insert(0, f"invalid annotation {names.HOLDERS_ANNOTATION}={requested[:60]!r}: use {known}")
        if self.label and not self.marks.labels.get(self.managed.name) and self.managed.for_vms:
            found.insert(0, f"the node has no label {self.managed.name}: {self.label!r} is the default config")
        return tuple(found)

    @property
    def digest(self) -> str:
        return self.request.digest if self.request is not None else ""

    @property
    def key(self) -> str:
        """Key of the data that labels, plugins and CDI depend on: the GPUs, the settings and the node object."""
        if self.inventory is None:
            return ""
        lost = ",".join(g.pci for g in self.inventory.gpus if g.lost)
        unfit = ",".join(sorted(self.unhealthy))
        settings = self.settings
        interfaces = (settings.device_plugin, settings.cdi, settings.env, settings.device_nodes)
        how = "/".join(str(each) for each in (settings.strategy, settings.labels, *interfaces))
        reserved = ",".join(sorted(self.reserved))
        return f"{self.inventory.fingerprint}/{lost}/{unfit}/{reserved}/{how}/{self.uid}"

    @property
    def holder_policy(self) -> HolderPolicy:
        """The policy for holders on this node."""
        return self.settings.holder_policy(self.label or "", self.marks.annotations.get(names.HOLDERS_ANNOTATION))

    def was_requested_again(self, now: NodeMarks) -> bool:
        """Report whether a retry, or another policy for holders, was requested since this observation."""
        then_annotations = self.marks.annotations
        removed = names.STATUS_ANNOTATION in then_annotations and names.STATUS_ANNOTATION not in now.annotations
        return removed or now.annotations.get(names.HOLDERS_ANNOTATION) != then_annotations.get(
            names.HOLDERS_ANNOTATION
        )

    @property
    def patience(self) -> str:
        """Key of a wait for holders: another timeout starts another wait."""
        return f"{self.attempt}/{self.holder_policy.timeout_s}"

    @property
    def attempt(self) -> str:
        """Key of a failed attempt: another request or another policy for holders is another attempt."""
        return f"{self.label}/{self.digest}/{self.holder_policy.policy}"


class AgentMemory(msgspec.Struct, frozen=True):
    """Memory of this process between observations. Losing it costs time, never safety."""

    attempt: str = ""
    """Key of the last failed attempt."""
    failed: ConfigFailure | None = None
    """Failure of that attempt."""
    failures: int = 0
    """Number of failures in a row."""
    retry_at: float = 0.0
    """When the next attempt may start (``Observation.clock``)."""
    operands_gone: bool = False
    """True once the pods of the operands of the current pause are gone."""
    services_stopped: bool = False
    """True once the host's services are stopped for the current pause."""
    published: str = ""
    """Key of the published labels, plugins and CDI."""
    unpublished: str = ""
    """Why something could not be published."""
    waiting_since: float = 0.0
    """When holders first blocked the plan (``Observation.clock``)."""
    waiting_for: str = ""
    """Key of the wait for holders."""
    awaited: frozenset[str] = frozenset()
    """UUIDs of the devices that were held during that wait."""
    no_reset: str = ""
    """Digest of the request for which a reboot replaces a reset."""
    last_change: str = ""
    """Sentence about the last change."""
    last_report: ChangeReport | None = None
    """The last change for programs."""
    last_change_for: str = ""
    """Digest of the request of the last change."""
    rebooting: str = ""
    """Id of the boot in which this process requested a reboot."""
    paused_for: str = ""
    """Key of the attempt of the last pause."""
    pauses: int = 0
    """Number of times that this pause was made."""
    status_seen: bool = False
    """True once the node had a status. Removing it is how a user requests a retry."""
    locked_by: str = ""
    """The process that held the change lock at the last apply; empty before the next one."""
    lockouts: int = 0
    """Number of waits for the lock in a row."""

    def after_observation(self, observation: Observation) -> AgentMemory:
        """Return the memory after an observation."""
        return (
            msgspec.structs.replace(self, status_seen=True)
            if observation.status is not None and not self.status_seen
            else self
        )

    def after_retry_request(self) -> AgentMemory:
        """Return the memory for one immediate retry of a failed attempt.

        The next retry needs a status on the node again, so an agent that cannot write does not loop. ``failures``
        stays, so that the next pause is not shorter.
        """
        return msgspec.structs.replace(self, failed=None, retry_at=0.0, waiting_since=0.0, status_seen=False)

    def while_waiting(self, observation: Observation) -> AgentMemory:
        """Return the memory of a wait for holders, which begins when they first block this request and policy."""
        goes_on = self.waiting_since and self.waiting_for == observation.patience
        since = self.waiting_since if goes_on else observation.clock
        awaited = self.awaited_devices(observation) | observation.held
        return msgspec.structs.replace(self, waiting_since=since, waiting_for=observation.patience, awaited=awaited)

    def awaited_devices(self, observation: Observation) -> frozenset[str]:
        """Return the devices that were held at an earlier observation of this wait."""
        return self.awaited if self.waiting_since and self.waiting_for == observation.patience else frozenset()
