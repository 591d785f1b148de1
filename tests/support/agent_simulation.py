"""An in-memory interpreter of the agent's steps, with only the effect of each step on the node. It can be killed after
any step, and half-way through the two that are not one write.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.core.config.settings import AgentSettings
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.semantics import step as do
from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit
from aliquot.kubernetes.gpu import gpu_operands as operands
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch, merge_patches
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent import decision, steps
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Durable, Observation, RebootMark
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from support.agent_observations import make_observation


class KilledError(Exception):
    pass


class Environment:
    """``left`` counts the writes until the agent is killed. None means never."""

    def __init__(
        self, inventory: Inventory, label: str | None, settings: AgentSettings, labels: dict[str, str]
    ) -> None:
        self.inventory = inventory
        self.marks = NodeMarks(dict(labels), {})
        self.label = label
        self.settings = settings
        self.durable = Durable()
        self.services: dict[str, bool] = {"dcgm.service": True, "nvsm.service": True}
        self.uses: tuple[PodDeviceUse, ...] = ()
        self.clients: set[str] = {name for name, value in labels.items() if value == "true"}
        self.boot = 1
        self.now = 1000.0
        self.left: int | None = None
        self.touched_while_open: list[str] = []
        self.trace: list[steps.Step] = []
        self.fail: Callable[[steps.Step], str | None] = lambda step: None

    def observe(self, memory: AgentMemory) -> Observation:
        return make_observation(
            self.label,
            self.inventory,
            labels=None,
            annotations=self.marks.annotations,
            settings=self.settings,
            uses=self.uses,
            unschedulable=self.marks.unschedulable,
            durable=self.durable,
            clock=self.now,
            boot=f"boot-{self.boot}",
            services=tuple(self.services) if self.settings.stop_host_clients else (),
            marks=self.marks,
        )

    def write(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise KilledError
            self.left -= 1

    def patch(self, patch: NodePatch) -> None:
        self.write()
        labels = dict(self.marks.labels)
        annotations = dict(self.marks.annotations)
        for target, parts in ((labels, patch.labels), (annotations, patch.annotations)):
            for name, value in parts.items():
                if value is None:
                    target.pop(name, None)
                else:
                    target[name] = value
        cordon = self.marks.unschedulable if patch.cordon is None else patch.cordon
        self.marks = NodeMarks(labels, annotations, cordon)
        self.clients = {name for name in self.clients if labels.get(name) == "true"} | {
            name for name, value in labels.items() if name.startswith(names.DEPLOY_PREFIX) and value == "true"
        }

    def report(self, status: AgentStatus, also: NodePatch | None = None) -> None:
        answer = NodePatch({names.STATE_LABEL: status.state or None}, {names.STATUS_ANNOTATION: status.document()})
        self.patch(merge_patches(also or NodePatch(), answer))
        if status.state == "success" and self.durable.reboot is not None:
            self.durable = msgspec.structs.replace(self.durable, reboot=None)

    def act(self, step: steps.Step, o: Observation, m: AgentMemory) -> AgentMemory:
        replace = msgspec.structs.replace
        match step:
            case steps.ReportStatus() | steps.Withdraw():
                self.report(step.status)
            case steps.Pause():
                patch = operands.pause(self.marks, step.operands, requested=o.digest, now=self.now, cordon=step.cordon)
                self.report(step.status, patch)
                return replace(m, operands_gone=False, services_stopped=False)
            case steps.AwaitOperands():
                return replace(m, operands_gone=True)
            case steps.StopServices():
                earlier = self.durable.stopped or StoppedServices()
                running = [name for name in step.services if self.services[name]]
                self.write()
                found = earlier.merged_with(StoppedServices(tuple(StoppedUnit(name) for name in running)))
                self.durable = replace(self.durable, stopped=found)
                for name in running:
                    self.write()
                    self.services[name] = False
                return replace(m, services_stopped=True)
            case steps.StartServices():
                assert self.durable.stopped is not None
                for name in self.durable.stopped.names:
                    self.write()
                    self.services[name] = True
                self.write()
                self.durable = replace(self.durable, stopped=None)
                return replace(m, services_stopped=False)
            case steps.Apply():
                self.touched_while_open += sorted(self.clients)
                for action in step.plan.actions:
                    self.write()
                    self.inventory = do(self.inventory, action)
                return replace(m, last_change="done", last_change_for=o.digest)
            case steps.Publish():
                self.write()
                return replace(m, published=o.key)
            case steps.Restore():
                patch = operands.restore(self.marks)
                if step.status is None:
                    self.patch(patch)
                else:
                    self.report(step.status, patch)
                return replace(m, operands_gone=False, services_stopped=False, waiting_since=0.0)
            case steps.Evict():
                gone = set(step.pods)
                self.uses = tuple(u for u in self.uses if (u.namespace, u.pod) not in gone)
                return m.while_waiting(o)
            case steps.Retry():
                return m.after_retry_request()
            case steps.Reboot():
                self.write()
                self.durable = replace(self.durable, reboot=RebootMark(o.digest, o.boot, o.clock))
                self.report(step.status)
                self.boot += 1
                self.rebooted()
                raise KilledError
            case _:
                raise AssertionError(step)
        return m

    def rebooted(self) -> None:
        """Reboot the node: instances end, and a pending mode becomes active."""
        gpus = []
        for gpu in self.inventory.gpus:
            mig = msgspec.structs.replace(gpu.mig, current=gpu.mig.pending)
            gpus.append(msgspec.structs.replace(gpu, mig=mig, instances=()))
        self.inventory = msgspec.structs.replace(self.inventory, gpus=tuple(gpus))

    def run(self, memory: AgentMemory | None = None, limit: int = 60) -> AgentMemory:
        """Run until the agent rests. Raises KilledError, and AssertionError if it never rests."""
        m = memory or AgentMemory()
        for _ in range(limit):
            o = self.observe(m)
            m = m.after_observation(o)
            step = decision.decide(o, m)
            self.trace.append(step)
            if isinstance(step, steps.WaitForEvent):
                if step.waiting:
                    return m.while_waiting(o)
                return m
            wrong = self.fail(step)
            if wrong is not None:
                from aliquot.kubernetes.gpu.config_label import ConfigFailure

                m = msgspec.structs.replace(
                    m,
                    attempt=o.attempt,
                    failed=ConfigFailure("InternalFault", wrong),
                    failures=1,
                    retry_at=self.now + 30,
                )
                continue
            m = self.act(step, o, m)
        raise AssertionError(f"no rest after {limit} steps: {self.trace[-6:]}")
