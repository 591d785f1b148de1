"""Reviews of plugin parameters in the annotation of a VGPUDevice."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge
from support.admissions import entry, environment, instance, machine, merged, request, vgpu

A2_4Q, A2_4A, ADDRESS = "NVIDIA A2-4Q", "NVIDIA A2-4A", "0000:08:00.4"
RES_4Q = "nvidia.com/NVIDIA_A2-4Q"
ON, OFF = vgpu(ADDRESS, A2_4Q, True), vgpu(ADDRESS, types={A2_4Q: "nvidia-746", A2_4A: "nvidia-751"})
RUNNING: dict[str, Any] = {
    "vms": [machine("vm1", entry("n1-000008004", RES_4Q))],
    "instances": [instance("vm1", "n1", entry("n1-000008004", RES_4Q))],
}


def asked(one: Any, text: str) -> Any:
    return merged(one, metadata={"annotations": {names.PARAMETERS_ANNOTATION: text}})


def messages(old: Any, new: Any, **given: Any) -> str:
    return judge(request("vgpudevices", old, new), environment(**{"vgpus": [old] if old else [], **given})).message


def test_documented_switches_are_accepted() -> None:
    assert messages(OFF, asked(OFF, "enable_uvm=1,frame_rate_limiter=0")) == ""
    assert messages(ON, asked(ON, "")) == ""


@pytest.mark.parametrize("text", ["enable_uvw=1", "enable_uvm=yes", "enable_uvm"])
def test_others_are_refused_with_those_that_exist(text: str) -> None:
    refused = messages(OFF, asked(OFF, text))
    assert text in refused
    assert "disable_vnc, enable_debugging, enable_profiling, enable_uvm, frame_rate_limiter" in refused
    assert messages(None, asked(OFF, text)) == refused


def test_cuda_parameters_need_a_type_with_cuda_also_when_the_type_comes_later() -> None:
    asking = merged(asked(OFF, "enable_uvm=1"), spec={"enabled": True, "vGPUTypeName": A2_4A})
    refused = messages(asked(OFF, "enable_uvm=1"), asking)
    assert "enable_uvm needs CUDA in the guest, which NVIDIA A2-4A does not offer" in refused
    fine = merged(asking, spec={"vGPUTypeName": A2_4Q})
    assert messages(asked(OFF, "enable_uvm=1"), fine) == ""


def test_they_change_only_while_no_vm_runs_with_the_vgpu() -> None:
    refused = messages(ON, asked(ON, "enable_uvm=1"), **RUNNING)
    assert "n1-000008004 is in use with VM vm1 in namespace default" in refused
    assert messages(ON, asked(ON, "enable_uvm=1"), vms=RUNNING["vms"][:0]) == ""
    stopped = machine("vm1", entry("n1-000008004", RES_4Q), strategy="Halted")
    assert messages(ON, asked(ON, "enable_uvm=1"), vms=[stopped]) == ""


def test_an_old_annotation_hinders_no_other_change() -> None:
    old = asked(ON, "nonsense")
    assert messages(old, merged(old, metadata={"labels": {"a": "b"}}), **RUNNING) == ""
    assert messages(old, merged(old, spec={"enabled": False})) == ""
