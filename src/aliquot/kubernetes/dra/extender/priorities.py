"""The priorities of nodes from the cost of a pod on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot.kubernetes.dra.extender.demand import Demand
from aliquot.kubernetes.dra.extender.messages import MOST_PRIORITY
from aliquot.kubernetes.dra.extender.published_node import Cost, PublishedNode
from aliquot.kubernetes.dra.model.ranking import ScoreName


def node_priorities(
    nodes: Mapping[str, PublishedNode | None],
    demand: Demand,
    score: ScoreName,
    late: Callable[[], bool] = lambda: False,
) -> dict[str, int]:
    """Return a priority for each node: 10 for the lowest cost, one less for each higher one, and at least 1.

    It is 0 for a node where the pod does not fit, or that publishes nothing. Nodes of equal cost are equal, so that the
    scheduler's other plugins choose among them. Under ``first-fit`` the order of names decides instead. Raises
    TimeoutError once ``late`` returns True.
    """
    costs: dict[str, Cost] = {}
    for node, devices in nodes.items():
        if late():
            raise TimeoutError
        found = devices.cost(demand, score) if devices is not None else None
        if found is not None:
            costs[node] = found
    if score == "first-fit":
        ranks = {node: number for number, node in enumerate(sorted(costs, key=lambda node: (costs[node][0], node)))}
    else:
        order = {cost: number for number, cost in enumerate(sorted(set(costs.values())))}
        ranks = {node: order[cost] for node, cost in costs.items()}
    return {node: max(1, MOST_PRIORITY - ranks[node]) if node in ranks else 0 for node in nodes}
