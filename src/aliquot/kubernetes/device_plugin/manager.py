"""Device plugins of a node, kept registered with a kubelet that may restart.

There is one socket per resource name, all in this process. A resource that is no longer offered is listed without
devices and stays registered until the process ends, so that kubelet reports 0 of it at once. If its server were closed,
kubelet would report the old capacity for its grace period of five minutes.

``run`` is level-triggered. Every second, or at once after a change, it checks:

- that the socket files are its own
- that kubelet.sock is the one that it registered with
- that kubelet has a ListAndWatch stream open

It repairs each of these on its own. So there are no special cases for a kubelet that restarts and empties the
directory, or that drops the resource because the connection of an older agent ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from aliquot.errors import AliquotError
from aliquot.foundation.event_wait import wait_for_event
from aliquot.kubernetes.device_plugin.allocate import AllocationOptions, ResourceSnapshot
from aliquot.kubernetes.device_plugin.endpoint import KUBELET_SOCKET, Endpoint, PluginTiming
from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError, OfferError
from aliquot.kubernetes.device_plugin.grpc_sockets import identity
from aliquot.kubernetes.device_plugin.preferred_allocation import AllocationPolicy
from aliquot.kubernetes.gpu.device_resources import ResourceOffer

__all__ = ["DIRECTORY", "AllocationOptions", "DevicePlugins", "PluginTiming"]

DIRECTORY = "/var/lib/kubelet/device-plugins"
RECENT_S = 10.0
"""Seconds after Allocate in which a device may have neither a pod in the pod resources nor a process.

Kubelet stores the pod right after the response; this allows for a slow disk.
"""

log = logging.getLogger(__name__)


class DevicePlugins:
    """The device plugins of this node. Not thread-safe: belongs to one event loop.

    ``problem`` is None while all resources are registered, else the message to show.
    """

    def __init__(
        self,
        directory: str = DIRECTORY,
        *,
        allocation: AllocationOptions | None = None,
        policy: AllocationPolicy = "packed",
        timing: PluginTiming | None = None,
    ) -> None:
        self.directory = directory
        self.problem: str | None = None
        self._allocation = allocation or AllocationOptions()
        self._policy = policy
        self._timing = timing or PluginTiming()
        self._endpoints: dict[str, Endpoint] = {}
        self._withheld: frozenset[str] = frozenset()
        self._wake = asyncio.Event()

    # -- the offer

    async def publish(self, offer: ResourceOffer) -> None:
        """Replace the offer, and send changes to kubelet.

        On return, each resource name has a server if kubelet's directory exists. Raises OfferError if the offer has a
        resource or a device twice.
        """
        _refuse_duplicates(offer)
        offered = {r.name: r.devices for r in offer.resources}
        for name in offered:
            if name not in self._endpoints:
                more = (self.directory, self._allocation, self._policy, self._timing, self._wake.set)
                self._endpoints[name] = Endpoint(name, *more)
        for name, endpoint in self._endpoints.items():
            endpoint.plugin.publish(ResourceSnapshot(name, offered.get(name, ()), self._withheld))
        await self._serve()
        self._wake.set()

    def hold(self, ids: frozenset[str]) -> frozenset[str]:
        """Refuse these devices, which are about to be destroyed, and report them to kubelet as unhealthy.

        Holds add up. Returns those devices that Allocate allocated in the last ``RECENT_S`` seconds. Their pods may not
        be in the pod resources yet: wait and check there before destroying anything.
        """
        self._hold(self._withheld | ids)
        since = time.monotonic() - RECENT_S
        allocated = [item for e in self._endpoints.values() for item in e.plugin.allocated_at.items()]
        return frozenset(each for each, when in allocated if when > since and each in ids)

    def release(self) -> None:
        """End all holds."""
        self._hold(frozenset())

    def _hold(self, withheld: frozenset[str]) -> None:
        self._withheld = withheld
        for name, endpoint in self._endpoints.items():
            endpoint.plugin.publish(ResourceSnapshot(name, endpoint.plugin.snapshot.devices, withheld))

    @property
    def registered(self) -> dict[str, bool]:
        """True for each resource name for which kubelet has a stream open."""
        return {name: e.plugin.watchers > 0 for name, e in self._endpoints.items()}

    # -- keeping kubelet informed

    async def run(self) -> None:
        """Keep the resources registered until cancelled.

        If kubelet is unavailable, waits without a limit. This is logged once, and ``problem`` reports it.
        """
        while True:
            self._wake.clear()
            await self._serve()
            kubelet = identity(os.path.join(self.directory, KUBELET_SOCKET))
            if kubelet is None:
                self._report_problem(
                    KubeletUnavailableError(f"kubelet is unavailable: no {KUBELET_SOCKET} in {self.directory}")
                )
            else:
                endpoints = list(self._endpoints.values())
                await asyncio.gather(*(e.ensure_registered(kubelet) for e in endpoints))
                self._report_problem(next((e.problem for e in endpoints if e.problem is not None), None))
            await wait_for_event(self._wake, self._timing.poll)

    async def close(self) -> None:
        """End all servers and remove their sockets, after ``run`` was cancelled.

        Kubelet then reports the devices as unhealthy, and forgets them if no agent registers within its grace period.
        """
        for endpoint in list(self._endpoints.values()):
            await endpoint.close()

    async def _serve(self) -> None:
        for endpoint in list(self._endpoints.values()):
            await endpoint.serve()

    def _report_problem(self, problem: AliquotError | None) -> None:
        """Log a problem only when it begins, changes or ends."""
        text = None if problem is None else problem.brief
        if text != self.problem:
            self.problem = text
            if text is None:
                log.info("all resources are registered with kubelet")
            else:
                log.warning("%s", text)


def _refuse_duplicates(offer: ResourceOffer) -> None:
    names = _duplicates([r.name for r in offer.resources])
    ids = _duplicates([d.id for r in offer.resources for d in r.devices])
    if names or ids:
        raise OfferError(f"offered twice: {', '.join(names + ids)}", next_step="aliquot show")


def _duplicates(values: list[str]) -> list[str]:
    return sorted({v for v in values if values.count(v) > 1})
