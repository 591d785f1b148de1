"""A hostile document of one node cannot affect a page that shows all nodes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from aliquot.core.model.plan import Drift, DriftInstance, Policy
from aliquot.core.model.usage import Usage
from aliquot.core.planner.plan import plan
from aliquot.dashboard.change_requests import PartitionGpu, UseConfig
from aliquot.dashboard.cluster import cluster_cache as views
from aliquot.dashboard.cluster import executor
from aliquot.dashboard.cluster import previews as previewing
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.cluster.desired_state import NodeChange
from aliquot.dashboard.cluster.node_views import NodeParts, inventory, usage
from aliquot.dashboard.cluster.outcome_watch import OutcomeTimeouts
from aliquot.dashboard.cluster.user_client import UserClients
from aliquot.dashboard.local import desired_state
from aliquot.dashboard.view_models import Person
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names, node_document
from aliquot.kubernetes.gpu.node_document import NodeDocument
from system.dashboard import stub

replace = msgspec.structs.replace


def test_a_document_that_names_thousands_of_config_maps_is_no_thousand_watches() -> None:
    class Counting:
        def __init__(self) -> None:
            self.tasks = 0

        def create_task(self, work: Any) -> None:
            self.tasks += 1
            work.close()

    async def main() -> int:
        view = ClusterCache(cast(Api, object()), lambda names: None, lambda: None)
        counting = Counting()
        view._group = cast(asyncio.TaskGroup, counting)
        view.follow_maps(f"map-{n}" for n in range(10_000))
        return counting.tasks

    assert asyncio.run(main()) == views.MOST_MAPS


@pytest.mark.parametrize("placement", ["0:99999999", "-1:2", "4:0", "here"])
def test_a_drift_at_a_place_that_no_gpu_has_is_no_document(placement: str) -> None:
    for place, known in (("4:4", True), (placement, False)):
        drift = Drift("0000:07:00.0", "missing", "text", instance=DriftInstance("3g.20gb", place))
        text = node_document.encode(NodeDocument(stub.dgx("n1"), drift=(drift,)))
        assert (node_document.decode(text) is not None) == known


def test_gpus_of_both_agents_are_shown_with_both_their_tables() -> None:
    """The document of either agent contains the table of a GPU that the catalog does not know."""
    one = stub.dgx("n1")
    gpu = one.gpus[0]
    table = replace(one.family(gpu), name="read-from-the-driver")
    theirs = replace(gpu, pci="0000:f7:00.0", family=table.name)
    other = replace(one, gpus=(theirs,), tables=(table,))
    found = inventory(NodeParts("n1", None, NodeDocument(one), NodeDocument(other), None, "aliquot"))
    assert found is not None
    assert [found.family(g).name for g in found.gpus if g.pci == theirs.pci] == [table.name]


def test_what_gpus_are_used_for_is_reported_by_the_agent_whose_look_is_shown() -> None:
    both = stub.dgx("n1")
    one, two = both.gpus[:2]
    mine, theirs = Usage(one.pci), Usage(two.pci, memory_used_mib=7)
    first = NodeDocument(both, reserved=(two.pci,), usage=(mine, Usage(two.pci)))
    second = NodeDocument(both, usage=(Usage(one.pci, memory_used_mib=9), theirs))
    assert usage(NodeParts("n1", None, first, second, None, "aliquot")) == (mine, theirs)
    assert usage(NodeParts("n1", None, None, second, None, "aliquot")) == second.usage
    assert usage(NodeParts("n1", None, first, None, None, "aliquot")) == first.usage
    assert usage(NodeParts("n1", None, None, None, None, "aliquot")) == ()


def test_a_policy_that_another_change_had_set_for_its_own_time_does_not_come_back() -> None:
    """The second of two forced changes is previewed during the first one. The force policy must not stay."""
    inventory = stub.dgx("n1")
    reported = NodeDocument(inventory, label="was")
    node = Node(ObjectMeta(name="n1", labels={names.CONFIG_LABEL: "was"}))
    during = replace(node, metadata=replace(node.metadata, annotations={names.HOLDERS_ANNOTATION: "force"}))
    patches: list[dict[str, Any]] = []

    class Server:
        async def get(self, kind: object, name: str) -> Node:
            return node if not patches else during

        async def patch(self, kind: object, name: str, body: dict[str, Any]) -> Node:
            patches.append(body["metadata"]["annotations"])
            return during

    class Seen:
        def document(self, name: str, which: str) -> NodeDocument:
            return reported

    request = desired_state.partition(PartitionGpu(node="n1", gpu=inventory.gpus[0].pci, mig="empty"), inventory)
    made = NodeChange(
        "n1", plan(inventory, request, Policy(held="force")), inventory, "empty", previous_label="was", holders="force"
    )
    api = cast(Api, Server())
    cluster = executor.ClusterChangeContext(cast(ClusterCache, Seen()), cast(UserClients, None), OutcomeTimeouts())

    async def main() -> None:
        _, previous = await executor._write_desired(cluster, api, made, Person("anna"), lambda line: None)
        assert await executor._restore_policy(api, made, previous, Person("anna")) == ""

    asyncio.run(main())
    assert [each[names.HOLDERS_ANNOTATION] for each in patches] == ["force", None]
    answer = previewing._warnings(UseConfig(nodes=("n1",), config="empty", policy="force"), made)
    assert any(f"kubectl annotate node n1 {names.HOLDERS_ANNOTATION}-" in line for line in answer), made.plan.actions
