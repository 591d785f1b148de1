"""Rules for Harvester's objects: what the original refuses, and what it admits although it cannot work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aliquot.kubernetes.client.admission_review import GARBAGE_COLLECTOR, AdmissionVerdict, review_response
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_layout as layout
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge, withdraws_device
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from support.admissions import (
    GPU,
    PF,
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

A2_4Q = "NVIDIA A2-4Q"
RES_4Q = "nvidia.com/NVIDIA_A2-4Q"
TYPES = {A2_4Q: "nvidia-746", "NVIDIA A2-8Q": "nvidia-747"}
A100 = function(device="20b0", resource="nvidia.com/A100")

OFF_004 = """ | next: kubectl patch vgpudevice n1-000008004 --type merge -p '{"spec":{"enabled":false}}'"""
NEXT = f"kubectl get vgpudevices -l harvesterhci.io/parentSRIOVGPUDevice={GPU}"


def messages(kind: str, old: Any, new: Any, **given: Any) -> str:
    user = given.pop("user", "alice")
    return judge(request(kind, old, new, user=user), environment(**given)).message


# -- MigConfiguration


def enabling(requested: dict[int, int], functions: Any = (A100,), **status: Any) -> str:
    old = mig({}, enabled=False, **status)
    return messages(
        "migconfigurations", old, merged(old, spec=mig(requested, enabled=True)["spec"]), functions=[*functions]
    )


def test_six_small_instances_and_one_with_media_are_accepted() -> None:
    assert enabling({19: 6, 20: 1}) == ""


@pytest.mark.parametrize("functions", [(A100,), ()], ids=["table", "no table"])
def test_eight_slices_are_refused_even_while_disabled(functions: Any) -> None:
    old = mig({}, enabled=False)
    new = merged(old, spec=mig({19: 7, 20: 1}, enabled=False)["spec"])
    assert "8 compute slices" in messages("migconfigurations", old, new, functions=[*functions])


def test_more_of_a_profile_than_the_gpu_has_is_refused_with_both_numbers() -> None:
    assert "3 x 3g.20gb requested, at most 2 fit" in enabling({9: 3})
    assert "3 of profile MIG 3g.20gb are requested, 2 fit" in enabling({9: 3}, functions=())


def test_a_layout_whose_sums_fit_but_whose_places_do_not_is_refused() -> None:
    # The sum of 4g + 2g + 1g is seven slices, and so is that of 3g + 3g + 1g, which do not fit: each 3g takes four
    # memory slices.
    assert enabling({5: 1, 14: 1, 19: 1}) == ""
    refused = enabling({9: 2, 19: 1})
    assert "cannot be placed together on this GPU" in refused
    assert "the nearest valid one: 1 x 3g.20gb, 1 x 2g.10gb, 1 x 1g.5gb" in refused


def test_what_others_made_by_hand_counts() -> None:
    # The numbers show a 3g.20gb in the low half: one more fits, a 4g does not.
    by_hand = mig({}, enabled=False, have={9: ["1"]})
    free = {19: 3, 20: 1, 15: 2, 14: 1, 9: 1, 5: 0, 0: 0}

    def ask(requested: dict[int, int]) -> str:
        for row in by_hand["status"]["profileStatus"]:
            row["available"] = free[row["id"]]
        new = merged(by_hand, spec=mig(requested, enabled=True)["spec"])
        return messages("migconfigurations", by_hand, new, functions=[A100])

    assert ask({9: 1}) == ""
    assert "1 of profile MIG 4g.20gb are requested, 0 can be created now" in ask({5: 1})
    assert "existing instances: MIG 3g.20gb 1" in ask({5: 1})
    assert "cannot be placed beside what is on the GPU now" in ask({14: 1, 15: 1, 19: 1})
    free[14] = 2  # no geometry has these numbers
    assert ask({9: 1}) == ""
    assert "cannot be placed beside" in ask({14: 1, 15: 2})


def test_the_states_of_a_family_are_all_of_them_once() -> None:
    states = [s for those in layout._layouts_by_capacity("a100-40gb").values() for s in those]
    assert len(states) == len(set(states)) == 2319


def test_a_synced_configuration_is_disabled_before_it_is_changed() -> None:
    for state in (names.SYNCED, names.OUT_OF_SYNC):
        old = mig({19: 1}, enabled=True, state=state, have={19: ["7"]})
        refused = messages("migconfigurations", old, merged(old, spec=mig({19: 2}, enabled=True)["spec"]))
        assert "must be disabled before its profileSpec is changed" in refused
    assert messages("migconfigurations", old, merged(old, spec={"enabled": False})) == ""


def test_a_configuration_that_failed_may_be_corrected() -> None:
    old = mig({19: 7, 20: 1}, enabled=True)
    new = merged(old, spec=mig({19: 6, 20: 1}, enabled=True)["spec"])
    assert messages("migconfigurations", old, new, functions=[A100]) == ""


def test_disabling_is_refused_while_a_vgpu_of_it_is_enabled() -> None:
    old = mig({19: 1}, enabled=True, state=names.SYNCED, have={19: ["7"]})
    new = merged(old, spec={"enabled": False})
    refused = messages("migconfigurations", old, new, vgpus=[vgpu("0000:08:00.4", "GRID A100-1-5C", True)])
    assert refused == f"cannot disable {GPU} while vGPU n1-000008004 is enabled: disable it first{OFF_004}"
    assert messages("migconfigurations", old, new, vgpus=[vgpu("0000:08:00.4")]) == ""


def test_a_layout_that_is_being_taken_back_is_waited_for() -> None:
    old = mig({19: 1}, enabled=False, state=names.SYNCED, have={19: ["7"]})
    refused = messages("migconfigurations", old, merged(old, spec=mig({19: 2}, enabled=True)["spec"]))
    assert "must be disabled before its profileSpec is changed, and that is still in progress" in refused
    assert refused.endswith(f"| next: kubectl wait migconfiguration/{GPU} --for jsonpath={{.status.status}}=disabled")


def test_a_profile_is_not_renamed() -> None:
    # The id counts: no program would read a request that is typed as a name.
    old = mig({}, enabled=False)
    rows = [{**row, "name": "MIG 1g.6gb"} if row["id"] == 19 else row for row in old["spec"]["profileSpec"]]
    refused = messages("migconfigurations", old, merged(old, spec={"profileSpec": rows}))
    assert "profile id 19 is MIG 1g.5gb, not MIG 1g.6gb" in refused


def test_another_gpus_profile_is_named_with_what_there_is() -> None:
    old = mig({}, enabled=False)
    odd = {"id": 77, "name": "MIG 9g.99gb", "requested": 1}
    new = merged(old, spec={"profileSpec": [*old["spec"]["profileSpec"], odd]})
    assert "this GPU has no profile MIG 9g.99gb (id 77): it has MIG 1g.5gb" in messages("migconfigurations", old, new)


def test_an_enabled_configuration_goes_with_its_gpu_alone() -> None:
    one = mig({19: 1}, enabled=True, state=names.SYNCED)
    assert "disable it first" in messages("migconfigurations", one, None, gpus=[gpu()])
    assert messages("migconfigurations", one, None, gpus=[gpu(False)]) == ""
    assert messages("migconfigurations", one, None, gpus=[gpu()], user=GARBAGE_COLLECTOR) == ""


# -- SRIOVGPUDevice


def test_a_gpu_is_not_disabled_while_any_vgpu_is_enabled_used_or_not() -> None:
    # The original refuses only vGPUs that a VM uses. The design document says enabled.
    old, vgpus = gpu(True, "n1-000008004"), [vgpu("0000:08:00.4", A2_4Q, True), vgpu("0000:08:00.5")]
    refused = messages("sriovgpudevices", old, gpu(False, "n1-000008004"), vgpus=vgpus)
    assert refused == f"cannot disable {GPU} while vGPU n1-000008004 is enabled: disable it first{OFF_004}"
    assert messages("sriovgpudevices", old, gpu(False, "n1-000008004"), vgpus=[vgpu("0000:08:00.4")]) == ""


def test_vgpus_that_lost_their_label_still_count() -> None:
    lost = vgpu("0000:08:00.4", A2_4Q, True)
    lost["metadata"]["labels"] = {}
    assert "n1-000008004 is enabled" in messages("sriovgpudevices", gpu(True), gpu(False), vgpus=[lost])


def test_a_new_object_about_nothing_is_let_in_with_a_warning() -> None:
    # After a restore its node and its GPU may still come, but a mistyped request would wait forever.
    found = judge(request("sriovgpudevices", None, gpu()), environment())
    assert (found.allowed, len(found.warnings)) == (True, 1)
    assert f"node n1 has no PCIDevice {GPU}" in found.warnings[0]
    assert found.warnings[0].endswith("| next: kubectl get pcidevices -l nodename=n1")
    (elsewhere,) = judge(request("sriovgpudevices", None, gpu()), environment(nodes=[])).warnings
    assert elsewhere.startswith("node n1 does not exist")
    assert judge(request("sriovgpudevices", None, gpu()), environment(functions=[function()])).warnings == ()


@pytest.mark.parametrize("plural", ["sriovgpudevices", "vgpudevices"])
def test_an_object_without_the_label_by_which_its_agent_watches_is_warned_about(plural: str) -> None:
    made = gpu() if plural == "sriovgpudevices" else vgpu("0000:08:00.4")
    bed = environment(functions=[function(), function("0000:08:00.4")])
    assert judge(request(plural, None, made), bed).warnings == ()
    bare = merged(made)
    del bare["metadata"]["labels"]["nodename"]
    (warning,) = judge(request(plural, None, bare), bed).warnings
    assert "has no label nodename=n1, by which its node's agent finds it" in warning
    assert warning.endswith(f"| next: kubectl label {plural[:-1]} {bare['metadata']['name']} nodename=n1")


def test_a_slot_is_about_its_gpu() -> None:
    slot = vgpu("0000:08:00.0/03")
    assert judge(request("vgpudevices", None, slot), environment(functions=[function()])).warnings == ()
    (warning,) = judge(request("vgpudevices", None, slot), environment()).warnings
    assert f"node n1 has no PCIDevice {GPU}" in warning


def test_a_gpu_that_is_claimed_is_not_enabled() -> None:
    refused = messages("sriovgpudevices", gpu(False), gpu(True), claims=[claim()])
    step = f" | next: kubectl delete pcideviceclaim {GPU}"
    assert refused == f"{GPU} is claimed for passthrough by alice: delete PCIDeviceClaim {GPU} first{step}"


def test_an_enabled_gpu_is_deleted_only_with_its_node() -> None:
    assert "disable the GPU first" in messages("sriovgpudevices", gpu(True), None)
    assert messages("sriovgpudevices", gpu(True), None, nodes=[]) == ""
    assert messages("sriovgpudevices", gpu(False), None) == ""


def test_the_loss_of_a_mig_layout_is_announced() -> None:
    found = judge(
        request("sriovgpudevices", gpu(True), gpu(False)),
        environment(migs=[mig({19: 1}, enabled=True, state="synced", have={19: ["7"]})]),
    )
    assert found.allowed
    assert found.warnings == (f"disabling also destroys the GPU instances of MigConfiguration {GPU}",)


def test_a_device_is_not_turned_into_another() -> None:
    moved = merged(gpu(True), spec={"address": "0000:09:00.0"})
    assert "cannot be changed" in messages("sriovgpudevices", gpu(True), moved)
    odd = merged(gpu(True), metadata={"name": "mine"})
    assert f"is named {GPU}, not mine" in messages("sriovgpudevices", None, odd)


# -- VGPUDevice


def test_a_vgpu_is_enabled_with_a_type_that_is_available() -> None:
    old = vgpu("0000:08:00.4", types=TYPES)
    ask = {"spec": {"enabled": True, "vGPUTypeName": A2_4Q}}
    assert messages("vgpudevices", old, merged(old, **ask), gpus=[gpu()]) == ""
    assert "vGPUTypeName cannot be empty: available are NVIDIA A2-4Q, NVIDIA A2-8Q" in messages(
        "vgpudevices", old, merged(old, spec={"enabled": True})
    )
    other = merged(old, spec={"enabled": True, "vGPUTypeName": "NVIDIA A2-16Q"})
    refused = messages("vgpudevices", old, other)
    assert refused == (
        "NVIDIA A2-16Q is not a valid profile for n1-000008004 now: available are NVIDIA A2-4Q, NVIDIA A2-8Q"
    )


def test_why_nothing_is_available_is_reported() -> None:
    old = vgpu("0000:08:00.4")
    old["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "the driver's pod is not ready"}]
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": A2_4Q})
    assert "nothing is available (the driver's pod is not ready)" in messages("vgpudevices", old, ask)
    old["status"]["conditions"][0]["message"] += " | next: kubectl get pods"
    assert messages("vgpudevices", old, ask).endswith("(the driver's pod is not ready) | next: kubectl get pods")


def test_where_mig_is_on_and_nothing_is_cut_the_way_is_reported() -> None:
    old = vgpu("0000:08:00.4")
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": "GRID A100-1-5C"})
    refused = messages("vgpudevices", old, ask, gpus=[gpu()], migs=[mig({}, enabled=False)])
    assert f"MIG is on, and {GPU} has no GPU instance" in refused
    assert refused.endswith(f"| next: kubectl edit migconfiguration {GPU}")


def test_a_full_gpu_is_reported_to_be_full_and_of_what() -> None:
    old, whole = vgpu("0000:08:00.5"), vgpu("0000:08:00.4", "NVIDIA A2-16Q", True)
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": A2_4Q})
    refused = messages("vgpudevices", old, ask, gpus=[gpu()], vgpus=[whole, old])
    assert f"nothing is available ({GPU} is full: NVIDIA A2-16Q on n1-000008004)" in refused
    assert refused.endswith(f"| next: kubectl get vgpudevices -l harvesterhci.io/parentSRIOVGPUDevice={GPU}")


def test_a_type_of_another_size_is_refused_with_what_it_does_not_fit_beside() -> None:
    old, there = vgpu("0000:08:00.5", types={A2_4Q: "nvidia-746"}), vgpu("0000:08:00.4", A2_4Q, True)
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": "NVIDIA A2-8Q"})
    refused = messages("vgpudevices", old, ask, gpus=[gpu()], vgpus=[there, old], functions=[function()])
    assert "available are NVIDIA A2-4Q; NVIDIA A2-8Q does not fit beside" in refused
    assert "(NVIDIA A2-4Q on n1-000008004)" in refused
    assert refused.endswith(f"| next: {NEXT}")


def test_two_users_in_the_same_second_do_not_both_get_what_fits_once() -> None:
    # The second user's availableTypes are older than the first user's request.
    old = vgpu("0000:08:00.5", types=TYPES)
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": A2_4Q})
    requested = vgpu("0000:08:00.4", "NVIDIA A2-8Q", True, made=False)
    refused = messages("vgpudevices", old, ask, vgpus=[requested, old], functions=[function()])
    why = f"{A2_4Q} does not fit beside what is enabled on {GPU} (NVIDIA A2-8Q on n1-000008004)"
    assert refused == f"{why} | next: {NEXT}"
    four = [vgpu(f"0000:08:00.{n}", A2_4Q, True) for n in (4, 6, 7)]
    assert messages("vgpudevices", old, ask, vgpus=four, functions=[function()]) == ""
    full = [*four, vgpu("0000:08:01.0", A2_4Q, True)]
    assert "does not fit" in messages("vgpudevices", old, ask, vgpus=full, functions=[function()])


def test_a_mig_backed_vgpu_needs_an_instance_of_its_own() -> None:
    types = {"GRID A100X-1-5C": "nvidia-474"}
    old = vgpu("0000:08:00.5", types=types)
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": "GRID A100X-1-5C"})
    layout_gpu, one = function(device="20b0"), mig({19: 1}, enabled=True, state="synced", have={19: ["7"]})
    first = vgpu("0000:08:00.4", "GRID A100X-1-5C", True, made=False)
    assert messages("vgpudevices", old, ask, functions=[layout_gpu], migs=[one]) == ""
    refused = messages("vgpudevices", old, ask, functions=[layout_gpu], migs=[one], vgpus=[first])
    assert "does not fit beside what is enabled" in refused


def test_a_type_is_not_changed_under_way() -> None:
    # The original accepts it and does nothing.
    old = vgpu("0000:08:00.4", A2_4Q, True)
    refused = messages("vgpudevices", old, merged(old, spec={"vGPUTypeName": "NVIDIA A2-8Q"}))
    assert refused == f"n1-000008004 is enabled as {A2_4Q}: disable it before its type is changed{OFF_004}"


def test_a_gpu_with_vgpus_of_a_pool_is_kept_by_the_pool() -> None:
    """To disable its vGPUs would not help: the pool enables them again."""
    pooled = merged(vgpu("0000:08:00.4", A2_4Q, enabled=True), metadata={"labels": {"aliquot.dev/pool": "desks"}})
    alone = vgpu("0000:08:00.5", A2_4Q, enabled=True)
    refused = messages("sriovgpudevices", gpu(), gpu(False), gpus=[gpu()], vgpus=[pooled, alone])
    assert "vGPUs n1-000008004, n1-000008005 are enabled: VGPUPool desks requests that" in refused
    assert refused.endswith(" | next: kubectl edit vgpupool desks")


def test_a_vgpu_of_a_disabled_gpu_is_not_enabled() -> None:
    old = vgpu("0000:08:00.4", types=TYPES)
    ask = merged(old, spec={"enabled": True, "vGPUTypeName": A2_4Q})
    assert f"SRIOVGPUDevice {GPU} is disabled" in messages("vgpudevices", old, ask, gpus=[gpu(False)])


# -- devices in use


OLD = vgpu("0000:08:00.4", A2_4Q, True)
OFF = merged(OLD, spec={"enabled": False})
DEVICE = "n1-000008004"


def allocated(*devices: str) -> dict[str, str]:
    return {names.ALLOCATION_ANNOTATION: json.dumps({"gpus": {RES_4Q: list(devices)}})}


def disabling(**given: Any) -> str:
    return messages("vgpudevices", OLD, OFF, vgpus=[OLD, vgpu("0000:08:00.5", A2_4Q, True)], **given)


def test_a_vgpu_in_use_is_neither_disabled_nor_deleted() -> None:
    running = machine("vm1", entry("gpu", RES_4Q), annotations=allocated(DEVICE))
    given: Any = {"vms": [running], "instances": [instance("vm1", "n1", entry("gpu", RES_4Q))]}
    assert disabling(**given).startswith(f"{DEVICE} is in use with VM vm1 in namespace default: stop the VM")
    assert "| next: kubectl patch vm vm1 -n default" in disabling(**given)
    assert "in use" in messages("vgpudevices", OLD, None, vgpus=[OLD], **given)
    assert messages("vgpudevices", OLD, None, vgpus=[OLD], nodes=[], **given) == ""


def test_the_command_that_stops_a_machine_is_one_that_kubevirt_takes() -> None:
    # It refuses ``running`` and ``runStrategy`` together.
    running = machine("vm1", entry("gpu", RES_4Q), annotations=allocated(DEVICE))
    older = merged(running, spec={"running": True, "runStrategy": None})
    given: Any = {"instances": [instance("vm1", "n1", entry("gpu", RES_4Q))]}
    assert """-p '{"spec":{"runStrategy":"Halted"}}' (or""" in disabling(vms=[running], **given)
    assert """-p '{"spec":{"running":false}}' (or""" in disabling(vms=[older], **given)


def test_a_gpu_stays_while_a_vgpu_is_used_whose_object_says_disabled() -> None:
    # An example is an object that was restored while its VM ran.
    restored = vgpu("0000:08:00.4", A2_4Q, False, made=True)
    running = machine("vm1", entry("gpu", RES_4Q), annotations=allocated(DEVICE))
    given: Any = {"vms": [running], "instances": [instance("vm1", "n1", entry("gpu", RES_4Q))]}
    refused = messages("sriovgpudevices", gpu(True, DEVICE), gpu(False, DEVICE), vgpus=[restored], **given)
    assert refused.startswith(f"{DEVICE} is in use with VM vm1 in namespace default: stop the VM")


def test_a_stopped_machine_that_names_a_function_without_a_vgpu_keeps_no_gpu() -> None:
    stopped = machine("vm1", entry(DEVICE, RES_4Q), strategy="Halted")
    off: Any = {"vms": [stopped], "vgpus": [vgpu("0000:08:00.4")]}
    assert messages("sriovgpudevices", gpu(True, DEVICE), gpu(False, DEVICE), **off) == ""
    lost: Any = {"vms": [stopped], "claims": [claim("0000:08:00.4")]}
    assert "in use with VM vm1" in messages("sriovgpudevices", gpu(True, DEVICE), gpu(False, DEVICE), **lost)


def test_what_another_machine_was_given_may_go() -> None:
    running = machine("vm1", entry(DEVICE, RES_4Q), annotations=allocated("n1-000008005"))
    given: Any = {"vms": [running], "instances": [instance("vm1", "n1", entry(DEVICE, RES_4Q))]}
    assert disabling(**given) == ""


def test_a_machine_made_through_the_api_without_annotation_still_uses_its_vgpu() -> None:
    # Its device has no known name, and its allocation is not recorded.
    given: Any = {
        "vms": [machine("vm1", entry("gpu", RES_4Q))],
        "instances": [instance("vm1", "n1", entry("gpu", RES_4Q))],
    }
    assert "VM vm1 in namespace default runs on n1" in disabling(**given)
    elsewhere: Any = given | {"instances": [instance("vm1", "n2", entry("gpu", RES_4Q))]}
    assert disabling(**elsewhere) == ""
    over: Any = given | {"vms": [], "instances": [instance("vm1", "n1", entry("gpu", RES_4Q), phase="Succeeded")]}
    assert disabling(**over) == ""


def test_between_creation_and_the_first_observation_nothing_is_missed() -> None:
    one, two = machine("vm1", entry("gpu", RES_4Q)), machine("vm2", entry("gpu", RES_4Q))
    assert disabling(vms=[one]) == ""
    assert "is about to start with nvidia.com/NVIDIA_A2-4Q and would not find a device" in disabling(vms=[one, two])


def test_a_stopped_machine_keeps_the_device_that_it_names() -> None:
    stopped = machine("vm1", entry(DEVICE, RES_4Q), strategy="Halted")
    answer = disabling(vms=[stopped])
    assert answer.startswith(f"{DEVICE} is in use with VM vm1 in namespace default, which does not run but lists it")
    assert answer.endswith("| next: kubectl edit vm vm1 -n default")
    going = merged(stopped, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert disabling(vms=[going]).endswith("being deleted | next: kubectl wait vm/vm1 -n default --for delete")
    unnamed = machine("vm1", entry("gpu", RES_4Q), strategy="Halted")
    assert disabling(vms=[unnamed]) == ""


def test_an_annotation_that_is_no_json_is_no_allocation() -> None:
    odd = machine("vm1", entry("gpu", RES_4Q), annotations={names.ALLOCATION_ANNOTATION: "{"})
    given: Any = {"vms": [odd], "instances": [instance("vm1", "n1", entry("gpu", RES_4Q))]}
    assert "it may be" in disabling(**given)


# -- PCIDeviceClaim


def test_a_claim_needs_an_iommu_group() -> None:
    assert messages("pcideviceclaims", None, claim(), functions=[function()]) == ""
    assert "has no IOMMU group" in messages("pcideviceclaims", None, claim(), functions=[function(group="")])


NIC = merged(function("0000:03:00.0", group=""), status={"vendorId": "8086", "deviceId": "10ed"})


def test_a_claim_of_what_we_do_not_serve_passes_and_is_warned_about() -> None:
    # A claim of a network card is accepted on any node, with a warning if our agent is the only one there.
    nic, other = claim("0000:03:00.0"), merged(claim("0000:03:00.0"), spec={"address": "0000:04:00.0"})
    held = machine("vm1", entry("n1-000003000", "intel.com/82599"), field="hostDevices")
    for old, new in ((None, nic), (nic, other), (nic, None), (None, merged(nic, metadata={"name": "odd"}))):
        assert messages("pcideviceclaims", old, new, functions=[NIC], claims=[nic], vms=[held]) == ""
    ours = node(aliquot={"reason": "Working"})
    (warning,) = judge(request("pcideviceclaims", None, nic), environment(functions=[NIC], nodes=[ours])).warnings
    assert "n1-000003000 (8086:10ed) is not an NVIDIA device: on node n1 Aliquot serves no other device" in warning
    for beside in (node(), node(aliquot={"reason": "PcidevicesRuns"})):
        assert (
            judge(request("pcideviceclaims", None, nic), environment(functions=[NIC], nodes=[beside]))
            == AdmissionVerdict()
        )


def test_a_claim_of_another_vendors_function_that_we_serve_is_judged() -> None:
    """A function with our conditions is one of a node whose agent serves all devices."""
    ready = {"type": "Ready", "status": "True", "reason": "Present"}
    served = merged(NIC, status={"conditions": [ready], "iommuGroup": "62"})
    nic, other = claim("0000:03:00.0"), merged(claim("0000:03:00.0"), spec={"address": "0000:04:00.0"})
    held = machine("vm1", entry("n1-000003000", "intel.com/82599"), field="hostDevices")
    assert messages("pcideviceclaims", None, nic, functions=[served]) == ""
    assert "vm1" in messages("pcideviceclaims", nic, None, functions=[served], claims=[nic], vms=[held])
    assert messages("pcideviceclaims", nic, other, functions=[served], claims=[nic])
    no_group = merged(served, status={"iommuGroup": ""})
    assert "has no IOMMU group" in messages("pcideviceclaims", None, nic, functions=[no_group])
    ours = node(aliquot={"reason": "Working"})
    found = judge(request("pcideviceclaims", None, nic), environment(functions=[served], nodes=[ours]))
    assert found == AdmissionVerdict()


def test_a_claim_without_a_pci_device_passes_and_is_warned_about() -> None:
    found = judge(request("pcideviceclaims", None, claim()), environment())
    assert found.allowed
    assert f"node n1 has no PCIDevice {GPU}" in found.warnings[0]


def node(**aliquot: Any) -> Any:
    annotations = {DEVICES_ANNOTATION: json.dumps(aliquot["aliquot"])} if aliquot else {}
    return {"metadata": {"name": "n1", "annotations": annotations}}


def test_a_usb_controller_in_use_is_not_claimed() -> None:
    usb = {"metadata": {"name": "usb-1"}, "status": {"nodeName": "n1", "pciAddress": PF}}
    refused = messages("pcideviceclaims", None, claim(), functions=[function()], usb_claims=[usb])
    assert "USB devices are using this controller (usb-1)" in refused


def test_a_shared_gpu_is_not_claimed_whole() -> None:
    vf = function("0000:08:00.4", labels={names.PARENT_LABEL: GPU})
    for given in ({"functions": [function(), vf]}, {"functions": [function()], "gpus": [gpu(True)]}):
        assert f"vGPUs exist on {GPU}" in messages("pcideviceclaims", None, claim(), **given)
    going = messages("pcideviceclaims", None, claim(), functions=[function(), vf], gpus=[gpu(False)])
    assert going.endswith(f"still in progress | next: kubectl wait sriovgpudevice/{GPU} --for condition=Ready")
    carrying = {"functions": [function("0000:08:00.4")], "vgpus": [vgpu("0000:08:00.4", A2_4Q, True)]}
    assert "carries a vGPU" in messages("pcideviceclaims", None, claim("0000:08:00.4"), **carrying)


def test_a_claim_in_use_stays() -> None:
    resource = "nvidia.com/GA107_A2"
    held = machine("vm1", entry(GPU, resource), field="hostDevices")
    given: Any = {"functions": [function(resource=resource)], "claims": [claim()], "vms": [held]}
    assert f"{GPU} is in use with VM vm1 in namespace default" in messages("pcideviceclaims", claim(), None, **given)
    assert messages("pcideviceclaims", claim(), None, **(given | {"nodes": []})) == ""
    assert messages("pcideviceclaims", claim(), None, **(given | {"vms": []})) == ""


def test_a_vgpus_own_claim_is_left_to_the_programs() -> None:
    owners = [{"apiVersion": "v1", "kind": "VGPUDevice", "name": DEVICE, "uid": "1"}]
    owned = claim("0000:08:00.4", ownerReferences=owners)
    off: Any = {"vgpus": [vgpu("0000:08:00.4", A2_4Q, False)]}
    assert "owned by VGPUDevice" in messages("pcideviceclaims", owned, None, **off)
    assert (
        messages(
            "pcideviceclaims",
            owned,
            None,
            **off,
            user="system:serviceaccount:a:b",
            accounts=["system:serviceaccount:a:b"],
        )
        == ""
    )


# -- other rules


def test_status_and_unrelated_fields_are_not_judged() -> None:
    off = request("sriovgpudevices", gpu(True), gpu(False), sub="status")
    assert judge(off, environment(vgpus=[OLD])) == AdmissionVerdict()
    assert judge(request("pcidevices", function(), None), environment()) == AdmissionVerdict()


def test_what_is_about_to_go_may_lose_its_finalizers() -> None:
    leaving = merged(gpu(True), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert messages("sriovgpudevices", leaving, merged(leaving, spec={"address": "x"})) == ""


def test_what_cannot_be_read_is_refused_with_a_sentence() -> None:
    odd = merged(gpu(True), spec={"enabled": "yes"})
    assert "cannot be read" in messages("sriovgpudevices", None, odd)


def test_a_verdict_becomes_a_review() -> None:
    asked = request("sriovgpudevices", gpu(True), None)
    found = review_response(asked, AdmissionVerdict(reasons=("no", "never"), warnings=("careful",)))["response"]
    assert found["status"] == {"code": 403, "reason": "Forbidden", "message": "no; never"}
    assert (found["uid"], found["allowed"], found["warnings"]) == ("u-1", False, ["careful"])


def test_what_removes_a_device_is_known_as_such() -> None:
    assert withdraws_device(request("vgpudevices", OLD, OFF))
    assert withdraws_device(request("pcideviceclaims", claim(), None))
    assert not withdraws_device(request("vgpudevices", OFF, OLD))
    assert not withdraws_device(request("migconfigurations", mig({}, enabled=False), None))


def test_a_wrong_scheduler_is_refused_when_it_is_written() -> None:
    def noted(text: str) -> Any:
        return merged(gpu(), metadata={"annotations": {names.SCHEDULER_ANNOTATION: text}})

    wrong = "annotation aliquot.dev/scheduler: 'fair' is not a policy"
    assert wrong in messages("sriovgpudevices", gpu(), noted("fair"))
    assert wrong in messages("sriovgpudevices", None, noted("fair"))
    for fine in ("fixed-share", "equal-share,2ms", "fixed-share, 480Hz"):
        assert messages("sriovgpudevices", gpu(), noted(fine)) == ""
    # One that an older version let in does not hold up other changes.
    old = noted("fair")
    assert messages("sriovgpudevices", old, merged(old, spec={"enabled": False})) == ""
