"""Merging of observations: revisions, waking of waiting tasks, and nodes that are being changed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.view_models import ObservedNode, SriovRow, VirtualizationView
from support.factory import inventory

ONE = ObservedNode("one", inventory("a30"), observed_at=5.0)


def on_a_loop(job: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(job, 30))


def test_the_same_again_moves_nothing_but_its_age() -> None:
    async def main() -> None:
        board = FleetState()
        board.update([(ONE, VirtualizationView())])
        first = board.fleet.revision
        board.update([(ObservedNode("one", inventory("a30"), observed_at=9.0), VirtualizationView())])
        assert board.fleet.revision == first
        assert board.fleet.by_name["one"].observed_at == 9.0
        board.update([(ObservedNode("one", inventory("a30"), observed_at=9.0, error="away"), None)])
        assert board.fleet.revision == first + 1
        assert board.fleet.by_name["one"].revision == first + 1

    on_a_loop(main())


def test_of_two_readings_under_way_the_one_that_began_later_is_right() -> None:
    """A batch is shown when its slowest node has answered. The other nodes may have been read again meanwhile."""

    async def main() -> None:
        board = FleetState()
        empty = replace(inventory("a30"), gpus=())
        board.update([(ObservedNode("one", inventory("a30"), observed_at=9.0, begun=2.0), VirtualizationView())])
        board.update(
            [
                (ObservedNode("one", empty, observed_at=8.0, begun=1.0), VirtualizationView()),
                (ObservedNode("two", empty, begun=1.0), None),
            ]
        )
        assert board.fleet.by_name["one"].inventory == inventory("a30")
        assert board.fleet.by_name["two"].inventory == empty
        board.begin("one", "anna")
        board.update([(ObservedNode("one", inventory("a30"), begun=1.0, error="away"), None)])
        assert (board.node_view("one").changing, board.node_view("one").error) == ("anna", "")
        board.update([(ObservedNode("one", inventory("a30"), begun=3.0, error="away"), None)])
        assert board.node_view("one").error == "away"

    on_a_loop(main())


def test_each_node_has_the_revision_at_which_it_moved() -> None:
    async def main() -> None:
        board = FleetState()
        board.update([(ONE, None), (ObservedNode("two"), None)])
        board.update([(ObservedNode("two", inventory("a30")), None)])
        assert [observation.revision for observation in board.fleet.nodes] == [1, 2]
        board.update((), ["one", "never"])
        assert [observation.name for observation in board.fleet.nodes] == ["two"]
        assert board.fleet.revision == 3
        board.update((), ["one"])
        assert board.fleet.revision == 3

    on_a_loop(main())


def test_a_waiting_client_is_woken_and_counts_as_a_watcher() -> None:
    async def main() -> None:
        board = FleetState()
        waiting = [asyncio.create_task(board.changed(0)) for _ in range(3)]
        await asyncio.sleep(0)
        assert board.watchers == 3
        board.update([(ONE, None)])
        await asyncio.gather(*waiting)
        assert board.watchers == 0
        await board.changed(0)  # the revision differs already
        late = asyncio.create_task(board.changed(board.fleet.revision))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert board.watchers == 0

    on_a_loop(main())


def test_a_pause_ends_when_a_watcher_comes() -> None:
    async def main() -> None:
        board = FleetState()
        pause = asyncio.create_task(board.pause(0.01, 3600))
        await asyncio.sleep(0)
        watcher = asyncio.create_task(board.changed(0))
        await pause
        watcher.cancel()

    on_a_loop(main())


def test_who_of_the_page_changes_a_node_is_shown_before_the_holder_of_its_lock() -> None:
    async def main() -> None:
        board = FleetState()
        board.begin("one", "ann")  # not observed yet
        board.update([(ONE, None)])
        assert board.fleet.by_name["one"].changing == "ann"
        board.begin("one", "bob")
        board.end("one", "bob")
        assert board.fleet.by_name["one"].changing == "ann"
        board.end("one", "ann")
        assert board.fleet.by_name["one"].changing == ""

    on_a_loop(main())


def test_rows_are_put_together_by_node_and_what_is_missing_names_its_nodes() -> None:
    async def main() -> None:
        board = FleetState()
        row = SriovRow("one", "0000:01:00.0", "A2", "0000:01:00.0", False, 0, 16, 0)
        board.update(
            [
                (ObservedNode("two"), VirtualizationView(missing=("no driver",))),
                (ONE, VirtualizationView((row,), missing=("no driver",))),
            ]
        )
        assert board.virtual.sriov == (row,)
        assert board.virtual.missing == ("one, two: no driver",)
        assert board.virtual is board.virtual, "combined once"
        board.update((), ["two"])
        assert board.virtual.missing == ("no driver",)
        board.update([(ObservedNode("one", error="away"), None)])
        assert board.virtual.sriov == (row,), "a failed observation keeps the rows"

    on_a_loop(main())


def test_the_fleet_is_ready_once_and_its_failure_comes_and_goes() -> None:
    async def main() -> None:
        board = FleetState()
        assert not board.fleet.ready
        board.set_status(ready=True)
        revision = board.fleet.revision
        board.set_status(ready=True)
        assert board.fleet.revision == revision
        board.set_status(error="away", next_step="aliquot sim list")
        assert (board.fleet.ready, board.fleet.error) == (True, "away")
        board.set_status(ready=True)
        assert board.fleet.error == ""

    on_a_loop(main())
