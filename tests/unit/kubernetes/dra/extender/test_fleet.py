"""The extender's answers while slices and claims come and go."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.watch import FullList, ObjectChanged, ObjectDeleted
from aliquot.kubernetes.dra.extender.demand import pod_demand
from aliquot.kubernetes.dra.extender.fleet import PublishedFleet
from aliquot.kubernetes.dra.extender.messages import decode_request
from aliquot.kubernetes.dra.extender.prioritizer import Prioritizer
from support.selection import dice, samples
from unit.kubernetes.dra.extender.requests import CLASSES, claim, exactly, pod, published, raw_pod

NODES = ["n1", "n2", "n3"]
SMALL = raw_pod({"nvidia.com/mig-1g.5gb": "1"})
BY_CLAIM = raw_pod(claims=[{"name": "gpu", "resourceClaimName": "c"}])
HELD = ("gpu-0-mig-4g20gb-5-0", "gpu-0-mig-3g20gb-9-4")


class Bench:
    """An extender whose watches the test plays. ``n1`` and ``n2`` publish a GPU."""

    def __init__(self) -> None:
        self.fleet = PublishedFleet()
        self.prioritizer = Prioritizer(self.fleet, "fragmentation")
        self.background = asyncio.create_task(self.fleet.read_changed())

    async def sync(self) -> None:
        self.fleet.claims.apply(FullList((), "1"))
        self.fleet.classes.apply(FullList(CLASSES, "1"))
        self.fleet.slices.apply(FullList((*published("n1"), *published("n2")), "1"))
        await self.idle()

    async def idle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def ask(self, pod: dict[str, Any], nodes: list[str] | None = None) -> dict[str, int]:
        body = {"Pod": pod, "Nodes": None, "NodeNames": NODES if nodes is None else nodes}
        answer = await self.prioritizer.answer(json.dumps(body).encode())
        assert answer.status == 200
        return {row["Host"]: row["Score"] for row in json.loads(answer.body)}


def sizes(fleet: PublishedFleet) -> dict[str, int]:
    return {name: len(value) for name, value in vars(fleet).items() if isinstance(value, dict | set)}


def play(story: Callable[[Bench], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        try:
            await story(bench)
        finally:
            bench.background.cancel()

    asyncio.run(run())


def test_nothing_is_rated_before_everything_is_read() -> None:
    async def story(bench: Bench) -> None:
        assert await bench.ask(SMALL) == {}
        bench.fleet.slices.apply(FullList(published("n1"), "1"))
        await bench.idle()
        assert await bench.ask(SMALL) == {}
        await bench.sync()
        assert await bench.ask(SMALL) == {"n1": 10, "n2": 10, "n3": 0}

    play(story)


def test_a_node_follows_its_claims_and_slices() -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        held = claim(exactly("3g.20gb"), held=HELD)
        bench.fleet.claims.apply(ObjectChanged(held))
        assert await bench.ask(SMALL) == {"n1": 0, "n2": 10, "n3": 0}
        bench.fleet.claims.apply(ObjectChanged(claim(exactly("3g.20gb"))))
        assert await bench.ask(SMALL) == {"n1": 10, "n2": 10, "n3": 0}
        bench.fleet.claims.apply(ObjectChanged(held))
        bench.fleet.claims.apply(ObjectDeleted(held))
        assert await bench.ask(SMALL) == {"n1": 10, "n2": 10, "n3": 0}
        for part in published("n2"):
            bench.fleet.slices.apply(ObjectDeleted(part))
        assert await bench.ask(SMALL) == {"n1": 10, "n2": 0, "n3": 0}

    play(story)


def test_a_claim_that_is_known_before_its_slices_counts() -> None:
    async def story(bench: Bench) -> None:
        bench.fleet.claims.apply(FullList((claim(exactly("3g.20gb"), held=HELD, node="n2"),), "1"))
        bench.fleet.classes.apply(FullList(CLASSES, "1"))
        bench.fleet.slices.apply(FullList((*published("n1"), *published("n2")), "1"))
        await bench.idle()
        assert await bench.ask(SMALL) == {"n1": 10, "n2": 0, "n3": 0}

    play(story)


@pytest.mark.parametrize("last", ["slices", "claims", "classes"])
def test_it_rates_nodes_whichever_kind_is_read_last(last: str) -> None:
    async def story(bench: Bench) -> None:
        lists: dict[str, Any] = {"slices": (*published("n1"), *published("n2")), "claims": (), "classes": CLASSES}
        for kind in sorted(lists, key=lambda kind: kind == last):
            getattr(bench.fleet, kind).apply(FullList(lists[kind], "1"))
            await bench.idle()
        assert await bench.ask(SMALL) == {"n1": 10, "n2": 10, "n3": 0}

    play(story)


def test_nothing_is_kept_of_nodes_and_claims_that_are_gone() -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        empty = sizes(bench.fleet)
        for number in range(5):
            held = claim(exactly("3g.20gb"), held=HELD, node=f"m{number}")
            bench.fleet.claims.apply(ObjectChanged(held))
            for change in (ObjectChanged, ObjectDeleted):
                for part in published(f"m{number}"):
                    bench.fleet.slices.apply(change(part))
            bench.fleet.claims.apply(ObjectDeleted(held))
        await bench.idle()
        await bench.idle()
        assert sizes(bench.fleet) == empty

    play(story)


def test_a_claim_that_arrives_a_moment_later_is_waited_for() -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        asking = asyncio.create_task(bench.ask(BY_CLAIM))
        await bench.idle()
        assert not asking.done()
        bench.fleet.claims.apply(ObjectChanged(claim(exactly("1g.5gb"))))
        assert await asking == {"n1": 10, "n2": 10, "n3": 0}

    play(story)


def test_a_claim_that_does_not_arrive_delays_the_scheduler_no_longer() -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        began = time.monotonic()
        assert await bench.ask(BY_CLAIM) == {}
        assert time.monotonic() - began < 5

    play(story)


def test_a_pod_without_devices_and_one_that_is_not_understood_get_no_priorities() -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        assert await bench.ask(raw_pod()) == {}
        bench.fleet.claims.apply(ObjectChanged(claim(exactly("1g.5gb", allocationMode="All"))))
        assert await bench.ask(BY_CLAIM) == {}

    play(story)


def test_whole_nodes_instead_of_names_are_understood() -> None:
    body = {"Pod": SMALL, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n7"}, "spec": {}}]}}
    assert decode_request(json.dumps(body).encode()).nodes == ("n7",)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"{}",
        b'{"Pod": 7}',
        b'{"Pod": {"spec": 7}}',
        b'{"Pod": {}, "NodeNames": [7]}',
        b'{"Pod": {}, "NodeNames": [null]}',
        b"[" * 100_000,
        b'{"Pod": {"metadata": {"x": ' + b"[" * 100_000,
    ],
)
def test_what_is_not_a_request_is_refused_in_words(body: bytes) -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        answer = await bench.prioritizer.answer(body)
        assert (answer.status, answer.body.startswith(b"not ExtenderArgs")) == (400, True)

    play(story)


def test_no_request_forges_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        forged = {**BY_CLAIM, "metadata": {"name": "p\nlevel=error\x1b[2J", "namespace": "team"}}
        assert await bench.ask(forged) == {}

    with caplog.at_level("INFO"):
        play(story)
    assert [record.getMessage() for record in caplog.records] == [
        "no priorities for pod team/p?level=error?[2J: its claim is not known yet"
    ]


def test_many_changed_nodes_are_read_in_the_background() -> None:
    async def story(bench: Bench) -> None:
        names = [f"m{n}" for n in range(40)]
        await bench.sync()
        for name in names:
            for part in published(name):
                bench.fleet.slices.apply(ObjectChanged(part))
        assert set((await bench.ask(SMALL, names)).values()) == {0}
        for _ in range(len(names)):
            await bench.idle()
        assert set((await bench.ask(SMALL, names)).values()) == {10}

    play(story)


def test_after_any_history_it_knows_what_a_new_one_knows() -> None:
    """Slices of two nodes come, change and go, and claims on their devices."""
    random = dice("extender histories")
    demands = [pod_demand(pod({f"nvidia.com/mig-{profile}": "1"}), (), CLASSES) for profile in ("1g.5gb", "3g.20gb")]
    states = [(), ("gpu-0-mig-3g20gb-9-4",), ("gpu-0-mig-1g5gb-19-6", "gpu-0-mig-1g5gb-19-5")]
    slices = {(node, state): published(node, allocated=state) for node in NODES for state in states}

    def known(fleet: PublishedFleet) -> list[Any]:
        found = fleet.nodes(NODES).values()
        return [None if each is None else [each.cost(demand, "fragmentation") for demand in demands] for each in found]

    async def story(bench: Bench) -> None:
        await bench.sync()
        for _ in range(samples(240)):
            node, state = random.choice(NODES), random.choice(states)
            change = random.choice((ObjectChanged, ObjectChanged, ObjectDeleted))
            if random.random() < 0.5:
                for part in slices[node, state]:
                    bench.fleet.slices.apply(change(part))
            else:
                changed = claim(exactly("1g.5gb"), held=state, node=node, name=random.choice("ab"))
                bench.fleet.claims.apply(change(changed))
            fresh = PublishedFleet()
            fresh.slices.apply(FullList(bench.fleet.slices.items, "1"))
            fresh.claims.apply(FullList(bench.fleet.claims.items, "1"))
            assert known(bench.fleet) == known(fresh)

    play(story)


def test_a_slice_may_move_to_another_node() -> None:
    async def story(bench: Bench) -> None:
        await bench.sync()
        for part in published("n1"):
            spec = msgspec.structs.replace(part.spec, node_name="n3")
            bench.fleet.slices.apply(ObjectChanged(msgspec.structs.replace(part, spec=spec)))
        assert await bench.ask(SMALL) == {"n1": 0, "n2": 10, "n3": 10}

    play(story)
