"""Ways to evade the rules, or to make them fail for all users: each of them was once possible."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from aliquot.errors import ConfigError
from aliquot.kubernetes.client.admission_review import AdmissionRequest
from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge
from aliquot.kubernetes.virtual_machines.kubevirt import allocation, rancher
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.admission.review import mutate, validate
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import ClusterObservation, measure
from support.admissions import (
    GPU,
    claim,
    entry,
    environment,
    function,
    gpu,
    instance,
    machine,
    merged,
    mig,
    request,
    vgpu,
)

JSON = dict[str, Any]
A2_4Q, Q, GPU_UUID = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/GA107_A2"
V4 = "n1-000008004"
ON = vgpu("0000:08:00.4", A2_4Q, True)
OFF = merged(ON, spec={"enabled": False})
DEEP = "[" * 5000 + "]" * 5000
"""A text that an API server accepts in an annotation, and for which a decoder raises another error than for invalid
text.
"""


def refused(asked: AdmissionRequest, **given: Any) -> str:
    return judge(asked, environment(**given)).message


# -- deletion of all objects of a kind: the API server's reviews contain no names


def unnamed(kind: str, old: JSON) -> AdmissionRequest:
    return msgspec.structs.replace(request(kind, old, None), name="")


def test_a_used_vgpu_is_not_deleted_with_all_others_at_once() -> None:
    given: Any = {"vgpus": [ON], "vms": [machine("vm", entry(V4, Q))]}
    assert f"{V4} is in use with VM vm" in refused(unnamed("vgpudevices", ON), **given)


def test_a_used_claim_is_not_deleted_with_all_others_at_once() -> None:
    given: Any = {"functions": [function(resource=GPU_UUID)], "vms": [machine("vm", entry(GPU, GPU_UUID))]}
    assert f"{GPU} is in use with VM vm" in refused(unnamed("pcideviceclaims", claim()), claims=[claim()], **given)


def test_an_applied_layout_is_not_deleted_with_all_others_at_once() -> None:
    applied = mig({19: 1}, enabled=True, state=names.SYNCED, have={19: ["7"]})
    assert "disable it first" in refused(unnamed("migconfigurations", applied), gpus=[gpu()], migs=[applied])


# -- one tenant's VM does not block all administration


def reported(text: str) -> JSON:
    return machine("other", annotations={names.ALLOCATION_ANNOTATION: text})


def test_an_annotation_that_cannot_be_read_is_none() -> None:
    deep = f'{{"x":{DEEP}}}'
    assert refused(request("vgpudevices", ON, OFF), vgpus=[ON], vms=[reported(deep)]) == ""
    assert allocation.parse(deep) is None


def test_an_object_that_is_too_deep_is_reported_to_be() -> None:
    body = b'{"metadata":{"name":"vm"},"spec":{"x":' + DEEP.encode() + b"}}"
    with pytest.raises(ApiError, match="too deep"):
        decode(body, VirtualMachine)


def test_a_text_of_ranchers_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ConfigError, match="vgpuInfo cannot be read"):
        rancher.requests(f'{{"x":{DEEP}}}')


# -- any user can set labels


def test_a_vgpu_belongs_to_the_gpu_of_its_address_whatever_its_label_says() -> None:
    moved = merged(ON, metadata={"labels": {names.PARENT_LABEL: "n1-000026000"}})
    disabling = request("sriovgpudevices", gpu(True, V4), gpu(False, V4))
    assert f"while vGPU {V4} is enabled" in refused(disabling, gpus=[gpu(True, V4)], vgpus=[moved])
    remote = gpu(True, address="0000:26:00.0")
    assert refused(request("sriovgpudevices", remote, merged(remote, spec={"enabled": False})), vgpus=[moved]) == ""


# -- VMs that migrate


def moving(**state: Any) -> JSON:
    found = instance("vm", "n2", entry("gpu", Q))
    return merged(found, status={"migrationState": {"targetNode": "n1"} | state})


def test_a_vgpu_of_the_node_that_a_machine_moves_to_is_in_use() -> None:
    there = vgpu("0000:08:00.4", A2_4Q, True, node="n2")
    given: Any = {"vgpus": [ON, there], "nodes": [{"metadata": {"name": n}} for n in ("n1", "n2")]}
    disabling = request("vgpudevices", ON, OFF)
    assert "its device is not known yet" in refused(disabling, instances=[moving()], **given)
    assert refused(disabling, instances=[moving(completed=True)], **given) == ""


# -- VMs that have ended


@pytest.mark.parametrize(
    ("strategy", "phase", "over"),
    [
        ("Once", "Succeeded", True),
        ("Once", "Failed", True),
        ("Manual", "Succeeded", True),
        ("RerunOnFailure", "Succeeded", True),
        ("RerunOnFailure", "Failed", False),
        ("Always", "Succeeded", False),
    ],
)
def test_a_machine_that_will_not_start_again_keeps_no_vgpu(strategy: str, phase: str, *, over: bool) -> None:
    ended = [instance("vm", "n1", entry("gpu", Q), phase=phase)]
    stopped = merged(machine("vm", entry("gpu", Q), strategy=strategy), status={"created": True})
    message = refused(request("vgpudevices", ON, OFF), vgpus=[ON], vms=[stopped], instances=ended)
    assert ("is about to start" not in message) == over


# -- instances without a reviewed VM


def cluster(**given: Any) -> VmClusterState:
    """Build one A2 on n1 with one A2-4Q, enabled."""
    found = environment(vgpus=[ON], **given)
    machines, instances = tuple(found.vms.values()), tuple(found.instances.values())
    seen = ClusterObservation(tuple(found.nodes.values()), (*found.vgpus.values(),), vms=machines, instances=instances)
    return VmClusterState(found, frozenset(), measure(seen))


def owned(*resources: str, by: str = "vm") -> JSON:
    found = instance("vm", "", *(entry(f"gpu{n}", r) for n, r in enumerate(resources)), phase="Pending")
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": by}
    return merged(found, metadata={"ownerReferences": [owner]})


def started(one: JSON, **given: Any) -> str:
    return validate(request("virtualmachineinstances", None, one), cluster(**given)).message


def test_an_instance_that_says_it_is_some_machines_is_judged_itself() -> None:
    for behind in (machine("vm"), machine("vm", entry("gpu", Q), strategy="Halted")):
        assert "2 of nvidia.com/NVIDIA_A2-4Q are requested" in started(owned(Q, Q), vms=[behind])
    assert "2 of nvidia.com/NVIDIA_A2-4Q are requested" in started(owned(Q, Q, by="x"), vms=[machine("x")])


def test_a_machine_that_is_started_by_hand_is_judged_when_it_starts() -> None:
    # ``virtctl start`` changes nothing that admission of the VM sees.
    manual, other = machine("vm", entry("gpu", Q), strategy="Manual"), machine("other", entry("gpu", Q))
    assert started(owned(Q), vms=[manual]) == ""
    assert "0 can still be allocated" in started(owned(Q), vms=[manual, other])


def test_devices_of_an_instance_type_are_judged_when_the_machine_starts() -> None:
    # The VM does not name them. The review ignores capacity, because after a reboot the devices come a moment after the
    # VM.
    typed = merged(machine("vm"), spec={"instancetype": {"name": "gpus"}})
    assert "not found" in started(owned("nvidia.com/NVIDIA_A2-4X"), vms=[typed])
    assert started(owned(Q, Q), vms=[typed]) == ""


# -- the agents' own writes to VMs


def test_an_agents_word_on_an_allocation_is_left_as_it_is() -> None:
    # A filled-in value would be refused: an agent may rename devices, and change nothing else.
    agent = "system:serviceaccount:gpu-operator:aliquot-devices"
    both = [entry("a", Q), entry("b", Q)]
    old = machine("vm", *both, strategy="Halted")
    new = merged(old, metadata={"annotations": {names.ALLOCATION_ANNOTATION: "{}"}})
    for user, patched in (("alice", True), (agent, False)):
        asked = request("virtualmachines", old, new, user=user)
        assert bool(mutate(asked, cluster(accounts=[agent])).patches) == patched


def test_a_copied_machine_does_not_hold_the_devices_of_the_original() -> None:
    allocated = {names.ALLOCATION_ANNOTATION: json.dumps({"gpus": {Q: [V4]}})}
    copy = machine("copy", entry("gpu", Q), annotations=allocated)
    patch = mutate(request("virtualmachines", None, copy), cluster()).patches
    assert [each["path"] for each in patch] == ["/metadata/annotations/harvesterhci.io~1deviceAllocationDetails"]
    assert V4 not in str(patch)
