"""Assembly and shutdown of the label agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from aliquot.cdi import api as cdi
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.label_agent.agent.agent_node import AgentNode
from aliquot.kubernetes.label_agent.agent.document_builder import build_document
from aliquot.kubernetes.label_agent.agent.executor import StepExecutor
from aliquot.kubernetes.label_agent.agent.host_services import HostServices
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings
from aliquot.kubernetes.label_agent.agent.loop import LabelAgentLoop
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.label_agent.agent.observer import Observer
from aliquot.kubernetes.label_agent.agent.publisher import Publisher
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.label_agent.agent.steps import Step, WaitForEvent
from aliquot.kubernetes.node_agent.agent_context import AgentContext
from aliquot.kubernetes.node_agent.agent_run import RoleStart
from aliquot.kubernetes.node_agent.shared_parts import AgentOptions, AgentRole, Job, SharedParts

ROLE = AgentRole("label agent", "--labels", document.GPUS, resources="nvidia.com/")
VGPU_ROLE = msgspec.structs.replace(ROLE, flag="--vgpus", resources="")


class LabelAgentOptions(AgentOptions, frozen=True, kw_only=True):
    """Options of the label agent."""

    setup: AgentSetup
    cdi_dir: str = cdi.DIRECTORY
    """Empty if another program writes CDI documents."""
    cdi_options: cdi.CdiOptions = cdi.CdiOptions()


def start(options: LabelAgentOptions) -> RoleStart:
    """Return how a process gets this role."""
    return RoleStart(_role(options), options, lambda shared: LabelAgent(options, shared))


def _role(options: LabelAgentOptions) -> AgentRole:
    return VGPU_ROLE if options.setup.managed.for_vms else ROLE


class LabelAgent:
    """The parts of a label agent."""

    def __init__(self, options: LabelAgentOptions, shared: SharedParts) -> None:
        self.options = options
        setup = options.setup
        self.metrics = LabelAgentMetrics(setup.node, shared.metrics)
        context = self.context = AgentContext(shared, _role(options), self.metrics)
        context.document_publisher.on_held = self.metrics.record_holders
        self.informer = NodeInformer(
            context.api, shared.node, context.api.namespace, context.loop.wake, context.loop.part_ended
        )
        self.publisher: Publisher | None = None

    async def start(self) -> tuple[Job, Sequence[Job]]:
        """Start watching. Return the agent's loop, and the jobs that run forever beside it."""
        loop = await self._assemble()
        reports = self.context.reports(self.informer.events.warn)
        return loop.run(), reports

    async def close(self) -> None:
        """Stop everything that ``start`` has started."""
        await self.informer.close()

    async def _assemble(self) -> LabelAgentLoop:
        options, context, shared = self.options, self.context, self.context.shared
        locks, state = context.directories
        owner = context.lock.owner(await shared.boot())
        node = AgentNode(self.informer, shared.hardware, AgentStateFile(state), owner, os.path.join(locks, "lock"))
        setup = msgspec.structs.replace(options.setup, pod=context.pod)
        observer = Observer(node, setup, context.uses, shared.boot)
        observer.last_settings = LastSettings(state)
        observer.planning = self.metrics.changes.time_plan
        publisher = self.publisher = Publisher(
            self.informer,
            options.setup,
            lambda: observer.facts,
            offering=context.offering,
            cdi=self._cdi() if options.cdi_dir else None,
            uses=context.uses,
            owner=await self._owner(),
        )
        host = HostServices(options.host_root, shared.simulated)
        executor = StepExecutor(node, publisher, host, self.metrics)
        return LabelAgentLoop(
            context.loop,
            self.informer,
            observer,
            executor,
            self.metrics,
            lambda *found: self._update_document(observer, *found),
        )

    def _update_document(self, observer: Observer, observation: Observation, step: Step) -> None:
        sources = (
            observer.sources(observation.settings, observation.inventory) if observation.inventory is not None else ()
        )
        context = self.context
        past_runs = context.shared.hardware.past_runs
        node_document = build_document(observation, sources, context.pod, context.last_usage, past_runs)
        if node_document is not None:
            context.document_publisher.update(
                node_document, observation.uid, busy=bool(node_document.drift) and not isinstance(step, WaitForEvent)
            )
        elif observation.failure is not None:
            context.document_publisher.report_unreadable(observation.failure.message, observation.uid)

    def _cdi(self) -> Callable[[Inventory], tuple[str, ...]]:
        options = self.options

        def write(inventory: Inventory) -> tuple[str, ...]:
            driver = self.context.shared.driver
            found = msgspec.structs.replace(
                options.cdi_options, driver_root=driver.host, local_driver_root=driver.local_root or ""
            )
            managing = msgspec.structs.replace(found, mode="management")
            return cdi.refresh(inventory, found, options.cdi_dir), cdi.refresh(inventory, managing, options.cdi_dir)

        return write

    async def _owner(self) -> dict[str, Any] | None:
        """Return the agent's pod as the owner of the generated configs; None outside a pod."""
        from aliquot.kubernetes.client.objects import Pod

        if not self.options.pod:
            return None
        try:
            pod = await self.context.api.get(Pod, self.options.pod)
        except AliquotError as error:
            log.warning("generated configs will outlive this pod: %s", error.brief)
            return None
        return {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}

    @property
    def problem(self) -> str:
        """Reason why the agent is not ready: an unavailable API server, an unread node, or a failed cycle."""
        unread = f"node {self.informer.name} is not read yet" if self.informer.node is None else ""
        refused = self.publisher.problem if self.publisher is not None else ""
        return self.informer.unavailable or unread or self.context.loop.error or refused

    @property
    def status(self) -> str:
        """Text for the readiness page of an agent that is ready."""
        return "ok"
