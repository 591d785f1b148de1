"""What verdicts are made from: the controller's world of watches, and USB devices, which lie behind controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from aliquot.kubernetes.client.client import EVERYWHERE, Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.client.kind_watch import KIND_TIMING, Shelf
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.watch import Timing
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.controller.informers import World as Watched
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import USBDevice, USBDeviceClaim, World
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import Cluster
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import Demand

T = TypeVar("T", bound=KubeObject)


class Known:
    """``watched`` is followed by whoever made it, USB devices by ``follow``."""

    def __init__(self, watched: Watched, accounts: frozenset[str], timing: Timing = KIND_TIMING) -> None:
        self._watched, self._accounts = watched, accounts
        self._usb: Shelf[USBDevice] = Shelf(USBDevice, _ignore, timing)
        self._usb_claims: Shelf[USBDeviceClaim] = Shelf(USBDeviceClaim, _ignore, timing)

    async def follow(self, api: Api) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._usb.follow(api))
            group.create_task(self._usb_claims.follow(api))

    @property
    def missing(self) -> str:
        """What was not read yet: a sentence; "" where a verdict can be made. USB devices that cannot be read are none
        of ours to wait for.
        """
        unknown = next((shelf for shelf in self._watched.shelves if not shelf.known), None)
        return "" if unknown is None else unknown.away or f"{unknown.kind.TYPE} were not read yet"

    def world(self) -> World:
        """Everything as it is known now."""
        watched = self._watched
        return World(
            gpus=dict(watched.gpus.items),
            vgpus=dict(watched.vgpus.items),
            migs=dict(watched.migs.items),
            functions=dict(watched.functions.items),
            claims=dict(watched.claims.items),
            usb_claims=dict(self._usb_claims.items),
            usb=dict(self._usb.items),
            nodes=dict(watched.nodes.items),
            machines={each.key: each for each in watched.machines.items.values()},
            instances={each.key: each for each in watched.instances.items.values()},
            accounts=self._accounts,
        )

    async def asked(self, api: Api) -> World:
        """The same with machines read from the API server itself. Raises ApiError."""
        machines, instances = await _every(api, VirtualMachine), await _every(api, VirtualMachineInstance)
        return msgspec.structs.replace(
            self.world(), machines={m.key: m for m in machines}, instances={i.key: i for i in instances}
        )

    def cluster(self) -> Cluster:
        """What machines are judged by."""
        return Cluster(self.world(), self._permitted(), self._watched.capacity())

    @property
    def reserve(self) -> Callable[[Demand], None]:
        """A machine that was just let in counts at once."""
        return self._watched.reserve

    def _permitted(self) -> frozenset[str] | None:
        """None without a KubeVirt: nobody says what is permitted."""
        found = self._watched.kubevirts.items
        lists = [(each.spec.configuration.permitted_host_devices or {}).values() for each in found.values()]
        entries = [entry for those in lists for entry_list in those for entry in entry_list or ()]
        return frozenset(str(each.get("resourceName", "")) for each in entries) if found else None


async def _every(api: Api, kind: type[T]) -> tuple[T, ...]:
    """Nothing where the cluster does not have the kind."""
    try:
        return await api.list(kind, EVERYWHERE)
    except NotFoundError:
        return ()


def _ignore(names: set[str]) -> None:
    """Verdicts are made when somebody asks."""
