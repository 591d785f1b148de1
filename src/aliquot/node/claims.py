"""Holders of this host's devices beyond processes: containers, their reservations, prepared ResourceClaims, and the
sources of the caller. Every verb that plans or applies, and the agents, use them: the held devices must not be
destroyed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from aliquot.containers.runtime.models import Container, ContainerReservation
from aliquot.core.model.claims import Claim, Claims, HolderSource, gpu_with_claims, with_claims
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import StorageError
from aliquot.foundation.callbacks import Report
from aliquot.hardware.node_backend import NodeBackend, NodeGpuDriver
from aliquot.node.holders import containers as visible
from aliquot.node.holders.prepared_claims import claims_in

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

D = TypeVar("D", bound=NodeGpuDriver, covariant=True)
_PATIENCE_S = 3.0
_FRESH_S = 2.0


def attach_claims(connection: Connection, sources: Sequence[HolderSource], report: Report = lambda _: None) -> None:
    """Make the connection's backend count as held the devices that containers have, and those that the sources claim
    (for example Slurm's jobs). ``report`` gets sentences for stderr.
    """
    simulated = connection.directory if connection.simulated else ""
    collector = ClaimCollector(connection.directory, simulated, sources, report)
    connection.backend = HeldBackend(connection.backend, collector.claims)


class ClaimCollector:
    """The claims on one node. If no container has a device and nothing is reserved, it runs no program."""

    def __init__(self, directory: str, simulated: str, sources: Sequence[HolderSource], report: Report) -> None:
        self._directory = directory
        self._simulated = simulated
        self._sources = (claims_in(directory, report), *(source(simulated) for source in sources))
        self._report = report
        self._known: dict[str, Container] = {}
        self._settled: tuple[float, tuple[ContainerReservation, ...], tuple[ContainerReservation, ...]] = (0.0, (), ())
        self._reported = False

    def claims(self, gpus: Sequence[Gpu]) -> tuple[Claim, ...]:
        """Return the current claims of running containers and sources, and the reservations as they were checked within
        the last two seconds.
        """
        found = visible.running_containers(self._simulated)
        self._describe(found)
        running = tuple(self._of_containers(found, gpus))
        have = {uuid for claim in running for uuid in claim.devices}
        others = (claim for source in self._sources for claim in source(gpus))
        return (*running, *self._of_reservations(gpus, have), *others)

    def _of_containers(self, found: Sequence[visible.RunningContainer], gpus: Sequence[Gpu]) -> Iterator[Claim]:
        for each in found:
            container = self._known.get(each.id) or Container(each.engine, each.id, "", "running")
            devices = visible.devices_of(each, gpus)
            if devices and not container.requested.everything:
                yield Claim(container.holder, devices)

    def _describe(self, found: Sequence[visible.RunningContainer]) -> None:
        """Read the names of containers, and whether they requested all devices, from their own runtime, once for each
        container.
        """
        if all(each.id in self._known for each in found):
            return
        from aliquot.containers.runtime.errors import RuntimeUnavailableError
        from aliquot.containers.runtime.runtimes import ContainerRuntime

        for engine in ("docker", "podman"):
            ids = [each.id for each in found if each.engine == engine and each.id not in self._known]
            runtime = ContainerRuntime(engine, patience_s=_PATIENCE_S)
            if not ids or not runtime.worth_asking:
                continue
            try:
                described = {c.id: c for c in runtime.containers(ids)}
            except RuntimeUnavailableError:
                continue  # a container's devices are known without its name
            self._known |= {ident: described.get(ident, Container(engine, ident, "", "running")) for ident in ids}

    def _of_reservations(self, gpus: Sequence[Gpu], have: set[str]) -> Iterator[Claim]:
        mine = {gpu.uuid for gpu in gpus} | {c.uuid for g in gpus for i in g.instances for c in i.compute_instances}
        for each in self._reservations(frozenset(mine)):
            devices = tuple(uuid for uuid in each.devices if uuid in mine and uuid not in have)
            if devices:
                yield Claim(each.holder, devices)

    def _reservations(self, present: frozenset[str]) -> tuple[ContainerReservation, ...]:
        """Return the active reservations. An unreadable record is reported once, because it must not prevent changes of
        a GPU.
        """
        from aliquot.node.holders.reservations import ReservationFile

        try:
            recorded = ReservationFile(self._directory).load()
        except StorageError as error:
            if not self._reported:
                self._report(f"note     reservations for containers are ignored: {error.brief}")
            self._reported = True
            return ()
        if not recorded:
            return ()
        when, previous, active = self._settled
        if previous != recorded or time.monotonic() - when > _FRESH_S:
            from aliquot.containers.runtime.expire import expire_reservations
            from aliquot.containers.runtime.runtimes import RuntimeQueries

            # A device on a GPU outside ``gpus`` is present too, but only its reservation names it.
            known_devices = present | {uuid for each in recorded for uuid in each.devices}
            queries = RuntimeQueries(_PATIENCE_S)
            active = expire_reservations(
                recorded, queries.containers_for, known_devices, time.time(), queries.departed
            ).active
            self._settled = (time.monotonic(), recorded, active)
        return active


class HeldBackend(NodeBackend[D]):
    """The node of another backend. It calls ``claims`` at every read: for a plan, and again before each destructive act
    of the engine, so that a container which started meanwhile stops it.
    """

    def __init__(self, node: NodeBackend[D], claims: Claims) -> None:
        super().__init__(node.nvml, node.kernel)
        self._claims = claims

    def read(self) -> Inventory:
        found = super().read()
        return with_claims(found, self._claims(found.gpus))

    def read_gpu(self, pci: str) -> Gpu:
        gpu = super().read_gpu(pci)
        return gpu_with_claims(gpu, self._claims((gpu,)))
