"""Devices that are allocated between an observation and an action are not taken, and a silent kubelet ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.peripherals import Peripherals
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError, StalePlanError
from aliquot.kubernetes.client.objects import ObjectMeta, Pod, PodStatus
from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.virtual_machines.agent import reconciler as module
from aliquot.kubernetes.virtual_machines.agent.host_gpus import DriverAccess, HostGpus, HostObservation
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.object_writer import ObjectWriter
from aliquot.kubernetes.virtual_machines.agent.peripherals import HostPeripherals
from aliquot.kubernetes.virtual_machines.agent.reconciler import Reconciler, RoundResult
from aliquot.kubernetes.virtual_machines.agent.retry_state import MAX_REPEATS
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, NodeView, ObjectChange, Objects, Result
from support.simnodes import Node

PCI, ONE = "0000:01:00.0", "0000:01:00.4"
LAUNCHER = Pod(metadata=ObjectMeta(name="virt-launcher-desk", namespace="vms"), status=PodStatus(phase="Running"))


class Pods:
    items = (LAUNCHER,)


class Quiet:
    """An informer in which nothing is written."""

    name = "n"
    pods = Pods()

    def objects(self) -> Objects:
        return Objects()


class OnePlan:
    """A host with one vGPU. ``applied`` are the plans that reached it."""

    all_devices = False

    def __init__(self, node: Node) -> None:
        self.node = node
        self.applied: list[Plan] = []
        self.moved = self.undone = self.blind = False

    async def observe(self, way: DriverAccess) -> HostObservation:
        return HostObservation((), None if self.blind else self.node.whole.read())

    async def apply(self, plan: Plan, report: Callable[[str], None]) -> object:
        self.applied.append(plan)
        if self.undone:
            return ApplyOutcome("done", self.node.whole.read())
        raise StalePlanError("the machine changed") if self.moved else AliquotError("the test is over")


class Hands:
    """Device plugins. ``young`` are the devices that they just allocated. ``held`` are the ids of each call."""

    def __init__(self, young: frozenset[str] = frozenset()) -> None:
        self.young = young
        self.held: list[frozenset[str]] = []

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        self.held.append(ids)
        return self.young & ids

    def release(self) -> None:
        self.held.append(frozenset())


class Bed:
    """``answers`` are the kubelet's, in order. The last one repeats."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        node = Node("a2:vfio", directory=str(folder))
        gpu = node.whole.read().gpus[0]
        node.whole.set_functions(gpu.pci, 16)
        node.whole.create_vgpu(gpu.pci, ONE, 746, "7f0a3c5e-0000-4000-8000-000000000001")
        self.machine = OnePlan(node)
        self.hands = Hands()
        self.answers: list[Sequence[PodDeviceUse] | AliquotError] = [()]
        self.results: list[dict[str, Result]] = []
        self.views: list[NodeView] = []
        self.peripherals: HostPeripherals | None = None
        desired_gpu = DesiredGpu(PCI, None, instances=(), vgpus=())
        monkeypatch.setattr(module, "intents", lambda view, objects: (Intent(PCI, desired_gpu),))
        monkeypatch.setattr(module, "changes", self._changes)
        monkeypatch.setattr(module, "ALLOCATION_SETTLE_S", 0.0)

    def _changes(self, view: NodeView, objects: Objects, results: dict[str, Result]) -> tuple[ObjectChange, ...]:
        self.results.append(dict(results))
        self.views.append(view)
        return ()

    async def uses(self) -> Sequence[PodDeviceUse]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, AliquotError):
            raise answer
        return answer

    def round(self) -> RoundResult:
        return asyncio.run(self.work().reconcile())

    def work(self) -> Reconciler:
        async def way() -> DriverAccess:
            return DriverAccess("local")

        async def boot() -> str:
            return "boot"

        async def reported(previous: Any, now: Any) -> None: ...

        informer = cast(NodeDeviceInformers, Quiet())
        writer = ObjectWriter(informer, reported, lambda verb, kind: None)
        machine = cast(HostGpus, self.machine)
        return Reconciler(
            informer,
            machine,
            writer,
            DevicesAgentMetrics("n"),
            locate_driver=way,
            uses=self.uses,
            plugins=self.hands,
            boot=boot,
            peripherals=self.peripherals,
        )


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(tmp_path, monkeypatch)


GIVEN = (PodDeviceUse("vms", "virt-launcher-desk", "compute", (ONE,)),)


def test_an_idle_vgpu_goes_and_is_withheld_meanwhile(bed: Bed) -> None:
    assert bed.round().changed
    assert len(bed.machine.applied) == 1
    assert [ONE in ids for ids in bed.hands.held] == [True, False]


def test_one_that_kubelet_allocated_stays_and_its_pod_is_named(bed: Bed) -> None:
    bed.answers = [GIVEN]
    assert not bed.round().changed
    assert bed.machine.applied == []
    assert bed.results[-1][PCI].reason == "Held"
    assert "virt-launcher-desk" in bed.results[-1][PCI].message


def test_one_that_is_allocated_between_observation_and_action_stays(bed: Bed) -> None:
    bed.answers = [(), GIVEN]
    assert bed.round().changed, "observed again immediately"
    assert bed.machine.applied == []
    assert bed.hands.held[-1] == frozenset(), "nothing is withheld any more"


def test_a_silent_kubelet_ends_nothing(bed: Bed) -> None:
    bed.answers = [KubeletUnavailableError("kubelet is away")]
    done = bed.round()
    assert bed.machine.applied == []
    assert bed.results[-1][PCI].reason == "KubeletAway"
    assert "kubelet is away" in done.error


class NoPeripherals:
    results: ClassVar[dict[str, Result]] = {}
    wait_s = None

    async def read(self) -> Peripherals:
        return Peripherals()

    async def apply(self, view: NodeView, objects: Objects) -> bool:
        return False


def test_the_pods_with_usb_devices_are_known_also_without_a_driver(bed: Bed) -> None:
    bed.machine.blind = True
    bed.peripherals = cast(HostPeripherals, NoPeripherals())
    bed.answers = [(PodDeviceUse("vms", "virt-launcher-desk", "compute", ("n-0951-1666-001002",)),)]
    bed.round()
    assert bed.views[-1].allocated == {"n-0951-1666-001002": "vms/virt-launcher-desk"}
    bed.answers = [KubeletUnavailableError("kubelet is away")]
    bed.round()
    assert "kubelet is away" in bed.views[-1].kubelet_error


def test_a_pod_that_has_ended_holds_nothing(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    over = Pod(metadata=LAUNCHER.metadata, status=PodStatus(phase="Succeeded"))
    monkeypatch.setattr(Pods, "items", (over,))
    bed.answers = [GIVEN]
    bed.round()
    assert len(bed.machine.applied) == 1


def test_a_failure_is_reported_and_waits(bed: Bed) -> None:
    work = bed.work()
    asyncio.run(work.reconcile())
    later = asyncio.run(work.reconcile())
    assert len(bed.machine.applied) == 1
    assert bed.results[-1][PCI].message.startswith("the test is over")
    assert later.wait_s is not None
    assert 0 < later.wait_s <= 1


def test_a_machine_that_changed_meanwhile_is_no_failure(bed: Bed) -> None:
    bed.machine.moved = True
    work = bed.work()
    asyncio.run(work.reconcile())
    asyncio.run(work.reconcile())
    assert bed.results[-1] == {}


def test_what_is_reverted_at_once_is_not_done_for_ever(bed: Bed) -> None:
    # Another controller reverts it each time. Without back-off, the GPU would change several times a second.
    bed.machine.undone = True
    work = bed.work()

    async def rounds() -> RoundResult:
        for _ in range(9):
            await work.reconcile()
        return await work.reconcile()

    done = asyncio.run(rounds())
    assert len(bed.machine.applied) == MAX_REPEATS + 1
    assert bed.results[-1][PCI].reason == "Undone"
    assert not done.changed
    assert done.wait_s is not None
