"""The agent's view of its node: what comes late does not replace what is newer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aliquot.agent.corner import Corner
from aliquot.integrations.kubernetes.api.client import Api
from aliquot.integrations.kubernetes.api.objects import Node, ObjectMeta
from aliquot.integrations.kubernetes.operands import NodePatch


def node(version: int, label: str, uid: str = "u") -> Node:
    return Node(metadata=ObjectMeta(name="n", uid=uid, resource_version=str(version), labels={"wish": label}))


class SlowAnswer:
    """An API whose answer to our patch arrives after the watch has told of ``meanwhile``."""

    def __init__(self, meanwhile: Node) -> None:
        self.meanwhile = meanwhile
        self.corner: Corner | None = None

    async def get(self, kind: type[Node], name: str) -> Node:
        return node(1, "old")

    async def patch(self, kind: type[Node], name: str, body: dict[str, Any]) -> Node:
        assert self.corner is not None
        self.corner._see(self.meanwhile)
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
    corner = api.corner = Corner(cast(Api, api), "n", "ns", lambda: None)
    asyncio.run(corner.change(lambda marks: NodePatch({"state": "success"})))
    assert corner.marks.labels["wish"] == seen
