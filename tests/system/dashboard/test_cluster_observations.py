"""Freshness of a node, and the agent whose report is shown, from documents, labels and pods. Pure."""

from __future__ import annotations

import msgspec

from aliquot.dashboard.change_requests import UseConfig
from aliquot.dashboard.cluster.desired_state import node_change
from aliquot.dashboard.cluster.node_views import NodeParts, current, node_view
from aliquot.kubernetes.client.object_base import Condition, ObjectMeta
from aliquot.kubernetes.client.objects import Node, Pod, PodStatus
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.manifests.values import AGENT, CLAIMS, DEVICES, VGPUS
from system.dashboard import stub

replace = msgspec.structs.replace
NOW = 1_790_000_000.0
AT, AT_S = "2026-01-01T00:00:00Z", 1_767_225_600.0
BOTH = stub.dgx("n1")
ONE, TWO = replace(BOTH, gpus=BOTH.gpus[:1]), replace(BOTH, gpus=BOTH.gpus[:2])


def node(deploy: str | None) -> Node:
    labels = {names.DEPLOY_LABEL: deploy} if deploy is not None else {}
    return Node(ObjectMeta(name="n1", labels=labels))


def pod(app: str, ready: str = "True") -> Pod:
    meta = ObjectMeta(name=f"{app}-x", labels={"app": app})
    return Pod(meta, status=PodStatus(conditions=(Condition("Ready", ready),)))


def parts(gpus: NodeDocument | None, vgpus: NodeDocument | None, *pods: Pod, deploy: str | None = "true") -> NodeParts:
    return NodeParts("n1", node(deploy), gpus, vgpus, pods, "aliquot")


def reported(inventory: object = BOTH, **more: object) -> NodeDocument:
    return NodeDocument(inventory, at=AT, pod="aliquot/some-pod", **more)  # type: ignore[arg-type]


def test_gpus_that_cannot_be_read_are_old_though_node_and_agent_are_ready() -> None:
    bad = reported(read_error="no GPU driver answers | next: curl evil")
    for each in (
        parts(bad, None, pod(AGENT)),
        parts(None, bad, pod(DEVICES)),
        parts(reported(ONE), bad, pod(AGENT), pod(DEVICES)),
    ):
        found = node_view(each, NOW)
        assert found.error == "the GPUs of n1 cannot be read: no GPU driver answers"
        assert found.next_step == "kubectl describe node n1", "never what a node says to type"
        assert (found.observed_at, found.inventory is not None) == (AT_S, True)


def test_who_tells_of_no_gpu_that_is_shown_makes_nothing_old() -> None:
    """The MIG agent sees all GPUs, so it does not matter if the devices agent is replaced by pcidevices or missing."""
    for other, pods in ((reported(read_error="pcidevices works"), (pod(DEVICES),)), (reported(), ())):
        assert node_view(parts(reported(), other, pod(AGENT), *pods), NOW).error == ""
        unavailable = reported(reserved=(BOTH.gpus[0].pci,))
        assert node_view(parts(unavailable, other, pod(AGENT), *pods), NOW).error != "", (
            "the other agent reports that GPU"
        )


def test_a_node_that_was_handed_to_virtual_machines_is_what_their_agent_says() -> None:
    dead, live = reported(TWO), reported(ONE)
    for deploy in (None, "false"):
        handed = parts(dead, live, pod(DEVICES), deploy=deploy)
        found = node_view(handed, NOW)
        assert (found.error, found.observed_at, found.inventory) == ("", NOW, ONE)
        refused = node_change(UseConfig(nodes=("n1",), config="all-1g.5gb"), current(handed), [])
        assert isinstance(refused, ConfigFailure)
        assert refused.reason == "VirtualMachines"


def test_an_agent_that_was_not_removed_is_only_unavailable() -> None:
    dead, live = reported(TWO), reported(ONE)
    for each in (
        parts(dead, live, pod(DEVICES), deploy="true"),  # its pod is about to be created again
        parts(dead, live, pod(DEVICES), pod(AGENT, "False"), deploy=None),  # it is about to be deleted
        parts(dead, live, deploy=None),  # the other agent has no pod either
        parts(dead, None, pod(DEVICES), deploy=None),  # or has reported nothing yet
    ):
        found = node_view(each, NOW)
        assert (found.inventory, found.error[:29]) == (TWO, "the agent of n1 is not availa")
    by_hand = replace(dead, pod="")
    assert node_view(parts(by_hand, live, pod(DEVICES), deploy=None), NOW).inventory == TWO, "no pod to look for"


def test_the_pod_of_each_agent_that_reports_the_gpus_is_known() -> None:
    for app in (AGENT, CLAIMS, VGPUS):
        assert node_view(parts(reported(), None, pod(app), deploy=None), NOW).error == "", app


def test_a_node_whose_agent_follows_the_vgpu_label_shows_it_and_refuses_to_set_the_other() -> None:
    found = replace(parts(reported(for_vms=True, label="A2-4Q"), None, pod(VGPUS)), node=labeled())
    view = node_view(found, NOW)
    assert (view.config, view.state) == ("A2-4Q", "success")
    refused = node_change(UseConfig(nodes=("n1",), config="all-1g.5gb"), found, [])
    assert isinstance(refused, ConfigFailure)
    assert (refused.reason, refused.next_step) == (
        "NotOurs",
        "kubectl label node n1 nvidia.com/vgpu.config=NAME --overwrite",
    )


def labeled() -> Node:
    labels = {names.VGPU_CONFIG_LABEL: "A2-4Q", f"{names.VGPU_CONFIG_LABEL}.state": "success"}
    return Node(ObjectMeta(name="n1", labels=labels | {names.CONFIG_LABEL: "old", names.STATE_LABEL: "failed"}))
