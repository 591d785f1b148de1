"""The claim agent on a host without a driver, because each of its GPUs is passed through to a VM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.cli.main import main
from aliquot.errors import AliquotError, NoDriverError
from aliquot.kubernetes.dra.agent.loop import NodeOffer
from aliquot.kubernetes.dra.model.naming import vm_device_name
from aliquot.kubernetes.dra.plugin.claim_service import ClaimService, PreparedClaim
from aliquot.kubernetes.node_agent.agent_run import AgentRun
from aliquot.node import connect as module
from aliquot.node.connect import Connection, connect
from aliquot.node.driver_unavailable import UnavailableDriver
from aliquot.node.simulated.backend import SimBackend
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles
from system.kubernetes.test_dra_agent import agent, state
from unit.kubernetes.dra.agent.bench import claim
from unit.kubernetes.dra.agent.test_claim_informer import made

__all__ = ["state"]
Answer = Mapping[str, PreparedClaim | AliquotError]


@pytest.fixture
def template() -> str:
    return "a2:mdev*2"


@pytest.fixture(autouse=True)
def driver(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the driver open only while a GPU is bound to it, as on a host whose kernel module is unloaded then."""

    def unavailable(base: str, node: str, sim: SimClient, *_: object) -> UnavailableDriver:
        def opened() -> SimBackend:
            found = SimBackend(sim)
            if not found.read().gpus:
                found.close()
                raise NoDriverError("the NVIDIA kernel driver is not loaded")
            return found

        return UnavailableDriver(node, NoDriverError("not tried"), opened, kernel_only=asked[-1])

    def connected(node: str, programs: object, all_gpus: bool, *words: Any) -> Connection:
        asked.append(all_gpus)
        return original(node, None, all_gpus, *words)

    asked, original = [False], module._simulated_node
    monkeypatch.setattr(module, "_driver", unavailable)
    monkeypatch.setattr(module, "_simulated_node", connected)


def gpus() -> list[Any]:
    with connect("machine") as node:
        return list(node.backend.read().gpus)


def whole(index: int) -> str:
    return vm_device_name(gpus()[index], "vfio")


def unbind_all(state: Path) -> tuple[SimFiles, list[str]]:
    """Take every GPU from its driver by hand. Return the kernel's files and the addresses."""
    addresses = [gpu.pci for gpu in gpus()]
    files = SimFiles(SimClient(str(state), "machine"), hand=True)
    for pci in addresses:
        files.write(f"/sys/bus/pci/devices/{pci}/driver/unbind", pci)
    return files, addresses


def bind_all(state: Path) -> None:
    """Pass every GPU through by hand, as an option of the kernel does at the start."""
    files, addresses = unbind_all(state)
    for pci in addresses:
        files.write(f"/sys/bus/pci/devices/{pci}/driver_override", "vfio-pci")
        files.write("/sys/bus/pci/drivers_probe", pci)


def play(state: Path, *devices: str, then: Callable[[ClaimService], Any] | None = None) -> tuple[list[Answer], Any]:
    """Run an agent that prepares a claim for each device, and return its answers and what it offers at the end."""
    answers: list[Answer] = []
    offered: list[Any] = []

    async def story(service: ClaimService) -> None:
        for number, device in enumerate(devices):
            allocated = made(("r0", "n-aliquot", device), uid=f"u{number}")

            async def get(*_: object, found: object = allocated, **__: object) -> object:
                return found

            server: Any = SimpleNamespace(get=get)
            running.claims._api = server
            answers.append(await service.prepare([claim("train", device, uid=f"u{number}").reference]))
        if then is not None:
            await then(service)
        inventory, facts = await running.hardware.read()
        assert running._store is not None
        claimed = frozenset(device.device for each in running._store.records.claims for device in each.devices)
        empty = frozenset[str]()
        chosen = running.options.driver.devices.choose(NodeOffer(inventory, claimed, empty, frozenset(), empty, facts))
        offered.extend(device.name for device in chosen.devices)

    running, _ = agent(state, story, "all=A2-4Q")
    assert asyncio.run(AgentRun(running.context.shared, [running]).run()) == 0
    return answers, offered


def test_claims_of_every_gpu_survive_the_agent(state: Path) -> None:
    names = [whole(0), whole(1)]
    answers, offered = play(state, *names)
    assert all(isinstance(each[f"u{n}"], PreparedClaim) for n, each in enumerate(answers)), answers
    assert all(gpu.passthrough for gpu in gpus())
    assert set(names) <= set(offered)

    async def release(service: ClaimService) -> None:
        gone = [claim("train", name, uid=f"u{n}").reference for n, name in enumerate(names)]
        assert await service.unprepare(gone) == {"u0": None, "u1": None}

    again, offered = play(state, *names, then=release)
    assert again == answers
    assert set(names) <= set(offered)
    part = vm_device_name(gpus()[0], "A2-4Q", 0)
    assert part in offered
    taken, _ = play(state, part)
    assert isinstance(taken[0]["u0"], PreparedClaim), taken
    assert not gpus()[0].passthrough
    assert gpus()[1].passthrough
    assert [vgpu.type for vgpu in gpus()[0].vgpus] == ["NVIDIA A2-4Q"]


def test_gpus_that_were_bound_before_the_agent_are_offered_whole(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [whole(0), whole(1)]
    bind_all(state)
    answers, offered = play(state, *names)
    assert all(isinstance(each[f"u{n}"], PreparedClaim) for n, each in enumerate(answers)), answers
    assert sorted(offered) == sorted(names)  # no driver says what vGPUs they have
    assert main(["show", "--sim", "machine"]) == 0
    assert capsys.readouterr().out.count("claim team/train") == 2
    again, _ = play(state, *names)
    assert again == answers


def test_an_agent_without_a_driver_publishes_nothing_new(state: Path) -> None:
    # The GPUs have no driver at all: the container with the driver has not started yet.
    unbind_all(state)
    with pytest.raises(NoDriverError):
        play(state)
