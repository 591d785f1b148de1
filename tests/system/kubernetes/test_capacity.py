"""``aliquot capacity`` against an API server, with VMs that start, move, wait and stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import CLUSTER_LABEL
from support.cluster import Cluster
from support.kubevirt.objects import machine, machines
from support.kubevirt.players import VmCluster

Q, A = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A"
SENT = '{"vGPURequests":[{"name":"provisioned","deviceName":"nvidia.com/NVIDIA_A2-4Q"}]}'


class Reported(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.out)


class Bed:
    """Two nodes with vGPUs, and the commands of their administrator."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster, self._capsys = cluster, capsys
        self.environment = VmCluster(cluster)
        self.environment.install({"mediatedDevices": [_entry(resource) for resource in (Q, A)]})
        for name, amounts in (("n1", {Q: "2"}), ("n2", {Q: "1", A: "1"})):
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            media = {"Content-Type": "application/strategic-merge-patch+json"}
            cluster.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, media)

    def type(self, *words: str) -> Reported:
        code = main(["capacity", "--kubeconfig", str(self.cluster.kubeconfig()), *words])
        answer = self._capsys.readouterr()
        return Reported(code, answer.out, answer.err)

    def start(self, name: str, *gpus: str, node: str = "", labels: dict[str, str] | None = None) -> None:
        """Create a VM, and its instance on a node, as virt-controller writes them."""
        body = machine(name, gpus)
        body["metadata"] |= {"labels": labels or {}}
        made = self.cluster.must("POST", machines("default"), body)
        spec = made["spec"]["template"]["spec"]
        meta = {"name": name, "labels": labels or {}}
        instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta, "spec": spec}
        instance["status"] = {"phase": "Running" if node else "Scheduling"} | ({"nodeName": node} if node else {})
        self.cluster.must("POST", "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances", instance)


def _entry(resource: str) -> dict[str, Any]:
    selector = resource.removeprefix("nvidia.com/").replace("_", " ", 1)
    return {"mdevNameSelector": selector, "resourceName": resource, "externalResourceProvider": True}


@pytest.fixture
def bed(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Iterator[Bed]:
    made = Bed(cluster, capsys)
    yield made
    made.environment.close()


def test_what_there_is_who_has_it_and_who_waits(bed: Bed) -> None:
    bed.start("runs", Q, node="n1")
    bed.start("waits", A)
    bed.environment.create("stopped", [Q], strategy="Halted")
    reported = bed.type()
    assert (reported.code, reported.err) == (0, "")
    assert [line.split() for line in reported.out.splitlines()] == [
        ["RESOURCE", "TOTAL", "USABLE", "ALLOCATED", "WAITING", "ALLOCATABLE"],
        [A, "1", "1", "0", "1", "0"],
        ["n2", "1", "1", "0", "1"],
        [Q, "3", "3", "1", "0", "2"],
        ["n1", "2", "2", "1", "1"],
        ["n2", "1", "1", "0", "1"],
        ["default/runs", "has", "1", "of", Q, "on", "n1"],
        ["default/waits", "waits", "for", "1", "of", A],
        ["default/stopped", "is", "stopped,", "wants", "1", "of", Q],
    ]


def test_the_same_for_programs(bed: Bed) -> None:
    bed.start("runs", Q, node="n1")
    document = bed.type("-o", "json").document
    assert {each["resource"]: each["allocatable"] for each in document["resources"]} == {A: 1, Q: 2}
    assert document["running"] == [{"namespace": "default", "name": "runs", "node": "n1", "devices": {Q: 1}}]
    assert [each["resource"] for each in bed.type(A, "-o", "json").document["resources"]] == [A]


def test_a_vm_whose_gpu_comes_from_a_claim_is_counted(bed: Bed) -> None:
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"}}
    exactly = {"deviceClassName": "vgpu.aliquot.dev", "allocationMode": "ExactCount", "count": 1}
    claim["spec"] = {"devices": {"requests": [{"name": "vgpu", "exactly": exactly}]}}
    bed.cluster.must("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
    for name in ("one", "two"):
        body = machine(name, [])
        spec = body["spec"]["template"]["spec"]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
        spec["domain"]["devices"]["gpus"] = [{"name": "g", "claimName": "gpu", "requestName": "vgpu"}]
        bed.cluster.must("POST", machines("default"), body)
    reported = bed.type("vgpu.aliquot.dev")
    assert reported.out.splitlines()[-2:] == [
        "vgpu.aliquot.dev          0        1",
        "default/one and default/two wait for 1 of vgpu.aliquot.dev (claim shared)",
    ]
    (claimed,) = bed.type("-o", "json").document["claimed"]
    assert (claimed["vms"], claimed["state"]) == (["one", "two"], "pending")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--request", Q), 0),
        (("--request", f"{Q}:2"), 0),
        (("--request", f"{Q}:3"), 20),
        (("--request", Q, "--request", A), 0),
        (("--request", f"{Q}:2", "--request", A), 20),
        (("--request", Q, "--machines", "3"), 0),
        (("--request", Q, "--machines", "4"), 20),
        (("--vgpu-info", SENT, "--cluster", "blue", "--machines", "3"), 0),
        (("--request", "nvidia.com/NVIDIA_L40S-12A"), 20),
    ],
)
def test_whether_more_machines_fit(bed: Bed, words: tuple[str, ...], code: int) -> None:
    reported = bed.type(*words)
    assert reported.code == code, reported.err
    assert (reported.out == "it fits\n") is (code == 0)
    assert ("next     aliquot capacity" in reported.err) is (code == 20)
    answer = bed.type(*words, "-o", "json")
    assert (answer.code, answer.document["fits"]) == (code, code == 0)


def test_machines_that_a_cluster_has_need_no_second_vgpu(bed: Bed) -> None:
    # harvester#10455: with three devices and two running VMs, three VMs are one more, not three more.
    for n, node in enumerate(("n1", "n2")):
        bed.start(f"blue-{n}", Q, node=node, labels={CLUSTER_LABEL: "blue"})
    asked = ("--vgpu-info", SENT, "--machines", "3", "--cluster")
    assert bed.type(*asked, "blue").code == 0
    reported = bed.type(*asked, "green")
    assert reported.code == 20
    assert f"3 of {Q} are requested, 1 can still be allocated (3 in the cluster, 2 allocated)" in reported.err


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (("nvidia.com/NVIDIA_A2-4X",), 20, "this cluster has nvidia.com/NVIDIA_A2-4Q"),
        (("--request", "A2-4Q"), 2, "A2-4Q is not RESOURCE"),
        (("--request", f"{Q}:x"), 2, "is not RESOURCE or RESOURCE:COUNT"),
        (("--request", f"{Q}:0"), 2, "is not RESOURCE or RESOURCE:COUNT"),
        (("--request", "intel.com/qat:1"), 2, "is not RESOURCE or RESOURCE:COUNT"),
        (("--machines", "3"), 2, "--machines and --cluster need the devices of a VM"),
        (("--vgpu-info", "{"), 2, "vgpuInfo cannot be read"),
        (("--request", Q, "--machines", "-1"), 2, "-1 machines"),
        (("--request", Q, "--machines", "many"), 2, "many"),
    ],
)
def test_bad_input_is_reported_with_what_is_right(bed: Bed, words: tuple[str, ...], code: int, output: str) -> None:
    reported = bed.type(*words)
    assert (reported.code, reported.out) == (code, "")
    assert output in reported.err
    assert "Traceback" not in reported.err


def test_a_cluster_without_kubevirt_has_nothing_to_show(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "--kubeconfig", str(cluster.kubeconfig())]) == 0
    assert capsys.readouterr().out.startswith("no GPU or vGPU for virtual machines")


def test_a_user_without_the_rights_learns_which(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    config = bed.cluster.kubeconfig("default", "nobody")
    assert main(["capacity", "--kubeconfig", str(config)]) == 20
    assert "lacks permission to list nodes" in capsys.readouterr().err


def test_an_api_server_that_is_unavailable(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(bed.cluster.kubeconfig())
    with bed.cluster.unavailable():
        assert main(["capacity", "--kubeconfig", config]) == 20
    assert "did not answer" in capsys.readouterr().err
