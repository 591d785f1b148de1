"""Nodes that pcidevices serves: it permits the devices of its own objects there itself."""

from __future__ import annotations

import json

import pytest

from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import (
    DEVICES_ANNOTATION,
    PCIDEVICES_RUNS,
    foreign_nodes,
)


@pytest.mark.parametrize(
    ("annotations", "foreign"),
    [
        ({DEVICES_ANNOTATION: json.dumps({"state": "idle", "reason": PCIDEVICES_RUNS})}, True),
        ({}, True),
        ({DEVICES_ANNOTATION: json.dumps({"state": "working", "reason": "Working"})}, False),
        ({DEVICES_ANNOTATION: "{"}, False),
    ],
    ids=["pcidevices", "no agent of ours", "ours", "spoilt"],
)
def test_a_node_is_foreign_only_where_our_agent_leaves_it_alone(annotations: dict[str, str], foreign: bool) -> None:
    found = foreign_nodes([Node(metadata=ObjectMeta(name="n1", annotations=annotations))])
    assert found == ({"n1"} if foreign else set())
