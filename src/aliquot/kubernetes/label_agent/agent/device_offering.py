"""What kubelet is offered, and how it hands it over: the device plugins, made anew where the way changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.core.config.settings import AgentSettings
from aliquot.kubernetes.gpu.device_resources import ResourceOffer

if TYPE_CHECKING:
    from aliquot.kubernetes.device_plugin.manager import AllocationOptions, DevicePlugins


class GpuDeviceOffering:
    """Device plugins in kubelet's ``directory``. ``cdi`` says whether CDI documents are there to be named."""

    def __init__(self, directory: str, *, cdi: bool) -> None:
        self._directory = directory
        self._cdi = cdi
        self._allocation: AllocationOptions | None = None
        self._plugins: DevicePlugins | None = None
        self._task: asyncio.Task[None] | None = None
        self._offered: frozenset[str] = frozenset()

    async def publish(self, offer: ResourceOffer, settings: AgentSettings) -> None:
        """Offers this from now on, or nothing more where the settings switch the plugin off."""
        if not settings.device_plugin:
            await self.close()
            return
        # gRPC and its messages are 5 MiB, which an agent beside somebody else's device plugin does not pay.
        from aliquot.kubernetes.device_plugin.manager import AllocationOptions, DevicePlugins

        allocation = AllocationOptions(
            cdi=settings.cdi and self._cdi, env=settings.env, device_nodes=settings.device_nodes
        )
        if allocation != self._allocation:
            await self.close()
        if self._plugins is None:
            self._allocation = allocation
            self._plugins = DevicePlugins(self._directory, allocation=allocation)
            self._task = asyncio.create_task(self._plugins.run())
        self._offered = frozenset(device.id for resource in offer.resources for device in resource.devices)
        await self._plugins.publish(offer)

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        """Gives these to nobody from now on; those that were given away moments ago."""
        return self._plugins.hold(ids) if self._plugins is not None else frozenset()

    def withhold_all(self) -> None:
        """Gives nothing to anybody until ``release``."""
        if self._plugins is not None:
            self._plugins.hold(self._offered)

    def release(self) -> None:
        if self._plugins is not None:
            self._plugins.release()

    @property
    def problem(self) -> str:
        """Why kubelet does not have every resource, "" if it has."""
        return (self._plugins.problem if self._plugins is not None else None) or ""

    async def close(self) -> None:
        task, self._task = self._task, None
        plugins, self._plugins = self._plugins, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if plugins is not None:
            await plugins.close()
