"""A simulated node whose claims are prepared: real planner, engine, simulator and record, without processes.

A killed agent is a ``KilledError`` at a driver call or at a write of the record; ``restart`` is the next agent.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.model.claims import Claim
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError
from aliquot.foundation import atomic_file
from aliquot.foundation.callbacks import Report
from aliquot.foundation.threads import ThreadWorkers
from aliquot.kubernetes.client.errors import ApiUnavailableError
from aliquot.kubernetes.dra.agent.claim_store import ClaimStore
from aliquot.kubernetes.dra.agent.claim_types import (
    AllocatedClaim,
    AllocatedDevice,
    ClaimMismatchError,
    DeviceFinder,
    DeviceLocation,
)
from aliquot.kubernetes.dra.agent.prepare_ports import PreparedNode
from aliquot.kubernetes.dra.agent.preparer import ClaimPreparer
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference, PreparedClaim
from aliquot.node.claims import HeldBackend
from aliquot.node.holders.prepared_claims import ClaimRecords, RecordedClaim, claims_in
from support.simnodes import Node
from unit.core.engine.memory import CountingClock, KilledError, MemoryJournal, NoLock, Recorder

T = TypeVar("T")
POOL = "n-aliquot"
WRITES = ("set_mode", "create_gpu_instance", "destroy_gpu_instance", "create_compute_instance")
KERNEL_WRITES = ("set_functions", "create_vgpu", "destroy_vgpu", "set_passthrough")


def find(inventory: Inventory, pool: str, device: str) -> DeviceLocation | None:
    """Find ``gpu-0`` or ``gpu-0-mig-1g.5gb-4``."""
    _, index, *mig = device.split("-")
    gpu = next((each for each in inventory.gpus if each.index == int(index)), None)
    if gpu is None or pool != POOL:
        return None
    return DeviceLocation(gpu.pci, mig[1], int(mig[2])) if mig else DeviceLocation(gpu.pci)


def claim(name: str, *devices: str, uid: str = "", shared: bool = False) -> AllocatedClaim:
    """Return a claim of namespace ``team`` with these devices."""
    allocated = tuple(AllocatedDevice((f"r{n}",), POOL, device, shared) for n, device in enumerate(devices))
    return AllocatedClaim(ClaimReference(uid or f"uid-{name}", "team", name), allocated)


class Cluster:
    """The claims of the API server."""

    def __init__(self) -> None:
        self.claims: dict[str, AllocatedClaim] = {}
        self.unavailable = False
        self.reads = 0

    async def allocation(self, reference: ClaimReference) -> AllocatedClaim:
        self.reads += 1
        if self.unavailable:
            raise ApiUnavailableError("the API server is away")
        found = self.claims.get(reference.uid)
        if found is None:
            raise ClaimMismatchError(f"no {reference}", next_step="kubectl get resourceclaims")
        return found

    def is_known_to_differ(self, claim: AllocatedClaim) -> bool:
        return self.claims.get(claim.reference.uid, claim) != claim


class Cdi:
    """CDI names by UUID."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def write(self, claim: RecordedClaim, inventory: Inventory) -> RecordedClaim:
        devices = tuple(msgspec.structs.replace(d, cdi_ids=(f"nvidia.com/gpu={d.uuid}",)) for d in claim.devices)
        return msgspec.structs.replace(claim, devices=devices)

    async def remove(self, uid: str) -> None:
        self.removed.append(uid)

    async def remove_others(self, uids: Collection[str]) -> None:
        pass


class Gpus:
    """The part of ``GpuWorker`` that the preparer uses, and the driver calls that it made.

    ``kill_at`` counts the writes of driver and record together (from 1), ``seconds`` is the time of one creation on
    each GPU.
    """

    def __init__(self, template: str, directory: Path, *, mig: bool = True) -> None:
        self.node = Node(template, directory=str(directory))
        self.directory = directory
        self.calls: list[str] = []
        self.reads = 0
        self.kill_at = 0
        self.writes = 0
        self.seconds: dict[str, float] = {}
        self.fails: dict[str, AliquotError] = {}
        self.before_apply: Callable[[], None] = lambda: None
        self.claims: list[Claim] = []
        self.lock: Any = NoLock()
        self._guard = threading.Lock()
        for gpu in self.node.backend.memory.node.gpus if mig else ():
            gpu.state.mig = gpu.state.pending = gpu.table is not None
        self._trace()
        recorded = claims_in(str(directory), lambda _: None)
        self.backend = HeldBackend(self.node.whole, lambda gpus: (*self.claims, *recorded(gpus)))
        for name in KERNEL_WRITES:
            setattr(self.backend, name, self._traced(name, getattr(self.backend, name)))

    def _trace(self) -> None:
        exchange = self.node.backend._exchange

        def guarded(*words: Any) -> Any:
            with self._guard:
                return exchange(*words)

        setattr(self.node.backend, "_exchange", guarded)  # noqa: B010 -- mypy refuses the assignment
        for name in WRITES:
            setattr(self.node.backend, name, self._traced(name, getattr(self.node.backend, name)))

    def _traced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def traced(pci: str, *words: Any) -> Any:
            self.count_write()
            self.calls.append(name)
            if name == "create_gpu_instance":
                time.sleep(self.seconds.get(pci, 0.0))
                if pci in self.fails:
                    raise self.fails[pci]
            return call(pci, *words)

        return traced

    def count_write(self) -> None:
        self.writes += 1
        if self.writes == self.kill_at:
            raise KilledError

    async def read(self) -> tuple[Inventory, Facts]:
        self.reads += 1
        return self.backend.read(), self.node.backend.facts()

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        self.before_apply()
        ports = ExecutionContext(
            self.backend, self.node.backend, MemoryJournal(), CountingClock(), self.lock, ThreadWorkers(), Recorder()
        )
        return await asyncio.to_thread(apply, plan, ports, report)

    async def call(self, job: Callable[[Any], T], *, all_gpus: bool = False) -> T:
        return job(SimpleNamespace(lock=self.lock, backend=self.backend))

    async def boot(self) -> str:
        return self.node.boot()

    def reboot(self) -> None:
        self.node.backend.memory.node.reboot(f"boot-{time.monotonic_ns()}")
        self.node.backend.memory.link = self.node.backend.memory.open(100)

    def gpu(self, index: int = 0) -> Gpu:
        return self.backend.read().gpus[index]

    def instances(self, index: int = 0) -> list[str]:
        """Return ``profile@start`` of a GPU's instances."""
        return sorted(f"{i.profile}@{i.place.start}" for i in self.gpu(index).instances)

    def instance(self, text: str, index: int = 0) -> GpuInstance:
        return next(i for i in self.gpu(index).instances if f"{i.profile}@{i.place.start}" == text)


class Bench:
    """A node, a cluster and the agent of the moment."""

    def __init__(
        self, directory: Path, template: str = "a100-sxm4-40gb", *, mig: bool = True, find: DeviceFinder = find
    ) -> None:
        self.directory = directory
        self._find = find
        self.gpus = Gpus(template, directory, mig=mig)
        self.cluster = Cluster()
        self.cdi = Cdi()
        self.restart()

    def restart(self) -> None:
        """Start the next agent: it knows only what is on disk."""
        self.store = ClaimStore(str(self.directory))
        node = PreparedNode(self.gpus, self._find, self.gpus.boot)
        self.preparer = ClaimPreparer(node, self.store, self.cluster, self.cdi)

    def create(self, *claims: AllocatedClaim) -> list[ClaimReference]:
        self.cluster.claims |= {each.reference.uid: each for each in claims}
        return [each.reference for each in claims]

    async def prepare(self, *claims: AllocatedClaim) -> list[PreparedClaim | AliquotError]:
        references = self.create(*claims)
        found = await self.preparer.prepare(references)
        assert set(found) == {each.uid for each in references}
        return [found[each.uid] for each in references]

    async def one(self, made: AllocatedClaim) -> PreparedClaim:
        """Prepare one claim, which must succeed."""
        found = (await self.prepare(made))[0]
        assert isinstance(found, PreparedClaim), found
        return found

    async def refused(self, made: AllocatedClaim) -> AliquotError:
        """Prepare one claim, which must be refused without a driver call."""
        calls = len(self.gpus.calls)
        found = (await self.prepare(made))[0]
        assert isinstance(found, AliquotError), found
        assert len(self.gpus.calls) == calls
        return found

    async def unprepare(self, *claims: AllocatedClaim) -> None:
        references = [each.reference for each in claims]
        assert await self.preparer.unprepare(references) == {each.uid: None for each in references}

    @property
    def killed(self) -> bool:
        """True if the agent of the moment was killed while it carried out a change."""
        runner = self.preparer._runner
        return runner is not None and runner.done() and isinstance(runner.exception(), KilledError)

    async def until_answered(self, call: Callable[[], Awaitable[T]], next_agent: Callable[[], Awaitable[object]]) -> T:
        """Return the answer of the first agent that is not killed. ``next_agent`` starts another one."""
        while True:
            calling = asyncio.ensure_future(call())
            while not calling.done() and not self.killed:
                runner = self.preparer._runner
                waits: set[asyncio.Future[Any]] = {calling} if runner is None or runner.done() else {calling, runner}
                await asyncio.wait(waits, timeout=0.005, return_when=asyncio.FIRST_COMPLETED)
            if not self.killed:
                with suppress(KilledError):
                    return await calling
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            await next_agent()

    def recorded(self) -> ClaimRecords:
        """Return what is on disk."""
        return ClaimStore(str(self.directory)).records


@contextmanager
def counted_saves(gpus: Gpus) -> Iterator[None]:
    """Count each write of the record as a write at which a kill may happen: before it, and after its rename."""
    replace = atomic_file.replace

    def counted(*words: Any, **more: Any) -> None:
        gpus.count_write()
        replace(*words, **more)
        gpus.count_write()

    with patch.object(atomic_file, "replace", counted):
        yield


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def holders(instance: GpuInstance) -> Sequence[str]:
    return [str(each) for each in instance.holders]
