"""What kubelet is offered for virtual machines, and what is kept back while it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.kernel.pci import attribute
from aliquot.hardware.kernel.sysfs import link_target
from aliquot.kubernetes.gpu.device_resources import ResourceOffer

if TYPE_CHECKING:
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.kubernetes.device_plugin.manager import DevicePlugins


def mdev_groups(files: KernelFiles, mdevs: Mapping[str, str]) -> dict[str, int]:
    """The IOMMU groups of mdevs, by UUID, from UUID and carrying function. One that has gone meanwhile has none."""
    found = {}
    for uuid, function in mdevs.items():
        try:
            group = link_target(files, f"{attribute(function, uuid)}/iommu_group")
        except OSError:
            continue
        if group.isdecimal():
            found[uuid] = int(group)
    return found


class VmDeviceOffering:
    """Device plugins in ``directory``, which is kubelet's ``device-plugins``; made when there is something to offer.
    Belongs to one event loop.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._plugins: DevicePlugins | None = None
        self._task: asyncio.Task[None] | None = None
        self._reported: tuple[str, ...] = ()

    async def publish(self, offer: ResourceOffer) -> None:
        """Offers this from now on. A resource that was offered before and is not any more reads 0."""
        if offer.refusals != self._reported:
            self._reported = offer.refusals
            for sentence in offer.refusals:
                log.warning("no virtual machine can have %s", sentence)
        if self._plugins is None:
            if not offer.resources:
                return
            # gRPC and its messages are 5 MiB, which an agent on a node without vGPUs does not pay.
            from aliquot.kubernetes.device_plugin.manager import DevicePlugins

            self._plugins = DevicePlugins(self._directory)
            self._task = asyncio.create_task(self._plugins.run())
        await self._plugins.publish(offer)

    def hold(self, ids: frozenset[str]) -> frozenset[str]:
        """Gives these to nobody from now on, none frees all. The answer is those of them that were given away moments
        ago, which kubelet may not have written down yet.
        """
        if self._plugins is None:
            return frozenset()
        if ids:
            return self._plugins.hold(ids)
        self._plugins.release()
        return frozenset()

    @property
    def problem(self) -> str:
        """Why kubelet does not have every resource, "" if it has."""
        return (self._plugins.problem if self._plugins is not None else None) or ""

    async def close(self) -> None:
        """Kubelet then shows the devices as unhealthy; virtual machines that have them run on."""
        task, self._task = self._task, None
        plugins, self._plugins = self._plugins, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if plugins is not None:
            await plugins.close()
