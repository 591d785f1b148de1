"""Nodes that pcidevices serves: their objects, and what those make, are its own."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.kubernetes.client.objects import Node

DEVICES_ANNOTATION = "aliquot.dev/devices"
"""On a node: how our agent stands there."""
PCIDEVICES_RUNS = "PcidevicesRuns"
WITHOUT_PCIDEVICES = "aliquot.dev/without-pcidevices"
"""The label by which pcidevices' DaemonSet leaves a node out, once it was told to; the administrator sets it."""


class _AgentStatus(msgspec.Struct, frozen=True):
    reason: str = ""


def foreign_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the nodes that pcidevices serves: our agent says so there, or does not run there at all."""
    return frozenset(node.name for node in nodes if _agent_reason(node) == PCIDEVICES_RUNS)


def _agent_reason(node: Node) -> str:
    try:
        text = node.metadata.annotations[DEVICES_ANNOTATION]
    except KeyError:
        return PCIDEVICES_RUNS
    try:
        return msgspec.json.decode(text, type=_AgentStatus).reason
    except (msgspec.DecodeError, UnicodeError):
        return ""
