"""The choice of time-sliced vGPUs on a MIG-capable GPU: when its annotation may change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge, withdraws_device
from support.admissions import GPU, entry, environment, function, gpu, instance, machine, merged, mig, request, vgpu

VF = "n1-000008004"
SLICED, BACKED = "GRID A100X-10C", "GRID A100X-1-5C"
MIG_ON, A100 = mig({}, enabled=False), function(device="20b0")


def chosen(one: Any, value: str | None = "true") -> Any:
    return merged(one, metadata={"annotations": {names.SKIP_MIG_ANNOTATION: value} if value else {}})


def messages(old: Any, new: Any, **given: Any) -> str:
    return judge(request("sriovgpudevices", old, new), environment(**{"functions": [A100], **given})).message


def test_it_is_free_before_the_gpu_is_enabled_and_while_no_vgpu_is() -> None:
    assert messages(gpu(False), chosen(gpu(True))) == ""
    assert messages(gpu(True, VF), chosen(gpu(True, VF)), migs=[MIG_ON], vgpus=[vgpu("0000:08:00.4")]) == ""
    assert messages(chosen(gpu(True, VF)), gpu(True, VF), vgpus=[vgpu("0000:08:00.4")]) == ""


@pytest.mark.parametrize("to_sliced", [True, False])
def test_the_mode_does_not_change_under_an_enabled_vgpu(to_sliced: bool) -> None:
    one = gpu(True, VF)
    old, new = (one, chosen(one)) if to_sliced else (chosen(one), one)
    given: Any = {"vgpus": [vgpu("0000:08:00.4", BACKED if to_sliced else SLICED, True)]}
    given |= {"migs": [MIG_ON]} if to_sliced else {}
    refused = messages(old, new, **given)
    assert refused.startswith(f"cannot change the MIG mode of {GPU} while vGPU {VF} is enabled: disable it first")
    assert withdraws_device(request("sriovgpudevices", old, new)), "VMs are read again before it is allowed"


def test_the_refusal_names_the_vm_that_has_the_vgpu() -> None:
    resource = names.vgpu_resource(SLICED)
    annotation = {names.ALLOCATION_ANNOTATION: json.dumps({"gpus": {resource: [VF]}})}
    given: Any = {
        "vgpus": [vgpu("0000:08:00.4", SLICED, True)],
        "vms": [machine("vm1", entry("gpu", resource), annotations=annotation)],
        "instances": [instance("vm1", "n1", entry("gpu", resource))],
    }
    assert "in use with VM vm1 in namespace default" in messages(chosen(gpu(True, VF)), gpu(True, VF), **given)


def test_a_choice_that_changes_no_mode_is_free() -> None:
    sliced: Any = {"vgpus": [vgpu("0000:08:00.4", SLICED, True)]}
    assert messages(gpu(True, VF), chosen(gpu(True, VF)), **sliced) == "", "it is time-sliced already"
    backed: Any = {"vgpus": [vgpu("0000:08:00.4", BACKED, True)], "migs": [MIG_ON]}
    assert messages(chosen(gpu(True, VF)), gpu(True, VF), **backed) == "", "MIG mode is on already"
    other: Any = {"vgpus": [vgpu("0000:08:00.4", "NVIDIA A2-4Q", True)], "functions": [function()]}
    assert messages(chosen(gpu(True, VF)), gpu(True, VF), **other) == "", "an A2 has no MIG mode"
