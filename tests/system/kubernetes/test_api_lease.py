"""Leader election against a Lease that is written with optimistic concurrency, as in a real store."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.leader_election import LeaderElector, LeaseTiming
from system.kubernetes.api_scripted import Scripted, Seen, Wire, api

QUICK = LeaseTiming(lease_s=2, renew_s=1.2, retry_s=0.15)


class Store:
    """A store of one Lease. ``fault`` replaces the answer to requests: hang, 500."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.fault = ""
        self.writes: list[str] = []
        self._versions = itertools.count(1)

    async def play(self, seen: Seen, wire: Wire) -> None:
        if self.fault == "hang":
            await asyncio.sleep(60)
        if self.fault == "500":
            await wire.refuse(500, "InternalError", "no leader")
        elif seen.method == "GET":
            await (wire.answer(self.lease) if self.lease else wire.refuse(404, "NotFound", "no lease"))
        elif seen.method == "POST":
            await self._create(seen.json(), wire)
        else:
            await self._patch(seen.json(), wire)
            if self.fault == "lose the answer":
                self.fault = ""

    async def _create(self, body: dict[str, Any], wire: Wire) -> None:
        if self.lease is not None:
            await wire.refuse(409, "AlreadyExists", "it exists")
            return
        self._set(body["metadata"], body["spec"])
        await wire.answer(self.lease, 201)

    async def _patch(self, body: dict[str, Any], wire: Wire) -> None:
        assert self.lease is not None
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            await wire.refuse(409, "Conflict", "the object has been modified")
            return
        self._set(self.lease["metadata"], {**self.lease["spec"], **body["spec"]})
        if self.fault == "lose the answer":
            wire.reset()
        else:
            await wire.answer(self.lease)

    def _set(self, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
        self.lease = {"metadata": {**metadata, "resourceVersion": str(next(self._versions))}, "spec": spec}
        self.writes.append(spec["holderIdentity"])

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


class Environment:
    """Leaders with one connection each, and a record of who led when."""

    def __init__(self, folder: Path, url: str, stack: AsyncExitStack) -> None:
        self.history: list[tuple[str, bool]] = []
        self.leaders: dict[str, LeaderElector] = {}
        self._folder, self._url, self._stack = folder, url, stack

    async def start(self, name: str, timing: LeaseTiming = QUICK) -> LeaderElector:
        client: Api = await self._stack.enter_async_context(api(self._folder, self._url, timeout_s=5))
        leader = LeaderElector(
            client, "ours", identity=name, timing=timing, on_change=lambda now: self.history.append((name, now))
        )
        self.leaders[name] = await self._stack.enter_async_context(leader)
        return leader

    async def until(self, name: str, leading: bool = True, within_s: float = 5) -> None:
        async with asyncio.timeout(within_s):
            while self.leaders[name].is_leader != leading:
                assert sum(each.is_leader for each in self.leaders.values()) <= 1
                await asyncio.sleep(0.01)


async def led(folder: Path, store: Store, story: Any) -> Environment:
    async with Scripted(store.play) as server, AsyncExitStack() as stack:
        environment = Environment(folder, server.url, stack)
        await story(environment)
    return environment


def test_the_first_one_leads_and_releases_at_the_end(tmp_path: Path) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        await environment.start("a")
        await environment.until("a")
        await asyncio.sleep(2.3)  # longer than the lease: it is renewed
        assert environment.leaders["a"].is_leader
        assert store.lease is not None
        assert store.lease["spec"]["leaseDurationSeconds"] == 2
        assert store.lease["spec"]["leaseTransitions"] == 0
        assert store.lease["spec"]["acquireTime"] < store.lease["spec"]["renewTime"]

    cluster_environment = asyncio.run(led(tmp_path, store, story))
    assert cluster_environment.history == [("a", True), ("a", False)]
    assert store.holder == ""


def test_a_second_one_waits_and_follows_a_release_at_once(tmp_path: Path) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        first = await environment.start("a", LeaseTiming(lease_s=30, renew_s=20, retry_s=0.1))
        await environment.until("a")
        await environment.start("b")
        await asyncio.sleep(2.3)  # longer than b's own lease duration: the holder's value counts
        assert not environment.leaders["b"].is_leader
        assert environment.leaders["b"].holder == "a"
        await first.__aexit__()
        await environment.until("b", within_s=2)
        assert store.lease is not None
        assert store.lease["spec"]["leaseTransitions"] == 1

    cluster_environment = asyncio.run(led(tmp_path, store, story))
    assert cluster_environment.history == [("a", True), ("a", False), ("b", True), ("b", False)]


def test_a_dead_leaders_lease_is_taken_after_its_whole_duration_unchanged(tmp_path: Path) -> None:
    # Its own times are in the past, but they are another machine's clock and do not count.
    store = Store()
    old = "2001-01-01T00:00:00.000000Z"
    store.lease = {
        "metadata": {"name": "ours", "resourceVersion": "77"},
        "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 3, "renewTime": old, "leaseTransitions": 4},
    }

    async def story(environment: Environment) -> None:
        started = asyncio.get_running_loop().time()
        await environment.start("b")
        await environment.until("b")
        assert 3 <= asyncio.get_running_loop().time() - started < 5
        assert store.lease is not None
        assert store.lease["spec"]["leaseTransitions"] == 5

    asyncio.run(led(tmp_path, store, story))


def test_a_lease_that_keeps_changing_is_never_taken(tmp_path: Path) -> None:
    store = Store()
    store.lease = {"metadata": {"resourceVersion": "0"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 1}}

    async def story(environment: Environment) -> None:
        await environment.start("b")
        for version in range(10):
            assert store.lease is not None
            store.lease["metadata"] = {"resourceVersion": f"x{version}"}
            await asyncio.sleep(0.2)
            assert not environment.leaders["b"].is_leader

    asyncio.run(led(tmp_path, store, story))
    assert store.writes == []


@pytest.mark.parametrize("fault", ["hang", "500"])
def test_without_the_api_leadership_ends_before_anybody_can_take_it(tmp_path: Path, fault: str) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        await environment.start("a")
        await environment.until("a")
        loop = asyncio.get_running_loop()
        store.fault, unavailable = fault, loop.time()
        await environment.until("a", leading=False, within_s=QUICK.lease_s)
        assert loop.time() - unavailable < QUICK.lease_s
        await asyncio.sleep(0.05)
        assert environment.history == [("a", True), ("a", False)]
        store.fault = ""
        await environment.until("a")

    asyncio.run(led(tmp_path, store, story))


def test_one_that_was_stopped_for_a_while_knows_that_it_no_longer_leads(tmp_path: Path) -> None:
    # The process did not run (SIGSTOP, a paused machine): the property is correct before any timer has fired.
    store = Store()
    now = {"ahead": 0.0}

    async def story(environment: Environment) -> None:
        leader = await environment.start("a")
        clock = leader._clock
        leader._clock = lambda: clock() + now["ahead"]
        await environment.until("a")
        now["ahead"] = 60.0
        assert not leader.is_leader
        await environment.until("a")  # no other leader took it, so it is renewed

    cluster_environment = asyncio.run(led(tmp_path, store, story))
    assert cluster_environment.history[0] == ("a", True)


def test_another_process_took_it(tmp_path: Path) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        await environment.start("a")
        await environment.until("a")
        store._set({"name": "ours"}, {"holderIdentity": "usurper", "leaseDurationSeconds": 9})
        await environment.until("a", leading=False, within_s=1)
        assert environment.leaders["a"].holder == "usurper"

    asyncio.run(led(tmp_path, store, story))
    assert store.holder == "usurper"  # not released: it was not ours


def test_a_renewal_whose_answer_was_lost_costs_nothing(tmp_path: Path) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        await environment.start("a")
        await environment.until("a")
        for _ in range(3):
            store.fault = "lose the answer"
            await asyncio.sleep(0.8)
            assert environment.leaders["a"].is_leader

    cluster_environment = asyncio.run(led(tmp_path, store, story))
    assert cluster_environment.history == [("a", True), ("a", False)]


def test_of_many_one_leads_at_any_time(tmp_path: Path) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        for name in "abcd":
            await environment.start(name)
        async with asyncio.timeout(5):
            while not any(leader.is_leader for leader in environment.leaders.values()):
                await asyncio.sleep(0.01)
        for _ in range(3):
            first = next(name for name, leader in environment.leaders.items() if leader.is_leader)
            await environment.leaders.pop(first).__aexit__()
            async with asyncio.timeout(5):
                while not any(leader.is_leader for leader in environment.leaders.values()):
                    await asyncio.sleep(0.01)
            assert sum(leader.is_leader for leader in environment.leaders.values()) == 1

    cluster_environment = asyncio.run(led(tmp_path, store, story))
    leading: set[str] = set()
    for name, now in cluster_environment.history:
        leading = leading | {name} if now else leading - {name}
        assert len(leading) <= 1


def test_changes_can_be_waited_for(tmp_path: Path) -> None:
    store = Store()

    async def story(environment: Environment) -> None:
        leader = await environment.start("a")
        reported: list[bool] = []
        async for leading in leader:
            reported.append(leading)
            if leading:
                store.fault = "500"
            elif len(reported) > 1:
                break
        assert reported == [False, True, False]

    asyncio.run(led(tmp_path, store, story))


def test_a_lease_shorter_than_its_renewal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < lease_s"):
        LeaderElector(api(tmp_path, "http://127.0.0.1:1"), "x", timing=LeaseTiming(lease_s=10, renew_s=10))
