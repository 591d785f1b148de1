"""Sentences of Harvester's documents that no other test states: each is small, on a simulated node in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.cli.tables.agent import AGENT
from aliquot.kubernetes.kinds.harvester_names import PARENT_LABEL
from aliquot.kubernetes.virtual_machines.agent.options import CHECK_S
from support.admissions import entry, machine, vgpu
from system.harvester.bench import A2, A100, carry, enabled, give_up, layout, machine_refused, offering, types
from system.harvester.site import MACHINES
from system.kubernetes.agent_rights import manifests
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import ready

SCAN_S, MIG_CHECK_S = 30, 300
"""The longest times between two observations that the documents name: of a node's devices, and of its MIG layouts."""


def test_a_gpu_without_mig_gets_no_migconfiguration(tmp_path: Path) -> None:
    """MIG design: only where the driver says that the GPU supports MIG."""
    assert enabled("a2:mdev", tmp_path / "a2", A2).store.of("MigConfiguration") == {}
    with_mig = enabled("a100-sxm4-40gb:mdev", tmp_path / "a100", A100)
    assert list(with_mig.store.of("MigConfiguration")) == [with_mig.name_of(A100)]


@pytest.mark.parametrize(
    ("template", "counts", "series"),
    [("a100-sxm4-40gb:mdev", {9: 1, 14: 1}, "GRID A100X"), ("h100-pcie:vfio", {9: 1, 14: 1}, "NVIDIA H100")],
)
def test_two_vms_share_a_gpu_that_is_partitioned(
    tmp_path: Path, template: str, counts: dict[int, int], series: str
) -> None:
    """MIG design: GPUs such as H100 and A100 are shared by several VMs. Each keeps its vGPU while it runs."""
    one = layout(enabled(template, tmp_path, A100), A100, counts)
    both = one.device(A100)["status"]["vfAddresses"][:2]
    for function, slices in zip(both, (3, 2), strict=True):
        name = next(each for each in sorted(types(one, function)) if each.startswith(f"{series}-{slices}-"))
        carry(one, function, name)
    assert sorted(one.live()) == sorted(both)
    for n, function in enumerate(both):
        device = one.vgpu(function)["status"]["uuid"] if ":mdev" in template else function
        one.control("vm-start", name=f"guest-{n}", devices=[device])
    for function in both:
        give_up(one, function)
        assert ready(one.vgpu(function)) == ("False", "Held")
    one.control("vm-stop", name="guest-0")
    one.settle()
    assert list(one.live()) == [both[1]], "the other VM keeps its own"


def test_a_node_is_observed_at_least_as_often_as_the_documents_say() -> None:
    """vGPU design: every 30 s. MIG design: every 5 minutes. Here one interval is for both."""
    (option,) = (each for each in AGENT.options if "--check-seconds" in each.names)
    assert option.default is not None
    assert float(option.default) == CHECK_S
    assert 0 < CHECK_S <= min(SCAN_S, MIG_CHECK_S)
    (agent,) = (each for each in manifests(MACHINES) if each["kind"] == "DaemonSet")
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert "--devices" in container["args"]
    assert not any(each.startswith("--check-seconds") for each in container["args"]), "the default is what runs"


def test_all_vgpus_of_a_gpu_are_found_by_its_label(tmp_path: Path) -> None:
    """vGPU design: users filter vGPUs by their parent GPU, also where a node has two."""
    one = enabled("a2:mdev*2", tmp_path, A2)
    (other,) = {body["spec"]["address"] for body in one.store.of("SRIOVGPUDevice").values()} - {A2}
    one.kubectl("SRIOVGPUDevice", one.name_of(other), enabled=True)
    for gpu in (A2, other):
        found = {
            body["spec"]["address"]
            for body in one.store.of("VGPUDevice").values()
            if body["metadata"]["labels"][PARENT_LABEL] == one.name_of(gpu)
        }
        assert found == set(one.device(gpu)["status"]["vfAddresses"])
        assert len(found) == 16


@pytest.mark.parametrize("board", ["A2", "A16"])
@pytest.mark.parametrize(("series", "accepted"), [("Q", True), ("A", False), ("B", False), ("C", False)])
def test_on_a2_and_a16_only_the_q_series_may_be_several(board: str, series: str, accepted: bool) -> None:
    """vGPU page, limitations: for instance on NVIDIA A2 and A16."""
    size = {"B": "2"}.get(series, "4")
    name = f"NVIDIA {board}-{size}{series}"
    resource = f"nvidia.com/{name.replace(' ', '_')}"
    made = [vgpu(f"0000:08:00.{n}", name, True) for n in (4, 5)]
    two = machine("vm", entry("a", resource), entry("b", resource))
    answer = machine_refused(two, vgpus=made, nodes=[offering("n1", **{resource: 2})])
    assert (answer == "") is accepted, answer
