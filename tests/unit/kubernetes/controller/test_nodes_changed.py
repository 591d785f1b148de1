"""Nodes that the controller reads again: those that another writer changed, even back to their previous state."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.watch import FullList, ObjectChanged, ObjectDeleted
from aliquot.kubernetes.controller.controller import Controller
from aliquot.kubernetes.gpu.gpu_operands import NodePatch


def node(version: int, **labels: str) -> Node:
    return Node(ObjectMeta(name="n", uid="u", resource_version=str(version), labels=labels))


class Server:
    """An API server that answers a patch with the node's state at that time."""

    namespace = "ns"

    async def patch(self, kind: type[Node], name: str, body: dict[str, Any]) -> Node:
        return node(2, **body["metadata"]["labels"])


@pytest.fixture
def controller() -> Controller:
    made = Controller(cast(Api, Server()))
    made.leader = cast(Any, SimpleNamespace(is_leader=True))
    made.informers.nodes.apply(FullList((node(1),)))
    made._dirty.clear()
    asyncio.run(made._change(node(1), NodePatch({"ours": "yes"})))
    return made


def test_nothing_is_kept_of_a_node_that_went_while_it_was_written(controller: Controller) -> None:
    controller.informers.nodes.apply(ObjectDeleted(node(3)))
    asyncio.run(controller._change(node(1), NodePatch({"ours": "yes"})))
    assert controller._observed == {}


def reported(controller: Controller, item: Node) -> set[str]:
    controller._dirty.clear()
    controller.informers.nodes.apply(ObjectChanged(item))
    return set(controller._dirty)


def test_a_node_that_we_wrote_is_not_looked_at_for_it(controller: Controller) -> None:
    assert reported(controller, node(2, ours="yes")) == set()
    assert reported(controller, node(3, ours="yes")) == set(), "a heartbeat"


def test_a_label_of_ours_that_is_removed_is_looked_at(controller: Controller) -> None:
    assert reported(controller, node(2, ours="yes")) == set()
    assert reported(controller, node(3)) == {"n"}


def test_an_annotation_that_is_set_is_looked_at(controller: Controller) -> None:
    found = node(3, ours="yes")
    annotated = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations={"a": "b"}))
    assert reported(controller, annotated) == {"n"}
