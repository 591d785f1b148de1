"""The devices that the launchers of this node's VMs got, from kubelet, otherwise from the launchers' environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aliquot.errors import AliquotError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.kinds.kubevirt import LAUNCHER_COMMAND, LAUNCHER_CONTAINER, VirtualMachineInstance
from aliquot.kubernetes.node_agent.kubelet_pods import ResourceUses
from aliquot.kubernetes.virtual_machines.kubevirt.launcher_pod import by_resource, devices

CREATED_BY = "kubevirt.io/created-by"
"""On a launcher pod: the UID of its instance. The pod's name label is a host name, which may differ from the VM's."""
ENV_S = 10.0
"""How long a launcher may take to print its environment, in seconds."""

DeviceIds = dict[str, tuple[str, ...]]
"""Device ids by resource."""
Environment = Callable[[Pod], Awaitable[str]]


def environment_reader(api: Api) -> Environment:
    """Return a function that reads a launcher's environment by running ``env`` in it."""

    async def run_env(pod: Pod) -> str:
        from aliquot.kubernetes.client.exec import exec_  # a library that few rounds need

        ended = await exec_(api, pod.name, pod.metadata.namespace, LAUNCHER_CONTAINER, LAUNCHER_COMMAND, ENV_S)
        return ended.out

    return run_env


def launcher_pods(pods: Sequence[Pod]) -> dict[str, Pod]:
    """Return the running launcher of each instance, by the instance's UID."""
    return {
        pod.metadata.labels[CREATED_BY]: pod
        for pod in pods
        if CREATED_BY in pod.metadata.labels
        and pod.status.phase == "Running"
        and pod.metadata.deletion_timestamp is None
    }


class LauncherDevices:
    """Read the devices of launchers, once for each pod, since a pod's devices never change.

    ``uses`` reads the allocations from kubelet (None without a kubelet). ``environment`` runs ``env`` in a launcher
    (None to never do that).
    """

    def __init__(self, uses: ResourceUses | None, environment: Environment | None) -> None:
        self._uses = uses
        self._environment = environment
        self._cache: dict[str, DeviceIds] = {}

    def prune(self, pods: Sequence[Pod]) -> None:
        """Drop the cached devices of pods that are not listed."""
        uids = {pod.metadata.uid for pod in pods}
        self._cache = {uid: given for uid, given in self._cache.items() if uid in uids}

    async def devices_of(self, instance: VirtualMachineInstance, pod: Pod) -> DeviceIds:
        """Return the devices that a launcher got of the resources that its instance requests.

        Raise KubeletUnavailableError or ApiError if neither kubelet nor the launcher answers.
        """
        known = self._cache.get(pod.metadata.uid)
        if known is None:
            known = self._cache[pod.metadata.uid] = await self._query(instance, pod)
        return known

    async def _query(self, instance: VirtualMachineInstance, pod: Pod) -> DeviceIds:
        problem: AliquotError | None = None
        if self._uses is not None:
            try:
                found = await self._uses()
            except AliquotError as error:
                problem = error
            else:
                mine: DeviceIds = {}
                for use in found:
                    if (use.namespace, use.pod) == pod.key:
                        mine[use.resource] = (*mine.get(use.resource, ()), *use.devices)
                wanted = {entry.device_name for entry in instance.devices.all}
                if not wanted.isdisjoint(mine):
                    return {resource: ids for resource, ids in mine.items() if resource in wanted}
        if self._environment is not None:
            text = await self._environment(pod)
            return by_resource(devices(text), [entry.device_name for entry in instance.devices.all])
        if problem is not None:
            raise problem
        return {}
