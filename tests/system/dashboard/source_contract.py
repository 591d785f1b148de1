"""What every source of the page's promises, whatever it reads: a machine, simulated nodes, a cluster.

A suite that holds a source to it inherits ``SourceContract`` and has a fixture ``bed``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.ports import FleetSource
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, ObservedNode, Person
from aliquot.errors import AliquotError

T = TypeVar("T")
PATIENCE_S = 60.0

KINDS = ("cut", "make-room", "functions", "vgpus", "layout", "config", "repair", "attach", "detach")
ANN, BOB = Person("ann"), Person("bob")
LOOKER = Person("guest", reads_only=True)


class Loop:
    """An event loop in a thread of its own, for tests that are written plainly."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(PATIENCE_S)

    def call(self, job: Callable[[], T]) -> T:
        """Something that wants to be called on a running loop."""

        async def once() -> T:
            return job()

        return self.run(once())

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Runs it until the end."""

        async def begin() -> None:
            self._tasks.append(asyncio.create_task(job))

        self.run(begin())

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """``last`` is what is to be closed when everything that runs has ended."""

        async def end() -> list[BaseException]:
            for task in self._tasks:
                task.cancel()
            ends = await asyncio.gather(*self._tasks, return_exceptions=True)
            if last is not None:
                await last()
            return [e for e in ends if e is not None and not isinstance(e, asyncio.CancelledError)]

        faults = self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        if faults:
            raise faults[0]


class Bed:
    """A source that runs, and the world that it looks at. ``node`` and ``gpu`` name a GPU in MIG mode or capable of
    it, with nothing on it that is held. ``good`` can be carried out, ``other`` too, and leads elsewhere; ``impossible``
    no hardware can do.
    """

    source: FleetSource
    node: str
    gpu: str
    good: AnyChangeRequest
    other: AnyChangeRequest
    impossible: AnyChangeRequest

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.told: list[str] = []

    def disturb(self) -> None:
        """Changes something that is shown of the node, behind everybody's back."""
        raise NotImplementedError

    def changes(self) -> int:
        """How often anything was changed in the world: a count that only grows."""
        raise NotImplementedError

    # -- asking, plainly

    def look(self, name: str = "") -> ObservedNode:
        return self.source.fleet.by_name[name or self.node]

    def preview(self, ask: AnyChangeRequest, who: Person = ANN) -> ChangePreview:
        return self.loop.run(self.source.preview(ask, who))

    def execute(self, preview: ChangePreview, who: Person = ANN) -> ChangeOutcome:
        return self.loop.run(self.source.execute(preview, who, self.told.append))

    def eventually(self, true: Callable[[], bool], what: str) -> None:
        """Until something that has to be asked for is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                pytest.fail(f"never so: {what}")
            time.sleep(0.1)

    def wait(self, shown: Callable[[], bool], what: str) -> None:
        """Until something is shown; woken by the source's own word."""

        async def until() -> None:
            while not shown():
                await self.source.changed(self.source.fleet.revision)

        async def bounded() -> None:
            await asyncio.wait_for(until(), PATIENCE_S)

        try:
            self.loop.run(bounded())
        except TimeoutError:
            pytest.fail(f"never shown: {what}")


class SourceContract:
    """See the module."""

    def test_the_fleet_is_complete_once_it_is_ready(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")
        fleet = bed.source.fleet
        assert bed.node in fleet.by_name
        assert [look.name for look in fleet.nodes] == sorted(look.name for look in fleet.nodes)
        for look in fleet.nodes:
            assert look.inventory is not None or look.error
            assert look.observed_at > 0 or look.error

    def test_a_change_moves_the_revision_and_wakes_whoever_waits(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")
        before, look = bed.source.fleet.revision, bed.look()
        bed.disturb()
        bed.wait(lambda: bed.look().inventory != look.inventory, "the change")
        assert bed.source.fleet.revision > before
        assert bed.look().revision != look.revision

    def test_nothing_moves_while_nothing_changes(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")

        async def quiet() -> bool:
            for _ in range(5):  # what was begun before may still come in
                revision = bed.source.fleet.revision
                try:
                    await asyncio.wait_for(bed.source.changed(revision), 4)
                except TimeoutError:
                    return True
            return False

        assert bed.loop.run(quiet())

    def test_a_preview_touches_nothing(self, bed: Bed) -> None:
        before = bed.changes()
        found = bed.preview(bed.good)
        assert found.changes
        assert found.title
        assert found.summary
        assert bed.node in found.nodes
        assert all(act.node and act.verb and act.what and act.reason for act in found.actions)
        assert all(p.now or p.planned for p in found.pictures)
        assert bed.changes() == before

    def test_what_was_previewed_is_done_and_shown_and_told(self, bed: Bed) -> None:
        found = bed.preview(bed.good)
        done = bed.execute(found)
        assert (done.status, done.code) == ("done", ""), done
        assert done.sentence
        bed.eventually(lambda: not bed.preview(bed.good).actions, "the change as done")
        assert bed.told, "progress is told while it happens"

    def test_asked_again_there_is_nothing_to_do(self, bed: Bed) -> None:
        bed.execute(bed.preview(bed.good))
        again = bed.preview(bed.good)
        assert not again.changes
        assert not again.blocked
        before = bed.changes()
        assert bed.execute(again).status == "nothing"
        assert bed.changes() == before

    def test_the_impossible_is_refused_with_a_reason_and_a_way_on(self, bed: Bed) -> None:
        before = bed.changes()
        try:
            found = bed.preview(bed.impossible)
        except AliquotError:
            return
        assert found.blocked
        assert not found.changes
        first = found.obstacles[0]
        assert first.rule
        assert first.message
        assert first.suggestion or first.next_step
        assert bed.execute(found).status == "refused"
        assert bed.changes() == before

    def test_two_previews_at_once_and_the_second_is_outdated_by_the_first(self, bed: Bed) -> None:
        first, second = bed.preview(bed.good, ANN), bed.preview(bed.other, BOB)
        assert bed.execute(first, ANN).status == "done"
        before = bed.changes()
        late = bed.execute(second, BOB)
        assert late.status == "refused"
        assert late.sentence
        assert late.code
        assert bed.changes() == before
        assert bed.execute(bed.preview(bed.other, BOB), BOB).status == "done"

    def test_who_may_only_look_changes_nothing(self, bed: Bed) -> None:
        before = bed.changes()
        for kind in KINDS:
            assert bed.loop.run(bed.source.may(LOOKER, kind)), kind
        with pytest.raises(AliquotError):
            bed.preview(bed.good, LOOKER)
        allowed = bed.preview(bed.good, ANN)
        assert bed.execute(allowed, LOOKER).status == "refused"
        assert bed.changes() == before

    def test_the_past_tells_who_did_what_and_how_it_ended(self, bed: Bed) -> None:
        begun = time.time()
        bed.execute(bed.preview(bed.good), ANN)
        bed.eventually(lambda: bool(bed.loop.run(bed.source.history(bed.node))), "the past")
        last = bed.loop.run(bed.source.history(bed.node))[0]
        assert last.node == bed.node
        assert "ann" in last.by
        assert last.outcome == "done"
        assert last.at >= begun - 5
        assert last.title
        assert last in bed.loop.run(bed.source.history())
        assert len(bed.loop.run(bed.source.history(most=1))) == 1
        assert bed.loop.run(bed.source.history("no-such-node")) == ()

    def test_fleet_and_virtual_answer_at_once(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")

        def both() -> float:
            start = time.perf_counter()
            assert bed.source.fleet is not None
            assert bed.source.virtual is not None
            return time.perf_counter() - start

        assert min(bed.loop.call(both) for _ in range(5)) < 0.05
