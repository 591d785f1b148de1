"""The contract of every source of the dashboard: a host, simulated nodes, a cluster.

A test class for a source inherits ``SourceContract`` and provides a fixture ``bed``.
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
from support.processes import until

T = TypeVar("T")
PATIENCE_S = 60.0

KINDS = ("cut", "make-room", "functions", "vgpus", "layout", "config", "repair", "attach", "detach")
ANN, BOB = Person("ann"), Person("bob")
LOOKER = Person("guest", reads_only=True)


class Loop:
    """An event loop in its own thread, for synchronous tests."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(PATIENCE_S)

    def call(self, job: Callable[[], T]) -> T:
        """Call a function on the running loop."""

        async def once() -> T:
            return job()

        return self.run(once())

    def start(self, job: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until the loop is closed."""

        async def begin() -> None:
            self._tasks.append(asyncio.create_task(job))

        self.run(begin())

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Stop everything that runs, then await ``last``."""

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
    """A running source and its nodes. ``node`` and ``gpu`` name a MIG-capable GPU without held instances.

    ``good`` and ``other`` are valid requests with different results. ``impossible`` cannot be applied on any hardware.
    """

    source: FleetSource
    node: str
    gpu: str
    good: AnyChangeRequest
    other: AnyChangeRequest
    impossible: AnyChangeRequest

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.reported: list[str] = []

    def disturb(self) -> None:
        """Change something that is shown of the node, without the dashboard."""
        raise NotImplementedError

    def changes(self) -> int:
        """Count all changes of the nodes. The count never decreases."""
        raise NotImplementedError

    # -- synchronous calls

    def make_observation(self, name: str = "") -> ObservedNode:
        return self.source.fleet.by_name[name or self.node]

    def preview(self, ask: AnyChangeRequest, who: Person = ANN) -> ChangePreview:
        return self.loop.run(self.source.preview(ask, who))

    def execute(self, preview: ChangePreview, who: Person = ANN) -> ChangeOutcome:
        return self.loop.run(self.source.execute(preview, who, self.reported.append))

    def eventually(self, true: Callable[[], bool], what: str) -> None:
        """Poll until a condition holds."""
        until(true, what, PATIENCE_S, pause_s=0.1)

    def wait(self, shown: Callable[[], bool], what: str) -> None:
        """Wait until something is shown, woken by the source's ``changed``."""

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
    """Tests that every source must pass."""

    def test_the_fleet_is_complete_once_it_is_ready(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")
        fleet = bed.source.fleet
        assert bed.node in fleet.by_name
        assert [observation.name for observation in fleet.nodes] == sorted(
            observation.name for observation in fleet.nodes
        )
        for number in fleet.nodes:
            assert number.inventory is not None or number.error
            assert number.observed_at > 0 or number.error

    def test_a_change_moves_the_revision_and_wakes_the_waiting(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")
        before, observation = bed.source.fleet.revision, bed.make_observation()
        bed.disturb()
        bed.wait(lambda: bed.make_observation().inventory != observation.inventory, "the change")
        assert bed.source.fleet.revision > before
        assert bed.make_observation().revision != observation.revision

    def test_nothing_moves_while_nothing_changes(self, bed: Bed) -> None:
        bed.wait(lambda: bed.source.fleet.ready, "a fleet that is ready")

        async def quiet() -> bool:
            for _ in range(5):  # observations that began earlier may still arrive
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

    def test_what_was_previewed_is_done_and_shown_and_reported(self, bed: Bed) -> None:
        found = bed.preview(bed.good)
        done = bed.execute(found)
        assert (done.status, done.code) == ("done", ""), done
        assert done.sentence
        bed.eventually(lambda: not bed.preview(bed.good).actions, "the change as done")
        assert bed.reported, "progress is reported while it happens"

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
