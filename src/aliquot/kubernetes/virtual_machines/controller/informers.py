"""What the cluster has for virtual machines, kept by watches: objects, machines, KubeVirt's settings.

Every replica of the controller keeps it: webhooks and the capacity pages answer from it, the leader works from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aliquot.kubernetes.client.client import EVERYWHERE, Api
from aliquot.kubernetes.client.kind_watch import KIND_TIMING, Shelf
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import Timing
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, Seen, measure
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import Demand, of_machine
from aliquot.kubernetes.virtual_machines.kubevirt.permitted_devices import Settings
from aliquot.kubernetes.virtual_machines.kubevirt.reservations import Reservations

KUBEVIRT_NAMESPACE = "harvester-system"
Changed = Callable[[], None]


class World:
    """``nodes`` and ``gpus`` are followed by whoever owns them, everything else by ``follow``. ``items`` of machines
    and instances are by ``namespace/name``. ``changed`` is called whenever anything did,
    ``claimed`` when a claim or a PCIDevice did.
    """

    def __init__(
        self,
        nodes: Shelf[Node],
        gpus: Shelf[SRIOVGPUDevice],
        changed: Changed,
        *,
        namespace: str = KUBEVIRT_NAMESPACE,
        timing: Timing = KIND_TIMING,
        clock: Callable[[], float] = time.monotonic,
        claimed: Changed = lambda: None,
    ) -> None:
        def told(_: set[str]) -> None:
            changed()

        def claims_told(_: set[str]) -> None:
            changed()
            claimed()

        self.nodes, self.gpus = nodes, gpus
        self.namespace = namespace
        self.vgpus: Shelf[VGPUDevice] = Shelf(VGPUDevice, told, timing)
        self.migs: Shelf[MigConfiguration] = Shelf(MigConfiguration, told, timing)
        self.functions: Shelf[PCIDevice] = Shelf(PCIDevice, claims_told, timing)
        self.claims: Shelf[PCIDeviceClaim] = Shelf(PCIDeviceClaim, claims_told, timing)
        self.machines: Shelf[VirtualMachine] = Shelf(VirtualMachine, self._machines_changed, timing)
        self.instances: Shelf[VirtualMachineInstance] = Shelf(VirtualMachineInstance, told, timing)
        self.kubevirts: Shelf[Settings] = Shelf(Settings, told, timing)
        self._changed, self._clock = changed, clock
        self._reservations = Reservations()

    async def follow(self, api: Api) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            for shelf in (self.vgpus, self.migs, self.functions, self.claims):
                group.create_task(shelf.follow(api))
            group.create_task(self.machines.follow(api, namespace=EVERYWHERE))
            group.create_task(self.instances.follow(api, namespace=EVERYWHERE))
            group.create_task(self.kubevirts.follow(api, namespace=self.namespace))

    @property
    def shelves(self) -> tuple[Shelf[Any], ...]:
        return (
            *(self.nodes, self.gpus, self.vgpus, self.migs, self.functions, self.claims),
            *(self.machines, self.instances, self.kubevirts),
        )

    @property
    def known(self) -> bool:
        """Everything was read once. A kind that the cluster does not have is known: there is nothing of it."""
        return all(shelf.known for shelf in self.shelves)

    @property
    def away(self) -> str:
        """Why something cannot be read now; empty if all can."""
        return next((shelf.away for shelf in self.shelves if shelf.away), "")

    def capacity(self) -> Capacity:
        return measure(
            Seen(
                tuple(self.nodes.items.values()),
                tuple(self.vgpus.items.values()),
                tuple(self.functions.items.values()),
                tuple(self.claims.items.values()),
                tuple(self.machines.items.values()),
                tuple(self.instances.items.values()),
                self._reservations.now(self._clock()),
            )
        )

    def reserve(self, demand: Demand) -> None:
        """A machine was admitted with this; it counts at once, and until its object shows it."""
        self._reservations.keep(demand, self._clock())

    def _machines_changed(self, changed: set[str]) -> None:
        for name in changed:
            machine = self.machines.items.get(name)
            if machine is None:
                namespace, _, deleted = name.partition("/")
                self._reservations.drop((namespace, deleted))
            elif machine.wanted:
                self._reservations.seen(of_machine(machine))
        self._changed()
