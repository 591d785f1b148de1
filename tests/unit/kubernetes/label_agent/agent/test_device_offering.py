"""What kubelet is offered: plugins that are made again where devices are given another way, and closed in the end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.core.config.settings import AgentSettings
from aliquot.kubernetes.device_plugin import manager
from aliquot.kubernetes.label_agent.agent.device_offering import GpuDeviceOffering


class Plugins:
    """Device plugins that note what is asked of them."""

    made: list[Plugins]

    def __init__(self, directory: str, *, allocation: object) -> None:
        self.done: list[object] = []
        self.problem: str | None = None
        Plugins.made.append(self)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def publish(self, offer: object) -> None:
        self.done.append("publish")

    async def close(self) -> None:
        self.done.append("close")

    def hold(self, ids: frozenset[str]) -> frozenset[str]:
        self.done.append(ids)
        return ids

    def release(self) -> None:
        self.done.append("release")


OFFER: Any = SimpleNamespace(resources=(SimpleNamespace(devices=(SimpleNamespace(id="a"), SimpleNamespace(id="b"))),))
ONE = AgentSettings(device_plugin=True)


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    Plugins.made = []
    monkeypatch.setattr(manager, "DevicePlugins", Plugins)


def test_plugins_are_made_once_for_each_way() -> None:
    other = AgentSettings(device_plugin=True, env=not ONE.env)

    async def play() -> None:
        offering = GpuDeviceOffering("/nowhere", cdi=False)
        for settings in (ONE, ONE, other):
            await offering.publish(OFFER, settings)
        await offering.publish(OFFER, AgentSettings(device_plugin=False))

    asyncio.run(play())
    assert [each.done for each in Plugins.made] == [["publish", "publish", "close"], ["publish", "close"]]


def test_devices_are_withheld_and_released() -> None:
    async def play() -> None:
        offering = GpuDeviceOffering("/nowhere", cdi=False)
        assert offering.withhold(frozenset("a")) == frozenset()
        offering.withhold_all()
        offering.release()
        assert offering.problem == ""
        await offering.publish(OFFER, ONE)
        assert offering.withhold(frozenset("a")) == {"a"}
        offering.withhold_all()
        offering.release()
        assert offering.problem == ""
        Plugins.made[0].problem = "kubelet is away"
        assert offering.problem == "kubelet is away"
        await offering.close()
        assert offering.problem == ""

    asyncio.run(play())
    assert [each.done for each in Plugins.made] == [["publish", frozenset("a"), frozenset("ab"), "release", "close"]]
