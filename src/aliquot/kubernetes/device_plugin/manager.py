"""Device plugins: what the node offers, kept known to a kubelet that comes and goes.

One socket per resource name, all in this process. A resource that is offered no more is listed with no device, and
stays registered until the process ends: kubelet then reports 0 of it at once. Were its server closed instead, kubelet
would go on reporting the old capacity for its grace time of five minutes.

``run`` is level-triggered: every second, or at once when something changed, it looks whether our socket files are ours,
whether kubelet.sock is the one that we registered with, and whether kubelet still has a ListAndWatch stream open. Each
is repaired by itself, so that a kubelet that restarts (and wipes the directory), or that drops us because an older
agent's connection ended (kubelet then disconnects whoever has the name), needs no case of its own.
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
"""How long after Allocate a device may have neither a pod in the pod resources nor a process: kubelet writes the pod
down right after the answer, and this leaves room for a slow disk.
"""

log = logging.getLogger(__name__)


class DevicePlugins:
    """The device plugins of this node. Not thread-safe: belongs to one event loop.

    ``problem`` is None while kubelet has every resource, else the sentence to show.
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

    # -- what is offered

    async def publish(self, offer: ResourceOffer) -> None:
        """Offer this from now on. Kubelet is sent what changed; a new resource name has a server when this returns,
        if kubelet's directory is there. Raises OfferError for a resource or a device that is named twice.
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
        """Refuse these devices from now on and show them to kubelet as unhealthy: they are about to be destroyed.
        Further holds add up. The answer is those of them that Allocate gave out in the last ten seconds: their pods
        may not be in the pod resources yet, so wait and look there before anything is destroyed.
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
        """Per resource name, whether kubelet listens to us for it now."""
        return {name: e.plugin.watchers > 0 for name, e in self._endpoints.items()}

    # -- keeping kubelet informed

    async def run(self) -> None:
        """Keep kubelet informed until cancelled. A kubelet that is away is waited for without end and without noise;
        ``problem`` says so.
        """
        while True:
            self._wake.clear()
            await self._serve()
            kubelet = identity(os.path.join(self.directory, KUBELET_SOCKET))
            if kubelet is None:
                self._report_problem(
                    KubeletUnavailableError(f"kubelet is away: no {KUBELET_SOCKET} in {self.directory}")
                )
            else:
                endpoints = list(self._endpoints.values())
                await asyncio.gather(*(e.ensure_registered(kubelet) for e in endpoints))
                self._report_problem(next((e.problem for e in endpoints if e.problem is not None), None))
            await wait_for_event(self._wake, self._timing.poll)

    async def close(self) -> None:
        """End all servers and remove their sockets, once ``run`` was cancelled. Kubelet then shows the devices as
        unhealthy, and forgets them if no agent comes back within its grace time.
        """
        for endpoint in list(self._endpoints.values()):
            await endpoint.close()

    async def _serve(self) -> None:
        for endpoint in list(self._endpoints.values()):
            await endpoint.serve()

    def _report_problem(self, problem: AliquotError | None) -> None:
        """Log a problem when it comes and when it goes, not every second."""
        text = None if problem is None else problem.brief
        if text != self.problem:
            self.problem = text
            if text is None:
                log.info("kubelet has every resource")
            else:
                log.warning("%s", text)


def _refuse_duplicates(offer: ResourceOffer) -> None:
    names = _duplicates([r.name for r in offer.resources])
    ids = _duplicates([d.id for r in offer.resources for d in r.devices])
    if names or ids:
        raise OfferError(f"offered twice: {', '.join(names + ids)}", next_step="aliquot show")


def _duplicates(values: list[str]) -> list[str]:
    return sorted({v for v in values if values.count(v) > 1})
