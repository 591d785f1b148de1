"""What a document of one node can do to a page that shows them all: nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from aliquot.core.model.plan import Policy
from aliquot.core.model.usage import Usage
from aliquot.core.planner.plan import plan
from aliquot.dashboard.change_requests import Cut, UseConfig
from aliquot.dashboard.cluster import cluster_cache as views
from aliquot.dashboard.cluster import executor as doing
from aliquot.dashboard.cluster import previews as previewing
from aliquot.dashboard.cluster.cluster_cache import View
from aliquot.dashboard.cluster.desired_state import Way
from aliquot.dashboard.cluster.node_views import Parts, inventory, usage
from aliquot.dashboard.cluster.source import Cluster
from aliquot.dashboard.local import desired_state as wishes
from aliquot.dashboard.view_models import Person
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_document import Document
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
        view = View(cast(Api, object()), lambda names: None, lambda: None)
        counting = Counting()
        view._group = cast(asyncio.TaskGroup, counting)
        view.want(f"map-{n}" for n in range(10_000))
        return counting.tasks

    assert asyncio.run(main()) == views.MOST_MAPS


def test_gpus_of_both_agents_are_shown_with_both_their_tables() -> None:
    """A GPU that the catalog does not know brings its table along, in either agent's document."""
    one = stub.dgx("n1")
    gpu = one.gpus[0]
    table = replace(one.family(gpu), name="read-from-the-driver")
    theirs = replace(gpu, pci="0000:f7:00.0", family=table.name)
    other = replace(one, gpus=(theirs,), tables=(table,))
    found = inventory(Parts("n1", None, Document(one), Document(other), None, "aliquot"))
    assert found is not None
    assert [found.family(g).name for g in found.gpus if g.pci == theirs.pci] == [table.name]


def test_what_gpus_are_used_for_is_told_by_the_agent_whose_look_is_shown() -> None:
    both = stub.dgx("n1")
    one, two = both.gpus[:2]
    mine, theirs = Usage(one.pci), Usage(two.pci, memory_used_mib=7)
    first = Document(both, reserved=(two.pci,), usage=(mine, Usage(two.pci)))
    second = Document(both, usage=(Usage(one.pci, memory_used_mib=9), theirs))
    assert usage(Parts("n1", None, first, second, None, "aliquot")) == (mine, theirs)
    assert usage(Parts("n1", None, None, second, None, "aliquot")) == second.usage
    assert usage(Parts("n1", None, first, None, None, "aliquot")) == first.usage
    assert usage(Parts("n1", None, None, None, None, "aliquot")) == ()


def test_a_policy_that_another_change_had_set_for_its_own_time_does_not_come_back() -> None:
    """Two changes by force, the second one looked at while the first was under way: force must not stay for ever."""
    inventory = stub.dgx("n1")
    told = Document(inventory, label="was")
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
        def document(self, name: str, which: str) -> Document:
            return told

    class Page:
        view = Seen()

    wish = wishes.cut(Cut(node="n1", gpu=inventory.gpus[0].pci, mig="empty"), inventory)
    made = Way("n1", plan(inventory, wish, Policy(held="force")), inventory, "empty", was="was", holders="force")
    api, page = cast(Api, Server()), cast(Cluster, Page())

    async def main() -> None:
        _, former = await doing._wish(page, api, made, Person("anna"), lambda line: None)
        assert await doing._give_back(api, made, former, Person("anna")) == ""

    asyncio.run(main())
    assert [each[names.HOLDERS_ANNOTATION] for each in patches] == ["force", None]
    said = previewing._warnings(UseConfig(nodes=("n1",), config="empty", policy="force"), made)
    assert any(f"kubectl annotate node n1 {names.HOLDERS_ANNOTATION}-" in line for line in said), made.plan.actions
