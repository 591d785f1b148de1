"""The agent's cached node: late data does not replace newer data."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiUnavailableError, ForbiddenError
from aliquot.kubernetes.client.objects import ConfigMap, Node, ObjectMeta
from aliquot.kubernetes.client.watch import FullList, ObjectChanged, ObjectDeleted
from aliquot.kubernetes.gpu import change_report
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.node_agent.own_node import OwnNode


def node(version: int, label: str, uid: str = "u") -> Node:
    return Node(metadata=ObjectMeta(name="n", uid=uid, resource_version=str(version), labels={"wish": label}))


class SlowAnswer:
    """An API whose answer to a patch arrives after the watch has reported ``meanwhile``."""

    def __init__(self, meanwhile: Node) -> None:
        self.meanwhile = meanwhile
        self.informer: NodeInformer | None = None

    async def get(self, kind: type[Node], name: str) -> Node:
        return node(1, "old")

    async def patch(self, kind: type[Node], name: str, body: dict[str, Any]) -> Node:
        assert self.informer is not None
        self.informer.nodes.apply(ObjectChanged(self.meanwhile))
        return node(2, "old")


@pytest.mark.parametrize(
    ("meanwhile", "seen"),
    [
        (node(3, "new"), "new"),
        (node(1, "old"), "old"),
        (node(3, "reborn", uid="another"), "reborn"),
    ],
    ids=["newer", "older", "another node of that name"],
)
def test_an_answer_that_comes_late_does_not_hide_a_newer_label(meanwhile: Node, seen: str) -> None:
    api = SlowAnswer(meanwhile)
    informer = api.informer = NodeInformer(cast(Api, api), OwnNode("n"), "ns", lambda: None)
    asyncio.run(informer.change(lambda marks: NodePatch({"state": "success"})))
    assert informer.marks.labels["wish"] == seen


def test_a_heartbeat_is_no_change_and_a_label_is() -> None:
    woken: list[str] = []
    informer = NodeInformer(cast(Api, None), OwnNode("n"), "ns", lambda: woken.append("up"))
    informer.nodes.apply(FullList((node(1, "old"),)))
    informer.nodes.apply(ObjectChanged(node(2, "old")))
    assert (informer.changes, woken) == (1, ["up"])
    informer.nodes.apply(ObjectChanged(node(3, "new")))
    informer.nodes.apply(ObjectDeleted(node(4, "new")))
    assert (informer.changes, informer.node) == (3, None)


class Maps:
    """An API with one ConfigMap, and with watches that report nothing."""

    async def patch(self, kind: type[ConfigMap], name: str, body: dict[str, Any], namespace: str) -> ConfigMap:
        return config_map(name, 5, "mine")


def config_map(name: str, version: int, text: str) -> ConfigMap:
    return ConfigMap(ObjectMeta(name=name, namespace="ns", uid=name, resource_version=str(version)), {"text": text})


def test_a_config_map_is_known_once_it_was_read_and_until_it_is_followed_no_more() -> None:
    informer = NodeInformer(cast(Api, Maps()), OwnNode("n"), "ns", lambda: None)

    async def play() -> None:
        informer.follow(["a", "", "b"])
        assert [informer.has_read(name) for name in ("a", "b", "")] == [False, False, True]
        maps = informer.followed_maps
        maps["a"].apply(FullList(()))
        maps["b"].apply(FullList((config_map("b", 4, "theirs"),)))
        assert informer.config_maps == {"a": None, "b": {"text": "theirs"}}
        await informer.write_config_map("b", {})
        maps["b"].apply(ObjectChanged(config_map("b", 4, "theirs")))
        assert informer.config_maps["b"] == {"text": "mine"}, "a lagging watch does not revert our own write"
        maps["b"].apply(ObjectDeleted(config_map("b", 6, "mine")))
        assert informer.config_maps["b"] is None
        informer.follow(["a"])
        assert list(informer.config_maps) == ["a"]
        await informer.close()

    asyncio.run(play())


def test_each_missing_right_is_reported_once_and_one_answer_does_not_hide_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    woken: list[str] = []
    informer = NodeInformer(cast(Api, None), OwnNode("n"), "ns", lambda: woken.append("up"))
    maps = ForbiddenError("lacks permission to list configmaps", next_step="kubectl auth can-i list configmaps")
    nodes, one, other = informer._reporter(""), informer._reporter("a"), informer._reporter("b")
    with caplog.at_level("INFO", "aliquot.agent"):
        one(maps)
        other(maps)
        one(maps)
        nodes(ApiUnavailableError("the API server did not answer"))
        nodes(None)
        assert informer.unavailable == maps.brief
        one(None)
        other(None)
    assert informer.unavailable == ""
    assert [record.getMessage() for record in caplog.records] == [
        "lacks permission to list configmaps | next: kubectl auth can-i list configmaps",
        "the API server answers again",
    ]
    assert woken == ["up"]


class EventApi:
    """An API that keeps the events that are written."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def create(self, kind: object, body: dict[str, Any], namespace: str) -> None:
        self.events.append(body)


def test_a_failure_is_a_warning_and_everything_else_is_normal() -> None:
    api = EventApi()
    informer = NodeInformer(cast(Api, api), OwnNode("n"), "ns", lambda: None)

    async def write() -> None:
        await informer.event(AgentStatus("failed", "Held", "held"))
        await informer.event(AgentStatus("success", "Applied", "applied", change=ChangeReport("train", 2.5)))
        await informer.events.warn("InvalidSettings", "odd")

    asyncio.run(write())
    assert [(e["type"], e["reason"]) for e in api.events] == [
        ("Warning", "Held"),
        ("Normal", "Applied"),
        ("Warning", "InvalidSettings"),
    ]
    reports = [change_report.read(e["metadata"].get("annotations", {})) for e in api.events]
    assert reports == [ChangeReport(), ChangeReport("train", 2.5), ChangeReport()]
