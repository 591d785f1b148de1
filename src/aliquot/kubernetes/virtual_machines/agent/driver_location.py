"""Location of the GPU driver: its pod on this node, or the host."""

from __future__ import annotations

import asyncio

from aliquot.errors import Message
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.virtual_machines.agent.host_gpus import DriverAccess
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.options import DevicesAgentOptions
from aliquot.kubernetes.virtual_machines.harvester.driver_pod import DriverPods, PodPrograms
from aliquot.kubernetes.virtual_machines.harvester.driver_pods import SELECTOR


class DriverLocator:
    """Find the driver in each round, since its pod is created, replaced and removed.

    A driver pod that exists but is not ready never leads to the host's driver: the driver would be loaded twice.
    """

    def __init__(self, api: Api, informers: NodeDeviceInformers, options: DevicesAgentOptions) -> None:
        self._api = api
        self._informers = informers
        self._mode = options.driver
        self._namespace = options.driver_namespace
        self._pods = DriverPods(api, options.node_name, self._namespace)

    async def find(self) -> DriverAccess:
        """Return the access for this round. Raise UnauthorizedError if the API server rejects our credentials."""
        if self._mode == "local":
            return DriverAccess("local")
        pods = [pod for pod in self._informers.pods.items if self._candidate(pod)]
        if self._mode == "auto" and not pods:
            hint = f"and this node has no driver pod ({SELECTOR} in namespace {self._namespace})"
            return DriverAccess("local", hint=hint)
        found = await self._pods.check_pods(pods)
        if found.pod is None:
            return DriverAccess("none", reason=found.reason, error=str(Message(found.message, found.next_step)))
        programs = PodPrograms(self._api, found.pod, asyncio.get_running_loop())
        return DriverAccess(f"{found.pod.location} {found.pod.uid} {found.pod.container_id}", programs)

    def _candidate(self, pod: Pod) -> bool:
        name, _, value = SELECTOR.partition("=")
        return pod.metadata.namespace == self._namespace and pod.metadata.labels.get(name) == value
