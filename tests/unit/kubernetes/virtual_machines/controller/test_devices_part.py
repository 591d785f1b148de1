"""Whether pcidevices still works somewhere: then its controller keeps KubeVirt's settings."""

from __future__ import annotations

import json

import pytest

from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.client.objects import Node, NodeStatus, ObjectMeta
from aliquot.kubernetes.virtual_machines.controller.controller import ANNOTATION, PCIDEVICES, occupied


def node(name: str, reason: str, ready: str = "") -> Node:
    meta = ObjectMeta(name=name, annotations={ANNOTATION: json.dumps({"state": "idle", "reason": reason})})
    return Node(metadata=meta, status=NodeStatus(conditions=(Condition("Ready", ready),) if ready else ()))


@pytest.mark.parametrize(("ready", "counts"), [("True", True), ("", True), ("False", False), ("Unknown", False)])
def test_a_node_that_is_down_does_not_hold_all_others_up(ready: str, counts: bool) -> None:
    assert occupied([node("a", "Working", "True"), node("b", PCIDEVICES, ready)]) == (("b",) if counts else ())
