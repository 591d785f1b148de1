"""Observations of the agent on a node for VMs: pods that have vGPUs, and where its driver is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.errors import NoDriverError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.objects import ConfigMap, Node, ObjectMeta
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks
from aliquot.kubernetes.gpu.managed_label import VGPU
from aliquot.kubernetes.label_agent.agent import decision, steps
from aliquot.kubernetes.label_agent.agent.agent_node import AgentNode
from aliquot.kubernetes.label_agent.agent.document_builder import build_document
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.observer import Observer
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.node_agent.own_node import OwnNode
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from support.vgpufactory import gpu, having, kind, node

FOUR = kind("NVIDIA A2", "4Q")
TWO_VGPUS = node(having(gpu("NVIDIA A2"), (FOUR, 0), (FOUR, 1)))


class Hardware:
    """GPUs that answer, or no driver."""

    unhealthy: frozenset[str] = frozenset()

    def __init__(self, inventory: Inventory | None) -> None:
        self.inventory = inventory

    async def read(self) -> tuple[Inventory, Facts]:
        if self.inventory is None:
            raise NoDriverError("no driver")
        return self.inventory, Facts("580.1", (13, 0), ())


def observe(folder: Path, inventory: Inventory | None, *uses: PodDeviceUse, effective: str = "") -> Observation:
    """Observe a node that requests A2-8Q, whose kubelet lists ``uses``. ``effective`` are the controller's settings."""

    async def listed() -> Sequence[PodDeviceUse]:
        return uses

    async def living(uses: Sequence[PodDeviceUse]) -> Sequence[PodDeviceUse]:
        return uses

    async def boot() -> str:
        return "boot-1"

    informer = NodeInformer(cast(Api, None), OwnNode("gpu-1"), "ns", lambda: None)
    informer.nodes.apply(FullList((Node(metadata=ObjectMeta(name="gpu-1", labels={VGPU.name: "A2-8Q"})),)))
    informer.follow = lambda config_maps: None  # type: ignore[method-assign]
    informer.living_uses = living  # type: ignore[method-assign]
    for name in (names.SETTINGS_MAP, names.EFFECTIVE_MAP, VGPU.default_map):
        informer.followed_maps[name] = informer._config_map_informer(name)
        informer.followed_maps[name].apply(FullList(()))
    if effective:
        named = ObjectMeta(name=names.EFFECTIVE_MAP)
        settings = ConfigMap(metadata=named, data={names.SETTINGS_KEY: f"version: aliquot/v1\n{effective}"})
        informer.followed_maps[names.EFFECTIVE_MAP].apply(FullList((settings,)))
    parts = AgentNode(informer, cast(GpuWorker, Hardware(inventory)), AgentStateFile(str(folder)))
    return asyncio.run(Observer(parts, AgentSetup("gpu-1", managed=VGPU), listed, boot).observe(AgentMemory()))


def test_a_vgpu_that_kubelet_gave_to_a_launcher_is_held_before_its_vm_has_started(tmp_path: Path) -> None:
    free = observe(tmp_path, TWO_VGPUS)
    assert free.plan is not None
    assert (free.plan.destroyed, free.plan.created, free.plan.blocked) == (2, 2, False)
    assert free.prediction is None, "labels and resources are not ours"
    given = PodDeviceUse("vms", "virt-launcher-desktop", "compute", (TWO_VGPUS.gpus[0].vgpus[1].uuid,))
    held = observe(tmp_path, TWO_VGPUS, given)
    step = decision.decide(held, AgentMemory(published=held.key))
    assert isinstance(step, steps.ReportStatus)
    assert (step.status.state, step.status.reason) == ("failed", "Held")
    assert "pod vms/virt-launcher-desktop" in step.status.message


def test_the_document_says_that_another_label_is_followed(tmp_path: Path) -> None:
    found = build_document(observe(tmp_path, TWO_VGPUS), (), "ns/pod", LastUsage(), ())
    assert found is not None
    assert (found.label, found.for_vms, found.manages) == ("A2-8Q", True, True)


def test_without_a_driver_the_next_command_shows_the_pods_that_bring_it(tmp_path: Path) -> None:
    failure = observe(tmp_path, None).failure
    assert failure is not None
    assert (failure.reason, failure.next_step) == (
        "NoDriver",
        "kubectl get pods -A -l app=nvidia-vgpu-manager-daemonset -o wide",
    )


def test_a_label_that_is_left_to_another_manager_is_logged_with_the_place_that_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    observe(tmp_path, TWO_VGPUS)
    assert not caplog.messages
    observe(tmp_path, TWO_VGPUS, effective="vgpu: {enabled: false}")
    assert caplog.messages == [
        "the label nvidia.com/vgpu.config is not applied on this node: vgpu.enabled is false in ConfigMap "
        "aliquot-effective | next: kubectl -n ns get configmap aliquot-effective -o yaml"
    ]


def test_a_failure_of_the_default_config_says_that_the_node_has_no_label(tmp_path: Path) -> None:
    found = observe(tmp_path, TWO_VGPUS)
    assert found.remarks == ()
    unlabelled = msgspec.structs.replace(found, marks=NodeMarks(), label="A2-8")
    assert unlabelled.remarks == ("the node has no label nvidia.com/vgpu.config: 'A2-8' is the default config",)
