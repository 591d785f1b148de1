"""What both agents of a node are made of, beside their work on its GPUs."""

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
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.node_agent.document_publisher import DocumentPublisher
from aliquot.kubernetes.node_agent.driver_root import DriverLocation, find_driver
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
    """What the command line says to either agent. ``node_name`` is this node's name in the cluster, ``node`` the
    simulated node, None for this machine. ``holders`` know what must not be destroyed, beside containers.
    ``kubelet_dir`` is empty where there is no kubelet; ``port`` 0 takes a free one, -1 none; ``pod`` is the agent's
    own, "" outside a pod.
    """

    node_name: str
    holders: tuple[HolderSource, ...]
    node: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    kubelet_dir: str = "/var/lib/kubelet"
    host_root: str = ""
    driver_root: str = ""
    port: int = 8080
    pod: str = ""
    debug: bool = False


class AgentRole(msgspec.Struct, frozen=True):
    """What tells one agent of a node from the other. ``name`` is that of its lock, ``command`` starts it, ``document``
    is the kind of the node's document that it writes. ``resources`` is how the names of the resources begin whose
    devices count, ``all_gpus`` whether GPUs do that NVIDIA's driver has not taken.
    """

    name: str
    command: str
    document: str
    resources: str = ""
    all_gpus: bool = False


class AgentContext:
    """``uses`` asks kubelet which pods have what, None where there is none; ``pod`` is the agent's own as
    namespace/name, "" outside a pod; ``driver`` is where the driver was found when the node was last opened.
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
        """Open the node. ``programs`` are the driver's, where they run elsewhere."""
        options = self.options
        if options.node is None and programs is None:
            self.driver = find_driver(options.host_root, options.driver_root)
            if self.driver.local_root is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = self.driver.local_root
        connection = connect(options.node, programs, all_gpus=self.role.all_gpus, report=log.warning)
        attach_claims(connection, options.holders, log.warning)
        connection.by = "agent"
        return connection

    @property
    def hang(self) -> DriverHangsError | None:
        """The driver call that hangs, as an error; None while none does."""
        return driver_calls.find_hang(driver_calls.hangs_s())

    async def boot(self) -> str:
        """Return the id of this boot."""
        from aliquot.hardware.state.journal import boot_id

        if self.simulated is None:
            return boot_id()
        if self.hang is None or not self._boot_id:  # the simulator's server answers this as well
            self._boot_id = await asyncio.to_thread(self.simulated.boot)
        return self._boot_id

    def record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        """Take a look at what the GPUs are used for."""
        self.metrics.usage = usage
        self.last_usage = LastUsage(inventory, usage, time.time())

    def reports(
        self, node: Callable[[], Node | None], warn: Callable[[str, str], Awaitable[None]]
    ) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return what reports on the node for ever, beside the loop. ``warn`` writes an event of a reason and a
        sentence on it.
        """
        return (
            self.document_publisher.run(),
            self.document_publisher.watch_hangs(lambda: self.hang, node),
            StateFileReport(self.directories, self.metrics, warn).run(),
        )
