"""Document of an agent: equal after a read, small, and truncated with a note if it must be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.core.engine.history import PastRun
from aliquot.core.model.inventory import Gpu, GpuInstance, GpuVirtualization, Holder, Inventory, Mig, VirtualFunction
from aliquot.core.model.usage import Usage
from aliquot.errors import DriverHangsError
from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.errors import ApiUnavailableError, NotFoundError
from aliquot.kubernetes.client.object_base import ObjectMeta, OwnerReference
from aliquot.kubernetes.client.objects import ConfigMap, Node
from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.label_agent.agent.main import LabelAgent
from aliquot.kubernetes.node_agent import document_publisher as publishers
from aliquot.kubernetes.node_agent.agent_context import AgentContext
from aliquot.kubernetes.node_agent.document_publisher import DocumentPublisher, PublishPace
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse

replace = msgspec.structs.replace
HELD = GpuInstance(7, "1g.5gb", 19, "0:1", held=True, holders=(Holder("pod", "default/job", "main"),))


def one(*instances: GpuInstance, functions: int = 0) -> NodeDocument:
    made = tuple(VirtualFunction(f"0000:08:{n // 8:02x}.{n % 8}", n) for n in range(functions))
    virtual = GpuVirtualization(functions=made, addresses=tuple(f.pci for f in made)) if functions else None
    gpu = Gpu("0000:07:00.0", "GPU-1", 0, "NVIDIA A100", mig=Mig(True, "enabled", "enabled"), instances=instances)
    return NodeDocument(Inventory("n1", (replace(gpu, virtual=virtual),)), label="all-1g.5gb", holders="refuse")


def test_it_reads_back_as_it_was() -> None:
    written = one(HELD, functions=3)
    assert document.decode(document.encode(written)) == written


def test_what_is_none_of_ours_is_no_document() -> None:
    for text in ("", "{", "[]", '{"inventory": 3}', '{"inventory": {"node": "n", "gpus": [{}]}}'):
        assert document.decode(text) is None


def gpus(*changed: Gpu) -> str:
    return document.encode(NodeDocument(Inventory("n1", changed)))


def test_a_document_of_unknown_gpus_is_ignored_for_it_would_break_every_page() -> None:
    gpu = one(HELD).inventory.gpus[0]
    assert document.decode(gpus(replace(gpu, family="a100-40gb"))) is not None
    for bad in (
        gpus(replace(gpu, family="of-a-later-release")),
        gpus(replace(gpu, family="")),
        gpus(gpu, gpu),
        *(
            gpus(replace(gpu, instances=(replace(HELD, placement=p),)))
            for p in ("", "x:1", "-1:2", "0:0", "0:999999999")
        ),
    ):
        assert document.decode(bad) is None, bad


def test_of_many_holders_a_few_are_named() -> None:
    many = replace(HELD, holders=tuple(Holder("process", str(n), "python") for n in range(500)))
    found = document.decode(document.encode(one(many)))
    assert found is not None
    holders = found.inventory.gpus[0].instances[0].holders
    assert (len(holders), str(holders[-1])) == (9, "others 492 more")
    assert found.notes == ()


def test_what_is_too_big_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_BYTES", 2_000)
    found = document.decode(document.encode(one(HELD, functions=200)))
    assert found is not None
    assert "virtual functions are omitted: the document would be too large" in found.notes
    assert found.inventory.gpus[0].instances[0].profile == "1g.5gb"


class StubApi:
    """An API that keeps what is written. ``previous`` is the document of an earlier agent, for the node object
    ``uid``.
    """

    def __init__(self, previous: NodeDocument | None = None) -> None:
        self.written: list[NodeDocument] = []
        self.previous = previous
        self.asked = 0

    async def get(self, kind: Any, name: str, namespace: str) -> ConfigMap:
        self.asked += 1
        if self.previous is None:
            raise NotFoundError("there is none")
        meta = ObjectMeta(name=name, owner_references=(OwnerReference("Node", "n1", "uid"),))
        return ConfigMap(meta, data={document.KEY: document.encode(self.previous)})

    async def patch(self, kind: Any, name: str, body: Any, *, namespace: str) -> None:
        found = document.decode(body["data"][document.KEY])
        assert found is not None
        self.written.append(found)


def shown(*observations: NodeDocument, pace: PublishPace, seconds: float = 0.4, busy: int = 0) -> list[NodeDocument]:
    """Return the documents that are written for consecutive observations. The agent is working during ``busy`` of them
    after the first.
    """
    api = StubApi()

    async def watch() -> None:
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=None, pace=pace)  # type: ignore[arg-type]
        task = asyncio.create_task(showing.run())
        for n, number in enumerate(observations):
            showing.update(number, "uid", busy=1 <= n <= busy)
            await asyncio.sleep(seconds / len(observations))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watch())
    return api.written


SOON = PublishPace(least_s=0.0, holders_s=60.0, usage_s=60.0)


def test_the_same_is_written_once() -> None:
    assert len(shown(one(), one(), one(), pace=SOON)) == 1


def test_a_change_is_written_at_once_and_who_holds_what_later() -> None:
    idle = replace(HELD, held=False, holders=())
    assert len(shown(one(idle), one(HELD), pace=SOON)) == 1
    assert len(shown(one(idle), one(HELD), pace=replace(SOON, holders_s=0.0))) == 2
    assert len(shown(one(idle), one(HELD), one(), pace=SOON)) == 2


def test_a_change_is_written_when_it_is_done_and_earlier_only_where_it_takes_long() -> None:
    observations = (
        one(HELD),
        replace(one(HELD), label="asked"),
        replace(one(HELD), label="begun"),
        replace(one(), label="done"),
    )

    def written(seen: int, busy_s: float) -> list[str]:
        return [d.label for d in shown(*observations[:seen], pace=replace(SOON, busy_s=busy_s), busy=2)]

    assert written(3, 60.0) == ["all-1g.5gb"]
    assert written(4, 60.0) == ["all-1g.5gb", "done"]
    assert written(4, 0.0) == ["all-1g.5gb", "asked", "begun", "done"]


def test_the_document_is_written_without_pods_if_kubelet_does_not_answer() -> None:
    api = StubApi()

    async def silent() -> tuple[PodDeviceUse, ...]:
        raise KubeletUnavailableError("no answer", next_step="systemctl status kubelet")

    async def watch() -> None:
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=silent, pace=SOON)  # type: ignore[arg-type]
        task = asyncio.create_task(showing.run())
        showing.update(one(HELD), "uid")
        while not api.written:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(watch(), 30))
    assert api.written[0].inventory == one(HELD).inventory


def test_the_first_document_of_a_node_waits_for_no_change() -> None:
    api = StubApi()

    async def watch() -> None:
        pace = replace(SOON, busy_s=3600.0)
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=None, pace=pace)  # type: ignore[arg-type]
        task = asyncio.create_task(showing.run())
        showing.update(one(HELD), "uid", busy=True)
        while not api.written:
            await asyncio.sleep(0.01)
        showing.update(one(HELD), "another", busy=True)  # the node was created again
        while len(api.written) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(watch(), 30))


def used(instance: int, mib: int) -> NodeDocument:
    return replace(one(HELD), usage=(Usage("0000:07:00.0", instance, "1g.5gb", memory_used_mib=mib),))


def test_figures_of_use_are_worth_the_fewest_writes() -> None:
    assert len(shown(used(7, 300), used(7, 600), pace=replace(SOON, holders_s=0.0))) == 1
    assert len(shown(used(7, 300), used(7, 600), pace=replace(SOON, usage_s=0.0))) == 2


def test_what_a_new_instance_is_used_for_is_reported_sooner_than_that_a_known_one_is_used_more() -> None:
    for previous in (one(HELD), used(6, 300)):
        assert len(shown(previous, used(7, 300), pace=replace(SOON, holders_s=0.0))) == 2
        assert len(shown(previous, used(7, 300), pace=replace(SOON, usage_s=0.0))) == 1


def test_an_instance_made_again_is_not_reported_to_be_used_as_the_one_before_it_was() -> None:
    was = one(HELD).inventory
    reported = LastUsage(was, (Usage("0000:07:00.0", 7, "1g.5gb", memory_used_mib=300, idle_since=60.0),), at=100.0)
    assert [u.instance for u in reported.current_usage(was, ())] == [7]
    assert reported.current_usage(one(replace(HELD, profile="2g.10gb", placement="0:2")).inventory, ()) == ()
    change = PastRun("r", 90.0, 99.0, "", "", "done", gpus=("0000:07:00.0",))
    assert [u.instance for u in reported.current_usage(was, (change,))] == [7], "that was before the read"
    assert reported.current_usage(was, (replace(change, ended=101.0),)) == (), "an equal instance, but another one"


def blind(api: StubApi, *steps: NodeDocument | str, uid: str = "uid", pace: PublishPace = SOON) -> list[str]:
    """Return the errors that are written for consecutive observations. A string means that the GPUs could not be
    read.
    """

    async def watch() -> None:
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=None, pace=pace)  # type: ignore[arg-type]
        task = asyncio.create_task(showing.run())
        for step in steps:
            if isinstance(step, str):
                showing.report_unreadable(step, uid)
            else:
                showing.update(step, uid)
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watch())
    return [d.read_error for d in api.written]


def test_gpus_that_cannot_be_read_any_more_are_reported_once_as_they_were_last_seen() -> None:
    api = StubApi()
    assert blind(api, one(HELD), "no driver", "no driver", "no driver", one(HELD)) == ["", "no driver", ""]
    assert {d.inventory for d in api.written} == {one(HELD).inventory}
    assert blind(StubApi(), one(HELD), "no driver", "timeout 17") == ["", "no driver"], (
        "another text is not reported again"
    )


def test_what_a_previous_agent_saw_is_old_where_the_next_one_sees_nothing() -> None:
    before = replace(one(HELD), at="2026-01-01T00:00:00Z")
    api = StubApi(before)
    assert blind(api, "no driver", "no driver") == ["no driver"]
    assert api.written[0] == replace(before, at=api.written[0].at, read_error="no driver")
    reported = StubApi(replace(before, read_error="no driver"))
    assert blind(reported, "no driver") == [], "the document already contains it"
    assert blind(StubApi(before), "no driver", uid="another") == [], "nothing is known of a node that was created again"
    none = StubApi()
    assert (blind(none, "no driver", "no GPU", "no driver"), none.asked) == ([], 1)


def test_a_failure_began_when_it_was_first_written() -> None:
    api = StubApi(replace(one(HELD), at="2026-01-01T00:00:00Z", read_error="no driver"))
    assert blind(api, "it hangs", pace=replace(SOON, usage_s=0.0)) == ["it hangs"]
    assert api.written[0].at == "2026-01-01T00:00:00Z"


def test_a_driver_call_that_hangs_ends_no_look_and_is_reported_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aliquot.kubernetes.node_agent.hang_reporter.HANG_POLL_S", 0.01)
    api, hang = StubApi(), [None, DriverHangsError("the driver has not returned from reading")]
    monkeypatch.setattr("aliquot.foundation.driver_calls.current_hang", lambda: hang[0])

    async def watch() -> None:
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=None, pace=SOON)  # type: ignore[arg-type]
        own = SimpleNamespace(node=Node(ObjectMeta(name="n1", uid="uid")))
        shared = SimpleNamespace(node=own, jobs=lambda api, warn: ())
        context = SimpleNamespace(document_publisher=showing, shared=shared, api=None)
        reports = AgentContext.reports(cast(Any, context), cast(Any, None))
        tasks = [asyncio.create_task(each) for each in reports]
        showing.update(one(HELD), "uid")
        await asyncio.sleep(0.1)
        hang.reverse()
        await asyncio.sleep(0.1)
        hang.reverse()
        showing.update(one(HELD), "uid")
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(watch())
    assert [d.read_error for d in api.written] == ["", "the driver has not returned from reading", ""]


def test_a_document_that_is_not_written_is_a_problem_until_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Unavailable:
        unavailable = True

        async def patch(self, *about: object, **more: object) -> None:
            if self.unavailable:
                raise ApiUnavailableError("no server answers")

    api = Unavailable()
    monkeypatch.setattr(publishers, "BACKOFF", Backoff(first=0.01, longest=0.01))

    async def play() -> list[str]:
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=None, pace=SOON)  # type: ignore[arg-type]
        running = asyncio.create_task(showing.run())
        showing.update(one(HELD), "u")
        found = []
        async with asyncio.timeout(10):
            while not showing.problem:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            found.append(showing.problem)
            api.unavailable = False
            while showing.problem:
                await asyncio.sleep(0.01)
        running.cancel()
        return found

    assert asyncio.run(play()) == ["no server answers"]
    assert [each.getMessage() for each in caplog.records] == ["the node's document was not written: no server answers"]


@pytest.mark.parametrize(("pod", "owner"), [("", None), ("gone", None), ("agent-1", "u-1")])
def test_generated_configs_belong_to_the_agents_pod(
    pod: str, owner: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Server:
        async def get(self, kind: object, name: str) -> Any:
            if name == "gone":
                raise NotFoundError("no such pod")
            return SimpleNamespace(metadata=ObjectMeta(name=name, uid="u-1"))

    agent: Any = SimpleNamespace(options=SimpleNamespace(pod=pod), context=SimpleNamespace(api=Server()))
    found = asyncio.run(LabelAgent._owner(agent))
    assert found == (owner and {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": owner})
    assert ("generated configs will outlive this pod: no such pod" in caplog.text) == (pod == "gone")


def test_a_write_that_succeeds_ends_the_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []

    class Unsteady:
        writes = 0

        async def patch(self, *about: object, **more: object) -> None:
            self.writes += 1
            if self.writes % 2:
                raise ApiUnavailableError("no server answers")

    class Short:
        def pause(self, failures: int) -> float:
            pauses.append(failures)
            return 0.0

    api = Unsteady()
    monkeypatch.setattr(publishers, "BACKOFF", Short())

    async def play() -> None:
        showing = DocumentPublisher(api, "n1", document.GPUS, namespace="ns", uses=None, pace=SOON)  # type: ignore[arg-type]
        running = asyncio.create_task(showing.run())
        async with asyncio.timeout(10):
            for number, uid in enumerate(("u-1", "u-2"), 1):
                showing.update(one(HELD), uid)
                while api.writes < 2 * number or showing.problem:
                    await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(play())
    assert pauses == [1, 1]
