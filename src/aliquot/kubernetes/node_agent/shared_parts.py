"""Parts that all roles of an agent's process share: its GPUs, its connections, and what runs once for the node."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aliquot.core.model import xids
from aliquot.core.model.claims import HolderSource
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.foundation import driver_calls
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.paths import directories
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.gpu.reasons import WarningReason
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.kubelet_pods import device_uses
from aliquot.kubernetes.node_agent.own_node import OwnNode
from aliquot.kubernetes.node_agent.pod_holders import held_by_pods
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.kubernetes.node_agent.usage_sampler import UsageSampler, sampling_interval_s
from aliquot.metrics.agent_metrics import SharedMetrics
from aliquot.node.claims import attach_claims
from aliquot.node.connect import Connection, connect, simulated_host
from aliquot.node.driver_root import DriverLocation, find_driver

if TYPE_CHECKING:
    from aliquot.core.engine.programs import DriverPrograms

Job = Coroutine[Any, Any, None]
Warn = Callable[[WarningReason, str], Awaitable[None]]
"""Writes an event about the node with a reason and a sentence."""


SIMULATOR_S = 2.0
"""Seconds that a simulator's server has to answer for the id of the boot, before the last one counts."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command line for all roles."""

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
    """The differences between the roles that an agent's process can have."""

    name: str
    """Name of its lock."""
    flag: str
    """Flag of ``aliquot agent`` that chooses it."""
    document: str
    """Kind of the node's document that it writes."""
    resources: str = ""
    """Prefix of the resources whose devices count."""
    all_gpus: bool = False
    """True to include GPUs that are not bound to NVIDIA's driver."""


class RoleListener(Protocol):
    """A role, as what runs once for the node reports to it."""

    def wake(self) -> None:
        """Start its next cycle."""
        ...

    def record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        """Store a sample of the GPUs' usage."""
        ...

    def record_vgpus(self, vgpus: tuple[VgpuUsage, ...]) -> None:
        """Store a sample of the vGPUs that VMs run with."""
        ...


class SharedParts:
    """Parts that all roles of an agent's process share.

    ``roles`` are those of this process. ``pod`` is the agent's pod as ``namespace/name``; empty outside a pod.
    ``driver`` is the location of the driver at the last open. ``remarks`` are logged at the start.
    """

    def __init__(self, options: AgentOptions, roles: Sequence[AgentRole]) -> None:
        self.options = options
        self.roles = roles
        self.metrics = SharedMetrics(options.node_name)
        self.api = Api.connect(options.kubeconfig, namespace=options.namespace)
        self.node = OwnNode(options.node_name)
        self.pod = f"{self.api.namespace}/{options.pod}" if options.pod else ""
        self.directories = directories(options.node)
        self.simulated = simulated_host(options.node) if options.node is not None else None
        self.driver = DriverLocation()
        wanted, self.remarks = xids.policy(dict(os.environ))
        self.hardware = GpuWorker(self.connect, wanted, self.metrics.changes.record_step, driver_calls.hangs_s())
        self.all_gpus = any(role.all_gpus for role in roles)
        self.usage_sampler = UsageSampler(
            self.hardware,
            device_uses(options.kubelet_dir, min((role.resources for role in roles), key=len)),
            self._record_usage,
            sampling_interval_s(dict(os.environ)),
            lambda connection, uses: held_by_pods(self.hardware.latest_inventory(connection), uses),
            all_gpus=self.all_gpus,
            on_vgpus=self._record_vgpus,
        )
        self._listeners: list[RoleListener] = []
        self._boot_id = ""
        self._started = False

    @property
    def command(self) -> str:
        """The command that starts a process of these roles."""
        flags = [role.flag for role in self.roles]
        return " ".join(["aliquot agent", *(flags if flags != ["--labels"] else ())])

    def add(self, listener: RoleListener) -> None:
        """Report to this role too."""
        self._listeners.append(listener)

    def connect(self, programs: DriverPrograms | None = None) -> Connection:
        """Open the node. ``programs`` are the driver's programs if they run elsewhere."""
        options = self.options
        if options.node is None and programs is None:
            self.driver = find_driver(options.host_root, options.driver_root)
            if self.driver.local_root is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = self.driver.local_root
        connection = connect(options.node, programs, all_gpus=self.all_gpus, report=log.warning)
        attach_claims(connection, options.holders, log.warning)
        connection.by = "agent"
        return connection

    async def boot(self) -> str:
        """Return the id of this boot."""
        from aliquot.hardware.state.journal import boot_id

        if self.simulated is None:
            return boot_id()
        if driver_calls.current_hang() is None or not self._boot_id:
            asked = asyncio.to_thread(self.simulated.boot)
            with suppress(TimeoutError):  # the simulator's server may hang, before a driver call shows it
                self._boot_id = await asyncio.wait_for(asked, SIMULATOR_S if self._boot_id else None)
        return self._boot_id

    def jobs(self, api: Api, warn: Warn) -> tuple[Job, ...]:
        """Return what runs forever once for the node, at the first call: for the first role that holds its lock.

        ``api`` is that role's.
        """
        if self._started:
            return ()
        self._started = True
        return (
            self.node.follow(api),
            self.hardware.watch(self._wake),
            self.usage_sampler.run(),
            StateFileReport(self.directories, self.metrics, warn).run(),
        )

    async def close(self) -> None:
        """Store the tracked usage for the next agent."""
        await self.usage_sampler.close()

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.wake()

    def _record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        for listener in self._listeners:
            listener.record_usage(inventory, usage)

    def _record_vgpus(self, vgpus: tuple[VgpuUsage, ...]) -> None:
        for listener in self._listeners:
            listener.record_vgpus(vgpus)
