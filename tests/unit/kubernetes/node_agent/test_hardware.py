"""When the driver is opened anew: after each failure that says that the session is worth nothing, and now and then."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aliquot.errors import AliquotError, GpuLostError, HardwareError, NoDriverError
from aliquot.kubernetes.node_agent.gpu_worker import REOPEN_S, Hardware
from aliquot.node.connect import Connection
from support.agent_looks import node


class Driver:
    """Stands for a node's connection. ``wrong`` is what the next read raises."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.wrong: AliquotError | None = None
        self.directory = "/nowhere"
        self.backend: Any = self
        self.nvml: Any = self

    def connect(self) -> Connection:
        self.opened += 1
        return cast(Connection, self)

    def close(self) -> None:
        self.closed += 1

    def health(self, policy: object) -> Any:
        return self

    def adopt(self, former: object) -> None:
        return

    def poll(self, inventory: object) -> frozenset[str]:
        return frozenset()

    def facts(self) -> str:
        return "facts"

    def read(self) -> object:
        if self.wrong is not None:
            wrong, self.wrong = self.wrong, None
            raise wrong
        return node()


@pytest.mark.parametrize(
    ("error", "opened"),
    [(NoDriverError("gone"), 2), (HardwareError("unknown"), 2), (GpuLostError("one of them"), 1)],
    ids=["no driver", "a failure", "one lost GPU"],
)
def test_a_session_that_is_worth_nothing_is_opened_anew(error: AliquotError, opened: int) -> None:
    driver = Driver()

    async def play() -> None:
        hardware = Hardware(driver.connect)
        await hardware.read()
        driver.wrong = error
        with pytest.raises(type(error)):
            await hardware.read()
        assert (await hardware.read())[0] == node()
        await hardware.close()

    asyncio.run(play())
    assert (driver.opened, driver.closed) == (opened, opened)


def test_a_hot_plugged_gpu_shows_up_after_a_while() -> None:
    """NVML counts GPUs when it is opened, so it is opened anew from time to time."""
    driver = Driver()

    async def play() -> None:
        hardware = Hardware(driver.connect)
        await hardware.read()
        await hardware.read()
        assert driver.opened == 1
        hardware._opened -= REOPEN_S + 1
        await hardware.read()
        await hardware.close()

    asyncio.run(play())
    assert driver.opened == 2
