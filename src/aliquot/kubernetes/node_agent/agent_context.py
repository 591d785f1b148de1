"""Parts that both agents of a node share."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.core.model.claims import HolderSource
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.errors import DriverHangsError
from aliquot.foundation import driver_calls
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.paths import directories
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu.reasons import WarningReason
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.node_agent.document_publisher import DocumentPublisher
from aliquot.kubernetes.node_agent.driver_root import DriverLocation, find_driver
from aliquot.kubernetes.node_agent.hang_reporter import HangReporter
from aliquot.kubernetes.node_agent.kubelet_pods import device_uses
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.node_agent.role_lock import RoleLock
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.metrics.agent_metrics import AgentMetrics
from aliquot.node.claims import attach_claims
from aliquot.node.connect import Connection, connect, simulated_host

if TYPE_CHECKING:
    from aliquot.core.engine.programs import DriverPrograms


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command line for both agents."""

    node_name: str
    """The node's name in the cluster."""
    holders: tuple[HolderSource, ...]
    """Sources of holders other than containers."""
    node: str | None = None
    """A simulated node; None for this host."""
    kubeconfig: str | None = None
    namespace: str | None = None
    kubelet_dir: str = "/var/lib/kubelet"
    """Empty on a node without a kubelet."""
    host_root: str = ""
    driver_root: str = ""
    port: int = 8080
    """0 chooses a free port, -1 serves nothing."""
    pod: str = ""
    """The agent's pod; empty outside a pod."""
    debug: bool = False


class AgentRole(msgspec.Struct, frozen=True):
    """The differences between the two agents of a node."""

    name: str
    """Name of its lock."""
    command: str
    """Command that starts it."""
    document: str
    """Kind of the node's document that it writes."""
    resources: str = ""
    """Prefix of the resources whose devices count."""
    all_gpus: bool = False
    """True to include GPUs that are not bound to NVIDIA's driver."""


class AgentContext:
    """State and connections of an agent.

    ``uses`` asks kubelet for the devices of pods; None without a kubelet. ``pod`` is the agent's pod as
    ``namespace/name``; empty outside a pod. ``driver`` is the location of the driver at the last open.
    """

    def __init__(self, options: AgentOptions, role: AgentRole, metrics: AgentMetrics) -> None:
        self.options = options
        self.role = role
        self.metrics = metrics
        self.loop = AgentLoop()
        self.api = Api.connect(options.kubeconfig, namespace=options.namespace, on_request=metrics.record_request)
        self.pod = f"{self.api.namespace}/{options.pod}" if options.pod else ""
        self.directories = directories(options.node)
        self.lock = RoleLock(role.name, self.directories[0], self.pod)
        self.simulated = simulated_host(options.node) if options.node is not None else None
        self.driver = DriverLocation()
        self.uses = device_uses(options.kubelet_dir, role.resources)
        self.offering = DeviceOffering(
            os.path.join(options.kubelet_dir, "device-plugins") if options.kubelet_dir else ""
        )
        self.document_publisher = DocumentPublisher(
            self.api, options.node_name, role.document, namespace=self.api.namespace, uses=self.uses
        )
        self.last_usage = LastUsage()
        self._boot_id = ""

    def connect(self, programs: DriverPrograms | None = None) -> Connection:
        """Open the node. ``programs`` are the driver's programs if they run elsewhere."""
        options = self.options
        if options.node is None and programs is None:
            self.driver = find_driver(options.host_root, options.driver_root)
            if self.driver.local_root is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = self.driver.local_root
        connection = connect(options.node, programs, all_gpus=self.role.all_gpus, report=log.warning)
        attach_claims(connection, options.holders, log.warning)
        connection.by = "agent"
        return connection

    async def boot(self) -> str:
        """Return the id of this boot."""
        from aliquot.hardware.state.journal import boot_id

        if self.simulated is None:
            return boot_id()
        if driver_calls.current_hang() is None or not self._boot_id:  # the simulator's server may hang as well
            self._boot_id = await asyncio.to_thread(self.simulated.boot)
        return self._boot_id

    def record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        """Store a sample of the GPUs' usage."""
        self.metrics.usage = usage
        self.last_usage = LastUsage(inventory, usage, time.time())

    def reports(
        self, node: Callable[[], Node | None], warn: Callable[[WarningReason, str], Awaitable[None]]
    ) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return the reporters that run forever beside the loop.

        ``warn`` writes an event about the node with a reason and a sentence.
        """

        async def report_hang(error: DriverHangsError | None) -> None:
            """Report a hang in the node's document, because a hanging change keeps the loop from reading the GPUs."""
            found = node()
            if error is not None and found is not None:
                self.document_publisher.report_unreadable(error.brief, found.metadata.uid)

        return (
            self.document_publisher.run(),
            HangReporter(report_hang).run(),
            StateFileReport(self.directories, self.metrics, warn).run(),
        )
