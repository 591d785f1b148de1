"""The nodes whose agents do not answer, although their objects wait for them.

No agent writes a heartbeat, and a dead one leaves its objects as they were. So the controller remembers since when a
node's objects wait. A new leader starts to count again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.kinds.harvester import HarvesterStatus, MigConfiguration, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING

GpuObject = SRIOVGPUDevice | VGPUDevice | MigConfiguration
Answer = tuple[type[GpuObject], str, int]
"""An object that waits: its kind, its name, and the generation that its agent saw last."""
ANSWER_S: Final = 300.0
"""Seconds for which a node's objects may wait without one answer. Kubernetes leaves pods on a silent node as long."""


class AgentWatch:
    """The memory of the objects that wait for their agents, by node."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[frozenset[Answer], float]] = {}

    def silent_nodes(self, snapshot: AdmissionSnapshot, now: float) -> frozenset[str]:
        """Return the nodes whose agents answered none of the waiting objects for ``ANSWER_S``. ``now`` is in seconds
        of any clock.
        """
        found: dict[str, set[Answer]] = defaultdict(set)
        for target in _objects(snapshot):
            if awaits_agent(target) and target.spec.node_name in snapshot.nodes:
                found[target.spec.node_name].add((type(target), target.name, target.status.observed_generation))
        before, self._waiting = self._waiting, {}
        for node, waiting in found.items():
            known, since = before.get(node, (frozenset(), now))
            self._waiting[node] = frozenset(waiting), since if known <= waiting else now
        return frozenset(node for node, (_, since) in self._waiting.items() if now - since >= ANSWER_S)


def _objects(snapshot: AdmissionSnapshot) -> Iterable[GpuObject]:
    yield from snapshot.gpus.values()
    yield from snapshot.migs.values()
    yield from snapshot.vgpus.values()


def awaits_agent(target: GpuObject) -> bool:
    """Report whether the agent has to see the present spec, or to do what it requests."""
    if is_unobserved(target):
        return True
    ready = ready_condition(target.status)
    return ready is not None and ready.reason == PENDING


def is_unobserved(target: GpuObject) -> bool:
    """Report whether the agent has not seen the present spec yet."""
    return target.status.observed_generation < target.metadata.generation


def ready_condition(status: HarvesterStatus) -> Condition | None:
    """Return the condition ``Ready``; None if the agent has written none."""
    return next((each for each in status.conditions if each.type == "Ready"), None)
