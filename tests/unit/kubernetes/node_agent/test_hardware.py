"""Reopening the driver: after each failure that invalidates the session, and from time to time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import AliquotError, DriverHangsError, GpuLostError, HardwareError, NoDriverError
from aliquot.foundation import driver_calls
from aliquot.foundation.driver_calls import DriverCall
from aliquot.hardware.nvidia_smi.command import READ_TIMEOUT_S, WRITE_TIMEOUT_S, Smi
from aliquot.hardware.programs import LocalPrograms
from aliquot.kubernetes.node_agent.gpu_worker import REOPEN_S, GpuWorker
from aliquot.node.connect import Connection
from support.agent_observations import node


class Driver:
    """A stub for a node's connection. The next read raises ``wrong``."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.wrong: AliquotError | None = None
        self.all_gpus = False
        self.directory = "/nowhere"
        self.backend: Any = self
        self.nvml: Any = self

    def connect(self) -> Connection:
        self.opened += 1
        return cast(Connection, self)

    def close(self) -> None:
        self.closed += 1

    def show_all_gpus(self, on: bool) -> None:
        self.all_gpus = on

    def health(self, policy: object) -> Any:
        return self

    def adopt(self, previous: object) -> None:
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
def test_a_session_that_is_worth_nothing_is_opened_again(error: AliquotError, opened: int) -> None:
    driver = Driver()

    async def play() -> None:
        hardware = GpuWorker(driver.connect)
        await hardware.read()
        driver.wrong = error
        with pytest.raises(type(error)):
            await hardware.read()
        assert (await hardware.read())[0] == node()
        await hardware.close()

    asyncio.run(play())
    assert (driver.opened, driver.closed) == (opened, opened)


def test_each_job_sees_the_gpus_of_its_role_over_one_session() -> None:
    driver, seen = Driver(), list[bool]()

    async def play() -> None:
        hardware = GpuWorker(driver.connect)
        for all_gpus in (True, False, True):
            await hardware.read(all_gpus=all_gpus)
            seen.append(driver.all_gpus)
            seen.append(await hardware.call(lambda _: driver.all_gpus, all_gpus=not all_gpus))
        await hardware.close()

    asyncio.run(play())
    assert seen == [True, False, False, True, True, False]
    assert driver.opened == 1


def test_another_access_is_used_from_now_on_and_health_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, adopted = Driver(), Driver(), list[object]()
    monkeypatch.setattr(second, "adopt", adopted.append)

    async def play() -> None:
        hardware = GpuWorker(first.connect)
        await hardware.call(lambda _: None)
        await hardware.reopen(second.connect, polls=True)
        await hardware.call(lambda _: None)
        await hardware.close()

    asyncio.run(play())
    assert [(each.opened, each.closed) for each in (first, second)] == [(1, 1), (1, 1)]
    assert adopted == [first], "a device with an XID is not offered again"


def test_an_access_that_is_expensive_is_not_polled_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aliquot.kubernetes.node_agent.gpu_worker.POLL_S", 0.01)
    polled: list[bool] = []

    async def play() -> None:
        hardware = GpuWorker(Driver().connect)
        monkeypatch.setattr(hardware, "_poll", lambda: polled.append(True))
        await hardware.reopen(Driver().connect, polls=False)
        watching = asyncio.create_task(hardware.watch(lambda: None))
        await asyncio.sleep(0.1)
        assert polled == []
        await hardware.reopen(Driver().connect, polls=True)
        await asyncio.sleep(0.1)
        watching.cancel()
        await hardware.close()

    asyncio.run(play())
    assert polled


def test_a_hot_plugged_gpu_shows_up_after_a_while() -> None:
    # NVML counts GPUs when it is opened, so it is opened again from time to time.
    driver = Driver()

    async def play() -> None:
        hardware = GpuWorker(driver.connect)
        await hardware.read()
        await hardware.read()
        assert driver.opened == 1
        hardware._opened -= REOPEN_S + 1
        await hardware.read()
        await hardware.close()

    asyncio.run(play())
    assert driver.opened == 2


class Hung(Driver):
    """A driver whose reads hang until ``answers`` is set. ``threads`` are the threads that called it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.threads: set[int] = set()

    def read(self) -> object:
        self.threads.add(threading.get_ident())
        with DriverCall("reading the GPUs"):
            assert self.answers.wait(20)
        return node()


def test_a_read_that_hangs_is_given_up_and_the_next_ones_start_nothing() -> None:
    driver = Hung()

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.2)
        with pytest.raises(DriverHangsError, match=r"has not returned from reading the GPUs for more than 0\.2 s"):
            await hardware.read()
        assert driver_calls.find_hang(0.2) is not None
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(DriverHangsError):
                await hardware.read()
        assert time.monotonic() - began < 0.2, "each of them waited again"
        driver.answers.set()
        while driver_calls.find_hang(0.2) is not None:
            await asyncio.sleep(0.01)
        assert (await hardware.read())[0] == node()
        await hardware.close()

    asyncio.run(play())
    assert len(driver.threads) == 1
    assert driver.opened == 1, "the session is still valid"


def test_a_job_that_waits_behind_a_call_that_hangs_never_runs() -> None:
    driver, ran = Hung(), list[object]()

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.3)
        reading = asyncio.create_task(hardware.read())
        await asyncio.sleep(0.05)
        with pytest.raises(DriverHangsError):
            await hardware.call(ran.append)
        with pytest.raises(DriverHangsError):
            await reading
        driver.answers.set()
        while driver_calls.find_hang(0.3) is not None:
            await asyncio.sleep(0.01)
        await hardware.read()
        await hardware.close()

    asyncio.run(play())
    assert ran == []


def test_an_apply_is_waited_for_although_its_call_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Hung()
    monkeypatch.setattr("aliquot.kubernetes.node_agent.gpu_worker.STOP_S", 0.05)

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.2)
        monkeypatch.setattr(hardware, "_apply", lambda plan, report, all_gpus: driver.read())
        assert hardware.patience_s == 0.05
        applying = asyncio.create_task(hardware.apply(cast(Any, None), print))
        await asyncio.sleep(0.4)
        assert driver_calls.find_hang(0.2) is not None
        assert hardware.patience_s == 0.2
        assert not applying.done()
        with pytest.raises(DriverHangsError):
            await hardware.read()
        driver.answers.set()
        assert cast(Any, await applying) == node()
        assert hardware.patience_s == 0.05, "nothing is changed any more"
        await hardware.close()

    asyncio.run(play())


def test_an_apply_behind_a_call_that_hangs_is_refused_and_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, ran = Hung(), list[str]()

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.3)
        monkeypatch.setattr(hardware, "_apply", lambda plan, report, all_gpus: ran.append("apply"))
        reading = asyncio.create_task(hardware.read())
        await asyncio.sleep(0.05)
        with pytest.raises(DriverHangsError):
            await asyncio.wait_for(hardware.apply(cast(Any, None), print), 5)
        with pytest.raises(DriverHangsError):
            await reading
        driver.answers.set()
        while driver_calls.find_hang(0.3) is not None:
            await asyncio.sleep(0.01)
        await hardware.read()
        await hardware.close()

    asyncio.run(play())
    assert ran == []


def test_an_agent_that_is_to_end_waits_for_as_long_as_a_call_of_the_change_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Hung()

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.2)
        monkeypatch.setattr(hardware, "_apply", lambda plan, report, all_gpus: driver.read())
        with DriverCall("nvidia-smi -r", bound_s=125):
            assert hardware.patience_s == 0.2, "a change does not wait for a read"
            applying = asyncio.create_task(hardware.apply(cast(Any, None), print))
            await asyncio.sleep(0.05)
            assert hardware.patience_s == 125
        assert hardware.patience_s == 0.2
        driver.answers.set()
        await applying
        await hardware.close()

    asyncio.run(play())


def test_watching_tells_of_a_hang_and_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aliquot.kubernetes.node_agent.gpu_worker.POLL_S", 0.02)
    driver, news = Hung(), list[object]()

    async def until(count: int) -> None:
        async with asyncio.timeout(10):
            while len(news) < count:
                await asyncio.sleep(0.01)

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.1)
        watching = asyncio.create_task(hardware.watch(lambda: news.append(driver_calls.find_hang(0.1))))
        with pytest.raises(DriverHangsError):
            await hardware.read()
        await until(1)
        await asyncio.sleep(0.5)  # several polls meet the same hang
        assert len(news) == 1, "a hang is reported once"
        driver.answers.set()
        await until(2)
        watching.cancel()
        await hardware.close()

    asyncio.run(play())
    assert news[0] is not None
    assert news[1] is None


def test_the_end_of_a_hang_that_only_another_job_met_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver answers again before the next poll. Without the report, the job that hit the hang would wait for
    # its next attempt.
    monkeypatch.setattr("aliquot.kubernetes.node_agent.gpu_worker.POLL_S", 0.3)
    driver, news = Hung(), list[object]()

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.1)
        watching = asyncio.create_task(hardware.watch(lambda: news.append(driver_calls.find_hang(0.1))))
        with pytest.raises(DriverHangsError):
            await hardware.read()
        driver.answers.set()
        async with asyncio.timeout(10):
            while not news:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.4)
        watching.cancel()
        await hardware.close()

    asyncio.run(play())
    assert news == [None], "once"


def test_closing_does_not_wait_for_a_call_that_hangs() -> None:
    driver = Hung()

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.1)
        with pytest.raises(DriverHangsError):
            await hardware.read()
        await asyncio.wait_for(hardware.close(), 5)
        driver.answers.set()

    asyncio.run(play())


def test_what_was_unfit_is_handed_on_from_session_to_session() -> None:
    adopted: list[object] = []

    class Health(Driver):
        def adopt(self, previous: object) -> None:
            adopted.append(previous)

    class Adopting(Driver):
        def health(self, policy: object) -> Any:
            return Health()

    driver = Adopting()

    async def play() -> None:
        hardware = GpuWorker(driver.connect)
        previous = []
        for _ in range(3):
            await hardware.read()
            previous.append(hardware._health)
            driver.wrong = HardwareError("unknown")
            with pytest.raises(HardwareError):
                await hardware.read()
        await hardware.close()
        assert adopted == previous[:2]

    asyncio.run(play())


class Stopped(Driver):
    """A driver that is called through nvidia-smi, which stops in the middle."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.pid = root / "pid"
        program = root / "usr/bin/nvidia-smi"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho $$ > {self.pid}.new\nmv {self.pid}.new {self.pid}\nkill -STOP $$\n")
        program.chmod(0o755)
        self.smi = Smi(LocalPrograms(str(root)))

    def read(self) -> object:
        assert self.smi.run("-q").status == 0
        return node()


def test_a_program_that_is_stopped_hangs_as_a_call_does(tmp_path: Path) -> None:
    driver = Stopped(tmp_path)

    async def play() -> None:
        hardware = GpuWorker(driver.connect, hangs_s=0.4)
        with pytest.raises(DriverHangsError, match=r"has not returned from nvidia-smi -q .* for more than 0\.4 s"):
            await hardware.read()
        began = time.monotonic()
        with pytest.raises(DriverHangsError):
            await hardware.read()
        assert time.monotonic() - began < 0.2, "no other call waits for it"
        os.kill(int(driver.pid.read_text()), signal.SIGCONT)
        while driver_calls.find_hang(0.4) is not None:
            await asyncio.sleep(0.01)
        await hardware.close()

    asyncio.run(play())


@pytest.mark.parametrize("timeout_s", [READ_TIMEOUT_S, WRITE_TIMEOUT_S])
def test_a_program_that_changes_a_gpu_has_its_own_bound(timeout_s: float) -> None:
    found: list[object] = []

    class Slow:
        location = "here"

        def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
            time.sleep(0.02)
            found.append(driver_calls.find_hang(0.01))
            return ProgramResult(0)

    Smi(Slow()).run("-q", timeout_s=timeout_s)
    assert (found[0] is None) == (timeout_s > READ_TIMEOUT_S)
