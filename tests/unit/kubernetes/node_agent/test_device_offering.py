"""Device offers to the kubelet: plugins are created again if devices are passed in another way, and closed in the
end.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.kubernetes.device_plugin import manager
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering


class Plugins:
    """Device plugins that record their calls."""

    made: list[Plugins]

    def __init__(self, directory: str, *, allocation: manager.AllocationOptions) -> None:
        self.done: list[object] = []
        self.env = allocation.env
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
NOTHING: Any = SimpleNamespace(resources=())


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    Plugins.made = []
    monkeypatch.setattr(manager, "DevicePlugins", Plugins)


def test_plugins_are_made_once_for_each_way() -> None:
    async def play() -> None:
        offering = DeviceOffering("/nowhere")
        for env in (True, True, False):
            await offering.publish(OFFER, env=env)
        await offering.publish(NOTHING, env=False)
        await offering.close()

    asyncio.run(play())
    assert [each.done for each in Plugins.made] == [["publish", "publish", "close"], ["publish", "publish", "close"]]
    assert [each.env for each in Plugins.made] == [True, False]


@pytest.mark.parametrize(("directory", "offer"), [("", OFFER), ("/nowhere", NOTHING)], ids=["no kubelet", "no device"])
def test_there_are_no_plugins_where_nothing_can_be_offered(directory: str, offer: Any) -> None:
    async def play() -> None:
        offering = DeviceOffering(directory)
        await offering.publish(offer)
        assert offering.withhold(frozenset("a")) == frozenset()
        offering.release()
        await offering.close()

    asyncio.run(play())
    assert Plugins.made == []


def test_devices_are_withheld_and_released() -> None:
    async def play() -> None:
        offering = DeviceOffering("/nowhere")
        assert offering.withhold(frozenset("a")) == frozenset()
        offering.withhold_all()
        offering.release()
        assert offering.problem == ""
        await offering.publish(OFFER)
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
