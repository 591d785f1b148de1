"""Nodes that pcidevices serves: it owns their objects and everything that these make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.virtual_machines.harvester.reasons import DevicesReason

DEVICES_ANNOTATION = "aliquot.dev/devices"
"""On a node: the status of our agent."""
PCIDEVICES_RUNS: Final = "PcidevicesRuns"


class _AgentStatus(msgspec.Struct, frozen=True):
    reason: Stored[DevicesReason] = ""


def foreign_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the nodes that pcidevices serves: our agent reports it there, or does not run there at all."""
    return frozenset(node.name for node in nodes if _agent_reason(node) == PCIDEVICES_RUNS)


def _agent_reason(node: Node) -> DevicesReason:
    try:
        text = node.metadata.annotations[DEVICES_ANNOTATION]
    except KeyError:
        return PCIDEVICES_RUNS
    try:
        return msgspec.json.decode(text, type=_AgentStatus).reason
    except (msgspec.DecodeError, UnicodeError):
        return ""
