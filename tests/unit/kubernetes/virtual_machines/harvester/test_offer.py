"""Devices that a node offers to VMs: names, ids, variables and files for both vGPU frameworks."""

from __future__ import annotations

from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.gpu.device_resources import ResourceOffer
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, object_names, offer
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects
from unit.kubernetes.virtual_machines.harvester.offered import NODE, address, make_gpu, passed, replace, vgpus, view

A2 = make_gpu("NVIDIA A2", ("4A", 0), ("4Q", 1), ("4A", 2), ("4Q", 3))
L40S = make_gpu("NVIDIA L40S", ("12A", 0), ("12Q", 9))
GROUPS = {uuid: 120 + n for n, uuid in enumerate(sorted(mdev_functions(view(A2).inventory)))}


def figures(found: ResourceOffer) -> dict[str, int]:
    return {resource.name: sum(d.healthy for d in resource.devices) for resource in found.resources}


def test_four_vgpus_of_two_types_are_offered_and_the_other_twelve_functions_are_not() -> None:
    # The A2 of the vGPU documentation: two of each type, and nothing else.
    found = offer(view(A2), Objects(vgpus=vgpus(A2)), GROUPS)
    assert figures(found) == {"nvidia.com/NVIDIA_A2-4A": 2, "nvidia.com/NVIDIA_A2-4Q": 2}
    assert found.refusals == ()


def test_an_mdev_goes_by_its_uuid_and_the_files_of_its_own_group() -> None:
    first = offer(view(A2), Objects(vgpus=vgpus(A2)), GROUPS).resources[0].devices[0]
    uuid = A2.vgpus[0].uuid
    assert (first.id, first.gpu, first.paths) == (uuid, "0000:08:00.0", (f"/dev/vfio/{GROUPS[uuid]}",))
    assert first.numa == 1, "that of the GPU, if the function does not report one"
    assert first.delivery is not None
    assert first.delivery.variable == "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A"
    assert first.delivery.common == ("/dev/vfio/vfio",)


def test_with_vendor_vfio_a_vgpu_goes_by_its_functions_address() -> None:
    found = offer(view(L40S), Objects(vgpus=vgpus(L40S)), {})
    assert [(r.name, [d.id for d in r.devices]) for r in found.resources] == [
        ("nvidia.com/NVIDIA_L40S-12A", [address(0)]),
        ("nvidia.com/NVIDIA_L40S-12Q", [address(9)]),
    ]
    device = found.resources[1].devices[0]
    assert device.delivery is not None
    assert device.delivery.variable == "PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-12Q"
    assert device.paths == ("/dev/vfio/99",)


def test_devices_come_in_the_order_of_their_functions() -> None:
    many = make_gpu("NVIDIA A2", *(("1Q", n) for n in range(12)))
    groups = dict.fromkeys(mdev_functions(view(many).inventory), 7)
    (resource,) = offer(view(many), Objects(vgpus=vgpus(many)), groups).resources
    assert [d.id for d in resource.devices] == [v.uuid for v in many.vgpus], "virtfn10 comes after virtfn2"


def changed(number: int, **spec: object) -> dict[str, VGPUDevice]:
    found = vgpus(A2)
    name = names.object_name(NODE, address(number))
    found[name] = replace(found[name], spec=replace(found[name].spec, **spec))
    return found


def test_what_the_user_disabled_is_withdrawn_before_it_is_destroyed() -> None:
    found = offer(view(A2), Objects(vgpus=changed(0, enabled=False)), GROUPS)
    assert figures(found)["nvidia.com/NVIDIA_A2-4A"] == 1


def test_what_is_to_become_another_type_is_not_allocated() -> None:
    found = offer(view(A2), Objects(vgpus=changed(0, type_name="NVIDIA A2-4C")), GROUPS)
    assert figures(found) == {"nvidia.com/NVIDIA_A2-4A": 1, "nvidia.com/NVIDIA_A2-4Q": 2}


def test_an_object_that_goes_takes_its_device_along() -> None:
    objects = vgpus(A2)
    name = names.object_name(NODE, address(0))
    going = ObjectMeta(name=name, deletion_timestamp="2026-01-01T00:00:00Z")
    objects[name] = replace(objects[name], metadata=going)
    assert figures(offer(view(A2), Objects(vgpus=objects), GROUPS))["nvidia.com/NVIDIA_A2-4A"] == 1


def test_what_was_made_by_hand_is_not_offered() -> None:
    assert offer(view(A2), Objects(), GROUPS) == ResourceOffer()


def test_what_an_object_claims_and_the_kernel_does_not_have_is_not_offered() -> None:
    # After a reboot the objects exist, but the vGPUs do not yet.
    empty = make_gpu("NVIDIA A2")
    assert offer(view(empty), Objects(vgpus=vgpus(A2)), GROUPS) == ResourceOffer()


def test_another_type_in_the_function_than_the_object_says_is_not_offered() -> None:
    other = make_gpu("NVIDIA A2", ("4C", 0))
    assert offer(view(other), Objects(vgpus=vgpus(A2)), GROUPS) == ResourceOffer()


def test_a_full_card_that_does_not_tell_names_is_offered_by_the_name_on_record() -> None:
    nameless = replace(L40S, vgpus=tuple(replace(v, type=f"type {v.type_id}") for v in L40S.vgpus))
    found = offer(view(nameless), Objects(vgpus=vgpus(L40S)), {})
    assert figures(found) == {"nvidia.com/NVIDIA_L40S-12A": 1, "nvidia.com/NVIDIA_L40S-12Q": 1}


def test_a_faulty_gpu_is_shown_and_not_allocated() -> None:
    found = offer(view(A2), Objects(vgpus=vgpus(A2)), GROUPS, frozenset({A2.uuid}))
    assert figures(found) == {"nvidia.com/NVIDIA_A2-4A": 0, "nvidia.com/NVIDIA_A2-4Q": 0}
    assert [len(r.devices) for r in found.resources] == [2, 2]
    assert "XIDs" in found.refusals[0]


def test_without_a_driver_what_was_configured_is_shown_and_not_allocated() -> None:
    for gpu in (A2, L40S):
        seen = offer(view(gpu), Objects(vgpus=vgpus(gpu)), GROUPS)
        blind = offer(view(gpu, driver=False), Objects(vgpus=vgpus(gpu)), {})
        assert figures(blind) == dict.fromkeys(figures(seen), 0)
        ids = [{d.id for r in each.resources for d in r.devices} for each in (seen, blind)]
        assert ids[0] == ids[1]


def test_a_vgpu_without_an_iommu_group_is_not_allocated() -> None:
    found = offer(view(A2), Objects(vgpus=vgpus(A2)), {})
    assert set(figures(found).values()) == {0}
    assert "check that the IOMMU is on" in found.refusals[0]


GPU = PciFunction("0000:0a:00.0", "10de", "2204", "0300", iommu_group=40, driver="vfio-pci", numa=0, gpu=True)
SOUND = PciFunction("0000:0a:00.1", "10de", "1aef", "0403", iommu_group=40, driver="vfio-pci", numa=0)
RESOURCE = "nvidia.com/GA102_GEFORCE_RTX_3090"


def test_a_claimed_gpu_goes_by_its_address_without_its_neighbours() -> None:
    seen = replace(view(), functions=(GPU, SOUND))
    (resource,) = offer(seen, passed(GPU.address, RESOURCE), {}).resources
    (device,) = resource.devices
    assert (resource.name, device.id, device.paths, device.numa) == (RESOURCE, GPU.address, ("/dev/vfio/40",), 0)
    assert device.delivery is not None
    assert device.delivery.variable == "PCI_RESOURCE_NVIDIA_COM_GA102_GEFORCE_RTX_3090"
    assert device.healthy


def test_a_neighbour_with_a_driver_at_work_keeps_a_gpu_from_being_given() -> None:
    seen = replace(view(), functions=(GPU, replace(SOUND, driver="snd_hda_intel")))
    found = offer(seen, passed(GPU.address, RESOURCE), {})
    assert figures(found) == {RESOURCE: 0}
    assert found.refusals == (
        f"{GPU.address} ({RESOURCE}): other drivers use its IOMMU group: 0000:0a:00.1 (snd_hda_intel)",
    )


def test_a_claim_that_is_not_carried_out_or_only_reserves_offers_nothing() -> None:
    seen = replace(view(), functions=(GPU, SOUND))
    assert offer(seen, passed(GPU.address, RESOURCE, bound=False), {}) == ResourceOffer()
    objects = passed(GPU.address, RESOURCE)
    (name,) = objects.claims
    claim = objects.claims[name]
    reserved = replace(claim.metadata, annotations={names.SKIP_BINDING_ANNOTATION: "true"})
    leaving = replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    for meta in (reserved, leaving):
        reported = replace(objects, claims={name: replace(claim, metadata=meta)})
        assert offer(seen, reported, {}) == ResourceOffer()


def test_ids_lead_to_the_names_of_objects() -> None:
    known = object_names(view(A2), Objects(vgpus=vgpus(A2)))
    assert known[A2.vgpus[0].uuid] == known[address(0)] == f"{NODE}-000008004"
    known = object_names(view(L40S, driver=False), Objects(vgpus=vgpus(L40S)))
    assert known[address(9)] == f"{NODE}-000008015"
    assert not [key for key in known if key.isdecimal()], "the number of a type is not a device"
