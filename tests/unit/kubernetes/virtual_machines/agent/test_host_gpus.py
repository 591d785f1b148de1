"""The access to the driver: the VM role chooses it, and all roles of the process use it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.core.model.actions import SetPassthrough
from aliquot.core.model.desired import Desired
from aliquot.core.model.plan import Plan
from aliquot.errors import NoDriverError
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.virtual_machines.agent import host_gpus
from aliquot.kubernetes.virtual_machines.agent.host_gpus import DriverAccess, HostGpus
from unit.kubernetes.node_agent.test_hardware import Driver


@pytest.fixture(autouse=True)
def no_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_gpus, "scan", lambda files, names, everything: ())


class Bed:
    """A host whose driver is reached through the programs of the last observation."""

    def __init__(self) -> None:
        self.driver, self.used = Driver(), list[Any]()
        self.worker = GpuWorker(self.connect)
        self.gpus = HostGpus(lambda: SimpleNamespace(), self.worker, self.connect)

    def connect(self, programs: Any = None) -> Any:
        self.used.append(programs)
        return self.driver.connect()


def test_while_the_drivers_pod_is_not_ready_no_role_opens_the_driver() -> None:
    # Opened from the host meanwhile, it could be loaded a second time.
    bed = Bed()

    async def play() -> None:
        found = await bed.gpus.observe(DriverAccess("none", reason="NoDriver", error="the driver's pod is not ready"))
        assert (found.inventory, found.error) == (None, "the driver's pod is not ready")
        with pytest.raises(NoDriverError, match="the driver's pod is not ready"):
            await bed.worker.call(lambda _: None)
        assert bed.used == []
        await bed.gpus.observe(DriverAccess("local"))
        await bed.worker.call(lambda _: None)
        await bed.worker.close()

    asyncio.run(play())
    assert bed.used == [None]


def test_a_session_is_kept_until_the_access_is_another() -> None:
    bed = Bed()
    first, second = (SimpleNamespace(location=f"pod {n}") for n in (1, 2))

    async def play() -> None:
        for programs, name in ((first, "a"), (first, "a"), (second, "b")):
            await bed.gpus.observe(DriverAccess(name, programs))
            await bed.worker.call(lambda _: None)
        await bed.worker.close()

    asyncio.run(play())
    assert bed.used == [first, second]


@pytest.mark.parametrize(("on", "commands"), [(True, [("modprobe", "vfio-pci"), ()]), (False, [()])])
def test_vfio_is_loaded_before_a_gpu_is_passed_through(
    monkeypatch: pytest.MonkeyPatch, on: bool, commands: list[tuple[str, ...]]
) -> None:
    # Once pcidevices has left the node, nothing else loads it after a reboot. () is the change itself.
    run = list[tuple[str, ...]]()
    programs = SimpleNamespace(run=lambda command, timeout_s: run.append(command))
    monkeypatch.setattr(host_gpus, "LocalPrograms", lambda *_, **__: programs)

    async def apply(plan: Plan, report: Any, *, all_gpus: bool) -> None:
        run.append(())

    worker: Any = SimpleNamespace(apply=apply)
    gpus = HostGpus(lambda: SimpleNamespace(exists=lambda path: False), worker, Bed().connect)
    action = SetPassthrough(gpu="0000:08:00.0", reason="", on=on)
    asyncio.run(gpus.apply(Plan("node", "", Desired(()), (action,)), print))
    assert run == commands
