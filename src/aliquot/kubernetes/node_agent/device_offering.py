"""Device plugins of an agent: devices offered to kubelet, and devices withheld until they are destroyed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.kubernetes.gpu.device_resources import ResourceOffer

if TYPE_CHECKING:
    from aliquot.kubernetes.device_plugin.manager import DevicePlugins


class DeviceOffering:
    """Device plugins in ``directory``, kubelet's ``device-plugins``; empty without a kubelet, then nothing is offered.

    The plugins are created with the first offer. Belongs to one event loop.
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
        """Replace the offer. A resource that is no longer offered reads 0.

        The other arguments are fields of ``AllocationOptions``. If they change, the plugins are created again.
        """
        allocation = cdi, env, device_nodes
        if allocation != self._allocation:
            await self.close()
        if self._plugins is None:
            if not (self.directory and offer.resources):
                return
            # gRPC and its messages take 5 MiB: an agent that offers nothing does not import them.
            from aliquot.kubernetes.device_plugin.manager import AllocationOptions, DevicePlugins

            self._allocation = allocation
            options = AllocationOptions(cdi=cdi, env=env, device_nodes=device_nodes)
            self._plugins = DevicePlugins(self.directory, allocation=options)
            self._task = asyncio.create_task(self._plugins.run())
        self._offered = frozenset(device.id for resource in offer.resources for device in resource.devices)
        await self._plugins.publish(offer)

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        """Stop allocating these devices. Returns those allocated recently, which kubelet may not have stored yet."""
        return self._plugins.hold(ids) if self._plugins is not None else frozenset()

    def withhold_all(self) -> None:
        """Stop all allocations until ``release``."""
        self.withhold(self._offered)

    def release(self) -> None:
        """Allow allocations of withheld devices again."""
        if self._plugins is not None:
            self._plugins.release()

    @property
    def problem(self) -> str:
        """Reason why a resource is not registered with kubelet; empty if all are."""
        return (self._plugins.problem if self._plugins is not None else None) or ""

    async def close(self) -> None:
        """Withdraw the offer. Kubelet then reports the devices as unhealthy; containers that have them keep running."""
        task, self._task = self._task, None
        plugins, self._plugins = self._plugins, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if plugins is not None:
            await plugins.close()
