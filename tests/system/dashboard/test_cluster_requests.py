"""Plans for a node of a cluster, from the document of its agent. Pure."""

from __future__ import annotations

from typing import cast

import pytest

from aliquot.core.config.settings import POD_POLICIES, PodPolicy
from aliquot.core.model.actions import Destroy
from aliquot.core.model.claims import Claim, with_claims
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import HELD_POLICIES, HeldPolicy
from aliquot.dashboard.change_requests import FitInstance, PartitionGpu, UseConfig
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.cluster.desired_state import Configs, NodeChange, node_change
from aliquot.dashboard.cluster.node_views import NodeParts
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.node_document import DocumentSource, NodeDocument
from support.factory import inventory, with_instances

NODE = "gpu-1"


def parts(found: Inventory, label: str = "", policy: PodPolicy = "refuse") -> NodeParts:
    labels = {names.CONFIG_LABEL: label} if label else {}
    node = Node(metadata=ObjectMeta(name=NODE, labels=labels))
    return NodeParts(NODE, node, NodeDocument(found, label=label, holders=policy), None, None, "gpu-operator")


def taken(*instances: str, by: int | None = 0) -> Inventory:
    """Build a GPU with these instances. A process holds the instance at this index, or the whole GPU if None."""
    found = with_instances(inventory("a100-sxm4-40gb"), 0, *instances)
    gpu = found.gpus[0]
    device = gpu.uuid if by is None else gpu.instances[by].compute_instances[0].uuid
    return with_claims(found, [Claim(Holder("process", "4711", "python3"), (device,))])


def there(found: NodeChange | ConfigFailure) -> NodeChange:
    assert isinstance(found, NodeChange), found
    return found


@pytest.mark.parametrize("own", POD_POLICIES)
@pytest.mark.parametrize("policy", HELD_POLICIES)
def test_a_cut_over_a_holder_is_refused_or_planned_as_when_it_has_left(policy: HeldPolicy, own: PodPolicy) -> None:
    found = taken("3g.20gb@0", "3g.20gb@4")
    gpu = found.gpus[0].pci
    made = there(
        node_change(PartitionGpu(node=NODE, gpu=gpu, mig="7g.40gb", policy=policy), parts(found, policy=own), ())
    )
    if policy == own == "refuse":
        assert [b.rule for b in made.plan.blockers] == ["HELD"]
        return
    assert not made.plan.blocked
    assert "7g.40gb" in made.text
    assert made.label.startswith(names.OWN_PREFIX)
    assert made.holders == ("" if policy == "refuse" else policy)


@pytest.mark.parametrize("policy", HELD_POLICIES)
def test_mig_is_switched_off_under_a_process_that_has_the_gpu_open(policy: HeldPolicy) -> None:
    found = taken("3g.20gb@0", by=None)
    made = there(
        node_change(PartitionGpu(node=NODE, gpu=found.gpus[0].pci, mig="disabled", policy=policy), parts(found), ())
    )
    assert made.plan.blocked == (policy == "refuse")
    assert made.plan.blocked or made.text


@pytest.mark.parametrize("policy", HELD_POLICIES)
def test_room_is_made_beside_a_holder_whatever_the_policy(policy: HeldPolicy) -> None:
    found = taken("1g.5gb@0", "1g.5gb@4", by=1)
    made = there(
        node_change(FitInstance(node=NODE, gpu=found.gpus[0].pci, profile="4g.20gb", policy=policy), parts(found), ())
    )
    assert not made.plan.blocked
    assert "4g.20gb" in made.text
    assert [a.instance for a in made.plan.actions if isinstance(a, Destroy)] == [1]
    assert made.holders == ""


@pytest.mark.parametrize("policy", HELD_POLICIES)
def test_room_on_a_gpu_that_a_process_has_open_is_made_when_it_has_left(policy: HeldPolicy) -> None:
    plain = inventory("a100-sxm4-40gb")
    found = with_claims(plain, [Claim(Holder("process", "4711", "python3"), (plain.gpus[0].uuid,))])
    made = there(
        node_change(FitInstance(node=NODE, gpu=found.gpus[0].pci, profile="4g.20gb", policy=policy), parts(found), ())
    )
    assert made.plan.blocked == (policy == "refuse")
    assert ("4g.20gb" in made.text) == (policy != "refuse")


def test_a_cut_that_is_asked_again_is_a_new_ask() -> None:
    found = with_instances(inventory("a100-sxm4-40gb"), 0, "3g.20gb@0")
    ask = PartitionGpu(node=NODE, gpu=found.gpus[0].pci, mig="7g.40gb")
    first = there(node_change(ask, parts(found, "all-balanced"), ()))
    assert not first.repair
    again = there(node_change(ask, parts(found, first.label), ()))
    assert (again.label, again.repair) == (first.label, True)


def test_configs_that_the_page_cannot_see_are_reported_and_not_denied() -> None:
    """A config file that is too large for the node's document is known only to the agent."""

    class Seen:
        def text(self, name: str) -> str:
            return "version: v1\nmig-configs:\n  seen:\n  - {devices: all, mig-enabled: false}\n"

        def follow_maps(self, names: tuple[str, ...]) -> None:
            pass

    found = inventory("a100-sxm4-40gb")
    configs = Configs(cast(ClusterCache, Seen()), "ns")
    alone = configs.sources(NODE, NodeDocument(found, sources=(DocumentSource("/etc/mig/config.yaml"),)))
    ask = UseConfig(nodes=(NODE,), config="train")
    reported = node_change(ask, parts(found), alone)
    assert isinstance(reported, ConfigFailure)
    assert reported.message.startswith("/etc/mig/config.yaml is not available: it is too large to be published")
    both = configs.sources(
        NODE, NodeDocument(found, sources=(DocumentSource("/etc/mig/config.yaml"), DocumentSource("ConfigMap ns/more")))
    )
    reported = node_change(ask, parts(found), both)
    assert isinstance(reported, ConfigFailure)
    assert reported.reason == "UnknownConfig"
    assert any("is not available" in line for line in reported.details)
