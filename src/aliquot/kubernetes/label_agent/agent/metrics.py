"""Prometheus metrics of the label agent."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.metrics import instruments as make
from aliquot.metrics.agent_metrics import AgentMetrics, SharedMetrics
from aliquot.metrics.snapshot import NodeSnapshot, rules, take_snapshot


class LabelAgentMetrics(AgentMetrics):
    """Metrics of both agents, and of this node's GPUs and instances."""

    def __init__(self, node: str, shared: SharedMetrics | None = None) -> None:
        super().__init__(node, "aliquot_agent", names.STATES, shared)
        self._gpus = make.gauge("aliquot_agent_gpus", self.registry)
        self._instances = make.gauge("aliquot_agent_instances", self.registry)
        self._invalid = make.gauge("aliquot_agent_settings_invalid", self.registry)
        self._has_pod_holders = False
        self.set_state("")

    def record_observation(self, observation: Observation) -> None:
        """Record an observation. Unreadable GPUs are omitted."""
        self._record_snapshot(self._snapshot(observation), (observation.plan,) if observation.plan is not None else ())
        self._invalid.labels(self._node).set(len(observation.settings_warnings))
        if observation.inventory is None:
            return
        self._gpus.labels(self._node).set(len(observation.inventory.gpus))
        self._instances.clear()
        for gpu in observation.inventory.gpus:
            for instance in gpu.instances:
                self._instances.labels(self._node, instance.profile).inc()
        if observation.status is not None:
            self.set_state(observation.status.state)

    def record_holders(self, inventory: Inventory) -> None:
        """Add to the last observation the pods to which kubelet allocated devices: these devices are held too."""
        snapshot = self.last
        if snapshot.inventory is not None and snapshot.inventory.fingerprint == inventory.fingerprint:
            self._has_pod_holders = True
            self.last = msgspec.structs.replace(snapshot, inventory=inventory)

    def _snapshot(self, observation: Observation) -> NodeSnapshot:
        """Return the snapshot for the metrics page, with the request and its blockers."""
        desired = observation.request.desired if observation.request is not None else None
        blockers = observation.plan.blockers if observation.plan is not None else ()
        details = self._details(observation.inventory, observation.now, rules(blockers), len(observation.unhealthy))
        return take_snapshot(self._node, self._with_pods(observation.inventory), desired, details)

    def _with_pods(self, inventory: Inventory | None) -> Inventory | None:
        """Return the inventory with the pods of kubelet's last answer, so that holders do not flap until the next."""
        previous = self.last.inventory
        same = inventory and previous and self._has_pod_holders and previous.fingerprint == inventory.fingerprint
        return previous if same else inventory
