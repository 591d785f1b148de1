"""State and connections of one role of an agent."""

from __future__ import annotations

import os
import time

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.errors import DriverHangsError
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.node_agent.document_publisher import DocumentPublisher
from aliquot.kubernetes.node_agent.hang_reporter import HangReporter
from aliquot.kubernetes.node_agent.kubelet_pods import device_uses
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.node_agent.role_lock import RoleLock
from aliquot.kubernetes.node_agent.shared_parts import AgentRole, Job, SharedParts, Warn
from aliquot.metrics.agent_metrics import AgentMetrics


class AgentContext:
    """State and connections of a role: each has its own loop, lock, offered devices and document of the node.

    ``uses`` asks kubelet for the devices of pods; None without a kubelet.
    """

    def __init__(self, shared: SharedParts, role: AgentRole, metrics: AgentMetrics) -> None:
        options = self.options = shared.options
        self.shared = shared
        self.role = role
        self.metrics = metrics
        self.loop = AgentLoop()
        self.api = shared.api.counting(metrics.record_request)
        self.pod = shared.pod
        self.directories = shared.directories
        self.lock = RoleLock(role.name, self.directories[0], self.pod)
        self.uses = device_uses(options.kubelet_dir, role.resources)
        self.offering = DeviceOffering(
            os.path.join(options.kubelet_dir, "device-plugins") if options.kubelet_dir else ""
        )
        self.document_publisher = DocumentPublisher(
            self.api, options.node_name, role.document, namespace=self.api.namespace, uses=self.uses
        )
        self.last_usage = LastUsage()
        shared.add(self)

    def wake(self) -> None:
        """Start the next cycle of the role."""
        self.loop.wake()

    def record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        """Store a sample of the GPUs' usage."""
        self.metrics.usage = usage
        self.last_usage = LastUsage(inventory, usage, time.time(), self.last_usage.vgpus)

    def record_vgpus(self, vgpus: tuple[VgpuUsage, ...]) -> None:
        """Store a sample of the vGPUs that VMs run with."""
        self.metrics.set_vgpus(vgpus)
        self.last_usage = msgspec.structs.replace(self.last_usage, vgpus=vgpus)

    def reports(self, warn: Warn) -> tuple[Job, ...]:
        """Return what runs forever beside the loop: the role's reporters, and what the process runs once.

        ``warn`` writes an event about the node.
        """

        async def report_hang(error: DriverHangsError | None) -> None:
            """Report a hang in the node's document, because a hanging change keeps the loop from reading the GPUs."""
            found = self.shared.node.node
            if error is not None and found is not None:
                self.document_publisher.report_unreadable(error.brief, found.metadata.uid)

        return self.document_publisher.run(), HangReporter(report_hang).run(), *self.shared.jobs(self.api, warn)
