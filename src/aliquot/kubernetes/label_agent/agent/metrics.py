"""The agent's figures, for Prometheus."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.metrics import instruments as make
from aliquot.metrics.agent_metrics import AgentTally
from aliquot.metrics.snapshot import Look, look, rules


class Tally(AgentTally):
    """What both agents count, and this node's GPUs and instances."""

    def __init__(self, node: str) -> None:
        super().__init__(node, "aliquot_agent", names.STATES)
        self._gpus = make.gauge("aliquot_agent_gpus", self.registry)
        self._instances = make.gauge("aliquot_agent_instances", self.registry)
        self._invalid = make.gauge("aliquot_agent_settings_invalid", self.registry)
        self._asked = False
        self.state("")

    def looked(self, o: Observation) -> None:
        """What was seen. Of GPUs that could not be read nothing is told."""
        self._saw(self._look(o), (o.plan,) if o.plan is not None else ())
        self._invalid.labels(self._node).set(len(o.unclear))
        if o.inventory is None:
            return
        self._gpus.labels(self._node).set(len(o.inventory.gpus))
        self._instances.clear()
        for gpu in o.inventory.gpus:
            for instance in gpu.instances:
                self._instances.labels(self._node, instance.profile).inc()
        if o.status is not None:
            self.state(o.status.state)

    def held(self, inventory: Inventory) -> None:
        """The GPUs of the last look with the pods that kubelet gave them to: what such a pod has is held, too."""
        now = self._last
        if now.inventory is not None and now.inventory.fingerprint == inventory.fingerprint:
            self._asked = True
            self._last = msgspec.structs.replace(now, inventory=inventory)

    def _look(self, o: Observation) -> Look:
        """The look as a page tells it: what is asked, and what stands in its way."""
        desired = o.wish.desired if o.wish is not None else None
        blockers = o.plan.blockers if o.plan is not None else ()
        seen = self._seen(o.inventory, o.now, rules(blockers), len(o.unhealthy))
        return look(self._node, self._with_pods(o.inventory), desired, seen)

    def _with_pods(self, inventory: Inventory | None) -> Inventory | None:
        """While kubelet is asked again, what it said last holds: a pod does not let go for a moment at each look."""
        former = self._last.inventory
        same = inventory and former and self._asked and former.fingerprint == inventory.fingerprint
        return former if same else inventory
