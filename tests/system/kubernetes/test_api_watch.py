"""Watches under every kind of interruption: the reported changes add up to what the server holds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from aliquot.kubernetes.client.objects import ConfigMap, Node
from aliquot.kubernetes.client.watch import Change, FullList, ObjectChanged, ObjectDeleted, WatchTiming, watch
from system.kubernetes.api_scripted import Play, Scripted, Seen, Wire, api, failure, listed, node

FAST = WatchTiming(shortest_s=20, longest_s=20, grace_s=1, first_backoff_s=0.05, longest_backoff_s=0.2, refused_s=0.2)


class Watched:
    """The changes of one watch, as text, and its reports."""

    def __init__(self) -> None:
        self.reports: list[ApiError | None] = []
        self.changes: AsyncGenerator[Change[Node], None]
        self.server: Scripted

    async def take(self, count: int) -> list[str]:
        async with asyncio.timeout(10):
            return [_text(await anext(self.changes)) for _ in range(count)]


def _text(change: Change[Node]) -> str:
    if isinstance(change, FullList):
        return "listed " + ",".join(_item(item) for item in change.items)
    return f"{'put' if isinstance(change, ObjectChanged) else 'deleted'} {_item(change.item)}"


def _item(item: Node) -> str:
    return f"{item.name}@{item.metadata.resource_version}"


@asynccontextmanager
async def watching(folder: Path, play: Play, timing: WatchTiming = FAST, **given: Any) -> AsyncGenerator[Watched, None]:
    """Watch nodes of a scripted server."""
    watched = Watched()
    async with Scripted(play) as watched.server, api(folder, watched.server.url, timeout_s=2) as client:
        watched.changes = watch(client, Node, timing=timing, report=watched.reports.append, **given)
        try:
            yield watched
        finally:
            await watched.changes.aclose()


Step = Callable[[Wire], Any]


def script(first: dict[str, object], *streams: Step, then: dict[str, object] | None = None) -> Play:
    """Answer lists with ``first``, later ones with ``then``. Each watch gets one step, with the last one repeated."""
    state = {"lists": 0, "watches": 0}

    async def play(seen: Seen, wire: Wire) -> None:
        if not seen.watching:
            state["lists"] += 1
            await wire.answer(then if then is not None and state["lists"] > 1 else first)
            return
        step = streams[min(state["watches"], len(streams) - 1)]
        state["watches"] += 1
        await step(wire)

    return play


async def silent(wire: Wire) -> None:
    await wire.begin()
    await asyncio.sleep(60)


def events(*rows: tuple[str, dict[str, object]], end: bool = True) -> Step:
    async def step(wire: Wire) -> None:
        await wire.begin()
        for kind, body in rows:
            await wire.event(kind, body)
        if end:
            await wire.end()
        else:
            await asyncio.sleep(60)

    return step


def test_a_kind_that_went_and_came_back_is_listed_again(tmp_path: Path) -> None:
    # Its objects went with it: to resume from the watch's version would omit all objects that exist now.
    async def gone(wire: Wire) -> None:
        await wire.answer(failure(404, "NotFound"), 404)

    play = script(listed(10, node("n", 8)), gone, silent, then=listed(12, node("n", 12)))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(2) == ["listed n@8", "listed n@12"]
            assert [type(each) for each in watched.reports] == [NotFoundError, type(None)]

    asyncio.run(main())


def test_first_what_is_there_then_each_change(tmp_path: Path) -> None:
    play = script(
        listed(10, node("n", 8)),
        events(("MODIFIED", node("n", 11)), ("DELETED", node("n", 12)), ("ADDED", node("n", 13, "again")), end=False),
    )

    async def main() -> None:
        async with watching(tmp_path, play, name="n") as watched:
            assert await watched.take(4) == ["listed n@8", "put n@11", "deleted n@12", "put n@13"]
            one, two = watched.server.seen
            assert one.query == {
                "fieldSelector": "metadata.name=n",
                "resourceVersion": "0",
                "resourceVersionMatch": "NotOlderThan",
            }
            assert two.query == {
                "fieldSelector": "metadata.name=n",
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": "10",
                "timeoutSeconds": "20",
            }
            assert watched.reports == []

    asyncio.run(main())


def test_a_stream_that_ends_quietly_goes_on_from_the_last_version(tmp_path: Path) -> None:
    play = script(
        listed(10, node("n", 8)),
        events(("MODIFIED", node("n", 11))),
        events(("BOOKMARK", node("", 40))),
        events(("MODIFIED", node("n", 41)), end=False),
    )

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(3) == ["listed n@8", "put n@11", "put n@41"]
            assert [s.query["resourceVersion"] for s in watched.server.watches()] == ["10", "11", "40"]
            assert len(watched.server.lists()) == 1
            assert watched.reports == []

    asyncio.run(main())


async def gone_as_status(wire: Wire) -> None:
    await wire.refuse(410, "Expired", "too old resource version: 10 (90)")


gone_as_event = events(("ERROR", failure(410, "Expired", "too old resource version: 10 (90)")))


@pytest.mark.parametrize("gone", [gone_as_status, gone_as_event], ids=["status", "event"])
def test_after_410_everything_is_listed_again(tmp_path: Path, gone: Step) -> None:
    before = listed(10, node("stays", 1), node("changes", 2), node("goes", 3), node("remade", 4, "old"))
    after = listed(90, node("stays", 1), node("changes", 50), node("new", 60), node("remade", 70, "young"))
    play = script(before, gone, events(("DELETED", node("new", 91)), end=False), then=after)

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert len(await watched.take(1)) == 1
            assert await watched.take(2) == ["listed stays@1,changes@50,new@60,remade@70", "deleted new@91"]
            again = watched.server.lists()[1].query
            assert (again["resourceVersion"], again["resourceVersionMatch"]) == ("10", "NotOlderThan")
            assert [s.query["resourceVersion"] for s in watched.server.watches()] == ["10", "90"]
            assert watched.reports == []

    asyncio.run(main())


def test_each_410_after_a_good_while_asks_the_servers_memory_and_not_the_store(tmp_path: Path) -> None:
    # Thousands of agents that list from the store at the same time would overload it.
    first, second = events(("MODIFIED", node("n", 40))), events(("BOOKMARK", node("", 95)))
    play = script(listed(10), first, gone_as_event, second, gone_as_status, silent, then=listed(90, node("n", 80)))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(4) == ["listed ", "put n@40", "listed n@80", "listed n@80"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(watched.changes)
            assert [s.query.get("resourceVersion") for s in watched.server.lists()] == ["0", "40", "95"]

    asyncio.run(main())


def test_a_server_that_is_behind_or_was_restored_is_asked_for_what_the_store_holds(tmp_path: Path) -> None:
    # The last version seen is ahead of the server's: a list "not older than" can never be answered.
    state = {"restored": False}

    async def play(seen: Seen, wire: Wire) -> None:
        asked = seen.query.get("resourceVersion")
        if not state["restored"]:
            if seen.watching:
                state["restored"] = True
                wire.reset()
            else:
                await wire.answer(listed(900, node("n", 800), node("lost", 850)))
        elif asked and asked.startswith("9"):
            await wire.refuse(504, "Timeout", "Too large resource version: 900, current: 30")
        elif seen.watching:
            await silent(wire)
        else:
            assert asked is None
            await wire.answer(listed(30, node("n", 20)))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(2) == ["listed n@800,lost@850", "listed n@20"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await anext(watched.changes)
            assert watched.server.watches()[-1].query["resourceVersion"] == "30"

    asyncio.run(main())


def test_410_without_end_is_no_hot_loop(tmp_path: Path) -> None:
    timing = WatchTiming(first_backoff_s=0.2, longest_backoff_s=2)

    async def main() -> None:
        async with watching(tmp_path, script(listed(10), gone_as_event), timing) as watched:
            assert await watched.take(1) == ["listed "]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await watched.take(99)
            assert 2 <= len(watched.server.watches()) <= 6
            assert "resourceVersion" not in watched.server.lists()[-1].query

    asyncio.run(main())


def test_streams_that_end_at_once_are_no_hot_loop(tmp_path: Path) -> None:
    timing = WatchTiming(first_backoff_s=0.2, longest_backoff_s=2)

    async def main() -> None:
        async with watching(tmp_path, script(listed(10), events()), timing) as watched:
            assert await watched.take(1) == ["listed "]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await anext(watched.changes)
            assert 2 <= len(watched.server.watches()) <= 6

    asyncio.run(main())


async def half_a_line(wire: Wire) -> None:
    await wire.begin()
    line = json.dumps({"type": "MODIFIED", "object": node("n", 20)}).encode()
    await wire.chunk(line[:40])
    await asyncio.sleep(0.05)
    await wire.chunk(line[40:] + b"\n" + line[:30])
    await asyncio.sleep(0.05)
    wire.reset()


def test_lines_come_in_pieces_and_half_a_line_is_dropped(tmp_path: Path) -> None:
    play = script(listed(10), half_a_line, events(("MODIFIED", node("n", 21)), end=False))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(3) == ["listed ", "put n@20", "put n@21"]
            assert [s.query["resourceVersion"] for s in watched.server.watches()] == ["10", "20"]

    asyncio.run(main())


def test_a_line_break_of_unicode_is_no_line_break(tmp_path: Path) -> None:
    play = script(listed(10), events(("MODIFIED", node("n", 20, text="a\x85b\u2028c")), end=False))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(2) == ["listed ", "put n@20"]

    asyncio.run(main())


def test_a_stream_that_goes_silent_is_cut(tmp_path: Path) -> None:
    timing = WatchTiming(shortest_s=0.4, longest_s=0.4, grace_s=0.3, first_backoff_s=0.05)
    play = script(
        listed(10), events(("MODIFIED", node("n", 20)), end=False), events(("MODIFIED", node("n", 21))), silent
    )

    async def main() -> None:
        async with watching(tmp_path, play, timing) as watched:
            started = time.monotonic()
            assert await watched.take(3) == ["listed ", "put n@20", "put n@21"]
            assert 0.6 <= time.monotonic() - started < 2
            assert watched.server.watches()[1].query["resourceVersion"] == "20"

    asyncio.run(main())


def test_a_stream_that_only_trickles_is_cut_too(tmp_path: Path) -> None:
    async def trickle(wire: Wire) -> None:
        await wire.begin()
        while True:
            await wire.chunk(b"\n")
            await asyncio.sleep(0.05)

    timing = WatchTiming(shortest_s=0.3, longest_s=0.3, grace_s=0.2, first_backoff_s=0.05)
    play = script(listed(10), trickle, events(("MODIFIED", node("n", 21)), end=False))

    async def main() -> None:
        async with watching(tmp_path, play, timing) as watched:
            started = time.monotonic()
            assert await watched.take(2) == ["listed ", "put n@21"]
            assert time.monotonic() - started < 2

    asyncio.run(main())


def test_unavailable_and_back_are_reported(tmp_path: Path) -> None:
    state = {"asked": 0}

    async def play(seen: Seen, wire: Wire) -> None:
        state["asked"] += 1
        if state["asked"] in (1, 2):
            await wire.refuse(500, "InternalError", "etcdserver: no leader")
        elif state["asked"] == 4:
            wire.reset()  # breaks off before the watch began; reads over a new connection do not help either
        elif state["asked"] == 5:
            await wire.refuse(429, "TooManyRequests", "later", {"Retry-After": "1"})
        elif seen.watching:
            await events(("ADDED", node("n", 11)), end=False)(wire)
        else:
            await wire.answer(listed(10))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            started = time.monotonic()
            assert await watched.take(2) == ["listed ", "put n@11"]
            assert time.monotonic() - started >= 1  # Retry-After counts for watches
            messages = [None if r is None else r.status for r in watched.reports]
            assert messages == [500, 500, None, 0, 429, None]
            assert isinstance(watched.reports[0], ApiUnavailableError)

    asyncio.run(main())


def test_the_server_restarts(tmp_path: Path) -> None:
    # The port is dead for a while. Nothing is lost and nothing is listed again.
    async def main() -> None:
        state = {"version": 10}

        async def play(seen: Seen, wire: Wire) -> None:
            if not seen.watching:
                await wire.answer(listed(10))
                return
            state["version"] += 1
            await events(("MODIFIED", node("n", state["version"])), end=False)(wire)

        async with watching(tmp_path, play) as watched:
            assert await watched.take(2) == ["listed ", "put n@11"]
            server, port = watched.server, int(watched.server.url.rsplit(":", 1)[1])
            await server.__aexit__()
            waiting = asyncio.create_task(watched.take(1))
            await asyncio.sleep(0.5)
            assert watched.reports
            server._server = await asyncio.start_server(server._connected, "127.0.0.1", port)
            assert await waiting == ["put n@12"]
            assert watched.reports[-1] is None
            assert watched.server.watches()[-1].query["resourceVersion"] == "11"
            assert len(watched.server.lists()) == 1

    asyncio.run(main())


def test_a_missing_right_is_reported_and_waited_for(tmp_path: Path) -> None:
    state = {"allowed": False}

    async def play(seen: Seen, wire: Wire) -> None:
        if not state["allowed"]:
            output = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope'
            await wire.refuse(403, "Forbidden", output)
        elif seen.watching:
            await silent(wire)
        else:
            await wire.answer(listed(10))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            waiting = asyncio.create_task(watched.take(1))
            await asyncio.sleep(0.3)
            state["allowed"] = True
            assert await waiting == ["listed "]
            first = watched.reports[0]
            assert isinstance(first, ForbiddenError)
            assert first.next_step == "kubectl auth can-i list nodes --as=u"
            await asyncio.sleep(0)
            assert watched.reports[-1] is None

    asyncio.run(main())


def test_a_namespaced_kind_is_watched_where_it_lives(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await (silent(wire) if seen.watching else wire.answer(listed(10)))

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            for namespace in (None, "*", "there"):
                changes = watch(client, ConfigMap, namespace=namespace, name="m", timing=FAST)
                assert await anext(changes) == FullList((), "10")
                task = asyncio.create_task(anext(changes))
                await asyncio.sleep(0.2)
                task.cancel()
                await asyncio.wait([task])
            assert [s.path for s in server.watches()] == [
                "/api/v1/namespaces/ours/configmaps",
                "/api/v1/configmaps",
                "/api/v1/namespaces/there/configmaps",
            ]

    asyncio.run(main())


def test_what_cannot_be_read_is_reported_and_not_asked_for_in_a_hot_loop(tmp_path: Path) -> None:
    async def rubbish(wire: Wire) -> None:
        await wire.begin()
        await wire.chunk(b'{"type":"ADDED","object":{"metadata":7}}\n')
        await asyncio.sleep(60)

    play = script(listed(10), rubbish, events(("MODIFIED", node("n", 21)), end=False))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            assert await watched.take(2) == ["listed ", "put n@21"]
            assert watched.reports[0] is not None
            assert "cannot be read" in watched.reports[0].brief

    asyncio.run(main())


def test_leaving_a_watch_closes_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with watching(tmp_path, script(listed(10), silent)) as watched:
            assert await watched.take(1) == ["listed "]
            task = asyncio.create_task(anext(watched.changes))
            await asyncio.sleep(0.2)
            assert len(watched.server.watches()) == 1
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            with pytest.raises(StopAsyncIteration):
                await anext(watched.changes)

    asyncio.run(main())


def test_deleted_carries_what_the_server_reported_last(tmp_path: Path) -> None:
    play = script(listed(10, node("n", 8)), events(("DELETED", node("n", 12, mark="last")), end=False))

    async def main() -> None:
        async with watching(tmp_path, play) as watched:
            await watched.take(1)
            change = await anext(watched.changes)
            assert isinstance(change, ObjectDeleted)
            assert change.item.metadata.labels == {"mark": "last"}

    asyncio.run(main())
