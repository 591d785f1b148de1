"""Previews and changes. A change is applied at most once, and continues if the browser disconnects."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import anyio
import msgspec
import pytest

from aliquot.dashboard import pending_changes as pending
from aliquot.dashboard.change_requests import AnyChangeRequest, PartitionGpu
from aliquot.dashboard.pending_changes import PendingChanges
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, Person
from support.processes import until
from system.dashboard import client as clients
from system.dashboard.client import Client
from system.dashboard.running import Running
from system.dashboard.toy import ToySource

ASK = {"ask": "cut", "node": "n1", "gpu": "0000:07:00.0", "mig": "1g.5gb"}
CUT = PartitionGpu(node="n1", gpu="0000:07:00.0", mig="1g.5gb")
ANNA, BERT = Person("anna"), Person("bert")


def _plan(client: Client) -> str:
    answer = client.post("/asks", {**ASK, "csrf": client.csrf})
    assert answer.status_code == 303, answer.text
    assert re.fullmatch(r"/plans/[\w-]{20,}", answer.headers["location"])
    return str(answer.headers["location"])


def _state(client: Client, plan: str) -> str:
    found = re.search(r'class="state">(\w+)<', client.get(plan).text)
    assert found is not None
    return found[1]


def test_an_ask_is_looked_at_applied_and_its_end_is_kept(client: Client, source: ToySource) -> None:
    client.login()
    plan = _plan(client)
    assert _state(client, plan) == "waiting"
    assert not source.applied, "a preview touches nothing"
    assert client.post(f"{plan}/apply", {"csrf": client.csrf}).headers["location"] == plan
    until(lambda: _state(client, plan) == "ended")
    text = client.get(plan).text
    assert text.index("first") < text.index("last")
    assert "class='done'>done<" in text


def test_two_clicks_are_one_change(client: Client, source: ToySource) -> None:
    client.login()
    plan, csrf = _plan(client), client.csrf
    source.hold.clear()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post(f"{plan}/apply", {"csrf": csrf}).status_code, range(8)))
    assert set(answers) == {303}
    source.hold.set()
    until(lambda: _state(client, plan) == "ended")
    assert len(source.applied) == 1
    client.post(f"{plan}/apply", {"csrf": csrf})
    assert source.carried == 1, "an ended change is not applied again"
    assert ">done<" in client.get(plan).text


def test_of_two_people_with_a_plan_each_one_is_refused_and_can_ask_again(
    client: Client, served: Running, source: ToySource
) -> None:
    client.login()
    with clients.client(served) as other:
        other.login()
        plans = [(client, _plan(client)), (other, _plan(other))]
        barrier = threading.Barrier(2)

        def apply(pair: tuple[Client, str]) -> None:
            csrf = pair[0].csrf
            barrier.wait(30)
            pair[0].post(f"{pair[1]}/apply", {"csrf": csrf})

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(apply, plans))
        for person, plan in plans:
            until(lambda person=person, plan=plan: _state(person, plan) == "ended")  # type: ignore[misc]
        ends = sorted(re.findall(r"class='done'>(\w+)<", p.get(plan).text)[0] for p, plan in plans)
        assert ends == ["done", "refused"]
        assert len(source.applied) == 1
        person, late = next((p, plan) for p, plan in plans if ">refused<" in p.get(plan).text)
        rebuilt = person.post(f"{late}/again", {"csrf": person.csrf}).headers["location"]
        assert rebuilt != late
        person.post(f"{rebuilt}/apply", {"csrf": person.csrf})
        until(lambda: _state(person, rebuilt) == "ended")
        assert len(source.applied) == 2


def test_two_people_with_one_plan_make_one_change(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    plan = _plan(client)
    source.hold.clear()
    with clients.client(served) as other:
        other.login()
        for person in (client, other):
            assert person.post(f"{plan}/apply", {"csrf": person.csrf}).status_code == 303
    source.hold.set()
    until(lambda: _state(client, plan) == "ended")
    assert len(source.applied) == 1


def test_a_change_goes_on_when_the_browser_leaves(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    plan = _plan(client)
    source.hold.clear()
    client.post(f"{plan}/apply", {"csrf": client.csrf})
    client.post("/logout", {"csrf": client.csrf})
    client.http.close()
    source.hold.set()
    with clients.client(served) as later:
        later.login()
        until(lambda: _state(later, plan) == "ended")
    assert len(source.applied) == 1


def test_a_plan_that_is_not_there_is_reported(client: Client) -> None:
    client.login()
    for path in ("/plans/none/apply", "/plans/none/again"):
        answer = client.post(path, {"csrf": client.csrf})
        assert answer.status_code == 404
        assert "no longer exists" in answer.text


@pytest.mark.anyio
async def test_previews_expire_and_give_way_and_changes_under_way_do_not() -> None:
    source, now = ToySource("n1"), [0.0]
    pending_changes = PendingChanges(source, lambda: now[0])
    source.hold.clear()
    under_way = pending_changes.apply(await pending_changes.add(CUT, ANNA), ANNA)
    old = await pending_changes.add(CUT, BERT)
    for _ in range(pending.MOST_EACH + 5):
        last = await pending_changes.add(CUT, ANNA)
    assert pending_changes.find(old.id) is not None, "one user's previews do not displace another's"
    assert len(pending_changes._changes) <= pending.MOST_EACH + 2
    for n in range(pending.MOST + 10):
        await pending_changes.add(CUT, Person(f"p{n}"))
    assert len(pending_changes._changes) <= pending.MOST
    now[0] += pending.WAITS_S + 1
    assert pending_changes.find(last.id) is None
    assert pending_changes.find(under_way.id) is not None
    assert not await pending_changes.settle(0.05)
    source.hold.set()
    assert await pending_changes.settle(30)
    ended = pending_changes.find(under_way.id)
    assert ended is not None
    assert ended.done == ChangeOutcome("done", "it is done")
    assert ended.lines == ("first", "last")
    now[0] += pending.ENDED_S + 1
    assert pending_changes.find(under_way.id) is None


@pytest.mark.anyio
async def test_a_fault_of_ours_ends_a_change_with_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ToySource):
        async def execute(self, preview: ChangePreview, who: Person, report: object) -> ChangeOutcome:
            raise ZeroDivisionError

    pending_changes = PendingChanges(Broken("n1"))
    change = pending_changes.apply(await pending_changes.add(CUT, ANNA), ANNA)
    with anyio.fail_after(30):
        assert await pending_changes.settle(30)
        while (now := pending_changes.find(change.id)) is None or now.done is None:
            await anyio.sleep(0.01)
    assert now.done.code == "INTERNAL"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.anyio
async def test_a_page_that_is_about_to_end_begins_nothing_any_more() -> None:
    """After Ctrl-C, the dashboard waits for running changes. New ones would be interrupted."""
    source = ToySource("n1")
    source.hold.clear()
    pending_changes = PendingChanges(source)
    under_way, late = await pending_changes.add(CUT, ANNA), await pending_changes.add(CUT, BERT)
    pending_changes.apply(under_way, ANNA)
    assert not await pending_changes.settle(0.0)
    assert pending_changes.apply(late, BERT).state == pending.WAITING
    source.hold.set()
    with anyio.fail_after(30):
        assert await pending_changes.settle(30)
    assert len(source.applied) == 1


def test_who_says_yes_to_a_page_that_ends_gets_a_message(client: Client, served: Running, source: ToySource) -> None:
    client.login()
    plan = _plan(client)
    served.site.pending_changes.closing = True
    answer = client.post(f"{plan}/apply", {"csrf": client.csrf})
    assert (answer.status_code, _state(client, plan)) == (503, "waiting")
    assert "shutting down" in answer.text
    assert not source.applied


@pytest.mark.anyio
async def test_a_plan_without_a_way_is_not_applied() -> None:
    class Blocked(ToySource):
        async def preview(self, ask: object, who: Person) -> ChangePreview:
            return ChangePreview("nothing to do", ("n1",))

    source = Blocked("n1")
    pending_changes = PendingChanges(source)
    change = await pending_changes.add(CUT, ANNA)
    assert pending_changes.apply(change, ANNA).state == pending.WAITING
    assert not source.applied


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_previews_of_whole_fleets_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preview of a thousand nodes needs tens of megabytes. The oldest are discarded, the newest is kept."""
    monkeypatch.setattr(pending, "MOST_NODES", 10)

    class Wide(ToySource):
        async def preview(self, ask: AnyChangeRequest, who: Person) -> ChangePreview:
            return ChangePreview("wide", tuple(f"n{n}" for n in range(4)))

    async def main() -> None:
        pending_changes = PendingChanges(Wide())
        made = [await pending_changes.add(CUT, ANNA) for _ in range(4)]
        assert [pending_changes.find(change.id) is not None for change in made] == [False, False, True, True]
        monkeypatch.setattr(pending, "MOST_NODES", 1)
        last = await pending_changes.add(CUT, BERT)
        assert pending_changes.find(last.id) is not None
        assert pending_changes.find(made[-1].id) is None

    anyio.run(main)


def test_what_a_change_was_carried_out_by_is_not_kept_when_it_has_ended(source: ToySource) -> None:
    async def main() -> None:
        pending_changes = PendingChanges(source)
        change = await pending_changes.add(CUT, ANNA)
        pending_changes._changes[change.id] = msgspec.structs.replace(
            change, preview=msgspec.structs.replace(change.preview, secret=1)
        )
        pending_changes.apply(change, ANNA)
        assert await pending_changes.settle(30)
        ended = pending_changes.find(change.id)
        assert ended is not None
        assert (ended.state, ended.preview.secret) == (pending.ENDED, None)

    anyio.run(main)


@pytest.mark.anyio
async def test_of_many_lines_the_first_are_kept_and_one_says_that_there_are_more() -> None:
    class Talking(ToySource):
        async def execute(self, preview: ChangePreview, who: Person, report: Callable[[str], None]) -> ChangeOutcome:
            for n in range(pending.MOST_LINES + 5):
                report(f"line {n}")
            return ChangeOutcome("done", "it is done")

    pending_changes = PendingChanges(Talking("n1"))
    change = pending_changes.apply(await pending_changes.add(CUT, ANNA), ANNA)
    assert [each.id for each in pending_changes.running] == [change.id]
    assert await pending_changes.settle(30)
    ended = pending_changes.find(change.id)
    assert ended is not None
    assert ended.lines[:-1] == tuple(f"line {n}" for n in range(pending.MOST_LINES))
    assert ended.lines[-1] == "(for more lines, see the journal)"
    assert pending_changes.running == ()
