"""What kubelet is offered, and what is kept back while it ends: the device plugins of an agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.kubernetes.gpu.device_resources import ResourceOffer

if TYPE_CHECKING:
    from aliquot.kubernetes.device_plugin.manager import DevicePlugins


class DeviceOffering:
    """Device plugins in ``directory``, which is kubelet's ``device-plugins``; "" where there is no kubelet: then
    nothing is given to anybody. They are made when there is something to offer. Belongs to one event loop.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._allocation = (True, True, False)
        self._plugins: DevicePlugins | None = None
        self._task: asyncio.Task[None] | None = None
        self._offered: frozenset[str] = frozenset()

    async def publish(
        self, offer: ResourceOffer, *, cdi: bool = True, env: bool = True, device_nodes: bool = False
    ) -> None:
        """Offer this from now on. A resource that was offered before and is not any more reads 0. The rest are fields
        of ``AllocationOptions``: where they change, the plugins are made again.
        """
        allocation = cdi, env, device_nodes
        if allocation != self._allocation:
            await self.close()
        if self._plugins is None:
            if not (self.directory and offer.resources):
                return
            # gRPC and its messages are 5 MiB, which an agent that offers nothing does not pay.
            from aliquot.kubernetes.device_plugin.manager import AllocationOptions, DevicePlugins

            self._allocation = allocation
            options = AllocationOptions(cdi=cdi, env=env, device_nodes=device_nodes)
            self._plugins = DevicePlugins(self.directory, allocation=options)
            self._task = asyncio.create_task(self._plugins.run())
        self._offered = frozenset(device.id for resource in offer.resources for device in resource.devices)
        await self._plugins.publish(offer)

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        """Give these to nobody from now on. Return those of them that were given away moments ago, which kubelet may
        not have written down yet.
        """
        return self._plugins.hold(ids) if self._plugins is not None else frozenset()

    def withhold_all(self) -> None:
        """Give nothing to anybody until ``release``."""
        self.withhold(self._offered)

    def release(self) -> None:
        """Give away again what was withheld."""
        if self._plugins is not None:
            self._plugins.release()

    @property
    def problem(self) -> str:
        """Why kubelet does not have every resource, "" if it has."""
        return (self._plugins.problem if self._plugins is not None else None) or ""

    async def close(self) -> None:
        """Take the offer back. Kubelet then shows the devices as unhealthy; what has them runs on."""
        task, self._task = self._task, None
        plugins, self._plugins = self._plugins, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if plugins is not None:
            await plugins.close()
