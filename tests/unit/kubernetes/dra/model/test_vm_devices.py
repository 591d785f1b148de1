"""Devices of GPUs that serve VMs: names, attributes, what is refused and why, and what others have there."""

from __future__ import annotations

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.model.inventory import Gpu, HostVirtualization, Inventory
from aliquot.errors import UsageError
from aliquot.kubernetes.dra.model.device import ModeChanges
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.occupancy import Blocking, find_occupancy
from aliquot.kubernetes.dra.model.offer import Offer, offered_devices
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.dra.model.ranking import PublishPolicy, choose_devices
from aliquot.kubernetes.dra.model.slices import build_slices, read_publication
from aliquot.kubernetes.dra.model.validation import validate_slices
from aliquot.kubernetes.dra.model.vm_devices import vgpu_uuid
from aliquot.kubernetes.dra.model.vm_service import VmService, read_vm_policy
from unit.kubernetes.dra.model.nodes import NAMING
from unit.kubernetes.dra.model.nvidia_attributes import ATTRIBUTES, VFIO_ATTRIBUTES

ALONE = SliceLayout(gpus_per_slice=1)


def offer(node: Inventory, *, sliced: str = "", backed: bool = False, mode_changes: ModeChanges = "any") -> Offer:
    service = VmService(sliced, backed)
    return offered_devices(node, NAMING, mode_changes=mode_changes, vms={gpu.pci: service for gpu in node.gpus})


def free(found: Offer, node: Inventory, *allocated: str, keeps: bool = True) -> set[str]:
    blocking = Blocking(found, find_occupancy(node, found, allocated, lambda gpu, instance: keeps))
    return {device.name for device in found.devices if blocking.free(device)}


def test_a_gpu_that_serves_vms_offers_the_function_and_vgpus_by_address() -> None:
    names = [each.name for each in offer(factory.node(factory.gpu("NVIDIA A2")), sliced="A2-4Q").devices]
    prefix = "vm-0000-08-00-0"
    assert names == [f"{prefix}-vfio", *(f"{prefix}-a2-4q-{n}" for n in range(4))]
    backed = offer(factory.node(factory.gpu("NVIDIA A30")), backed=True)
    assert f"{prefix}-a30-2-12c-5-2" in {each.name for each in backed.devices}
    assert backed.vm_gpus == (factory.PCI,)


def test_the_function_has_the_attributes_of_nvidia_s() -> None:
    found = offer(factory.node(factory.gpu("NVIDIA A2"))).devices[0]
    values = {name: msgspec.to_builtins(value) for name, value in found.attributes.items()}
    assert values["type"] == {"string": "vfio"}
    assert values["resource.kubernetes.io/pciBusID"] == {"string": factory.PCI}
    assert (values["deviceID"], values["vendorID"]) == ({"string": "0x25b6"}, {"string": "0x10de"})
    for name, value in values.items():
        assert next(iter(value)) == (VFIO_ATTRIBUTES.get(name) or ATTRIBUTES[name][0])


def test_a_vgpu_says_its_type_its_memory_and_its_placement() -> None:
    found = offer(factory.node(factory.gpu("NVIDIA A30")), sliced="A30-6C", backed=True)
    sliced = found.device("vm-0000-08-00-0-a30-6c-3")
    backed = found.device("vm-0000-08-00-0-a30-1-6c-14-3")
    assert sliced is not None
    assert backed is not None
    values = msgspec.to_builtins(backed.attributes)
    assert values["type"] == {"string": "vgpu"}
    assert values["aliquot.dev/vgpuType"] == {"string": "A30-1-6C"}
    assert values["profile"] == {"string": "1g.6gb"}
    assert values["aliquot.dev/placementStart"] == {"int": 3}
    assert "aliquot.dev/warm" not in values
    assert sliced.capacity == backed.capacity == {"memory": 6144 << 20}
    assert "profile" not in sliced.attributes
    assert not sliced.whole
    assert not backed.whole


@pytest.mark.parametrize(
    ("name", "sliced", "why"),
    [
        ("NVIDIA A2", "A2-5Q", "unknown vGPU type A2-5Q"),
        ("NVIDIA A2", "L40S-12Q", "is a vGPU type of NVIDIA L40S, not of NVIDIA A2"),
        ("NVIDIA A30", "A30-1-6C", "MIG-backed"),
    ],
)
def test_a_type_that_the_gpu_does_not_have_is_refused_and_the_function_stays(name: str, sliced: str, why: str) -> None:
    found = offer(factory.node(factory.gpu(name)), sliced=sliced)
    assert [each.attributes["type"].string_value for each in found.devices] == ["vfio"]
    assert found.refusals[0].startswith(f"GPU {factory.PCI} does not offer VMs {sliced}: ")
    assert why in found.refusals[0]


def test_what_the_host_cannot_do_is_not_offered() -> None:
    ordinary = HostVirtualization(iommu=True, vfio=True, vgpu_manager=False)
    found = offer(factory.node(factory.gpu("NVIDIA A2"), host=ordinary), sliced="A2-4Q")
    assert [each.name for each in found.devices] == ["vm-0000-08-00-0-vfio"]
    assert "vGPU host driver" in found.refusals[0]
    off = offer(factory.node(factory.gpu("NVIDIA A2"), host=HostVirtualization(vgpu_manager=True)), sliced="A2-4Q")
    assert not off.devices
    assert not off.counter_sets
    assert len(off.refusals) == 2


@pytest.mark.parametrize(
    ("mode_changes", "mig", "kinds"),
    [
        ("any", False, {"A100-5C", "A100-1-5C"}),
        ("without-reset", False, {"A100-5C"}),
        ("never", True, {"A100-1-5C"}),
    ],
)
def test_the_other_mig_mode_is_offered_where_it_is_permitted(
    mode_changes: ModeChanges, mig: bool, kinds: set[str]
) -> None:
    node = factory.node(factory.gpu("NVIDIA A100-PCIE-40GB", mig=mig))
    found = offer(node, sliced="A100-5C", backed=True, mode_changes=mode_changes)
    assert {each.vgpu for each in found.devices} & {"A100-5C", "A100-1-5C"} == kinds


def test_a_gpu_has_no_more_vgpus_than_functions() -> None:
    found = offer(factory.node(factory.gpu("NVIDIA L40S", total=4)), sliced="L40S-4Q")
    assert sum(bool(each.vgpu) for each in found.devices) == 4


def test_a_gpu_that_is_passed_through_offers_the_same() -> None:
    gpu = factory.gpu("NVIDIA A2")
    assert gpu.virtual is not None
    virtual = msgspec.structs.replace(gpu.virtual, driver="vfio-pci", functions=(), framework="")
    unbound = msgspec.structs.replace(gpu, passthrough=True, minor=-1, index=-1, virtual=virtual)
    expected = offer(factory.node(gpu), sliced="A2-4Q").devices
    assert [each.name for each in offer(factory.node(unbound), sliced="A2-4Q").devices] == [e.name for e in expected]


def test_a_gpu_that_others_bound_is_offered_whole_and_one_of_another_driver_is_not() -> None:
    gpu = factory.gpu("NVIDIA A2")
    assert gpu.virtual is not None
    virtual = msgspec.structs.replace(gpu.virtual, driver="vfio-pci", functions=(), framework="")
    bound = msgspec.structs.replace(gpu, uuid="", passthrough=True, minor=-1, index=-1, virtual=virtual)
    found = offer(factory.node(bound), sliced="A2-4Q")
    assert [(each.attributes["type"].string_value, "uuid" in each.attributes) for each in found.devices] == [
        ("vfio", False)
    ]
    assert f"aliquot passthrough disable {gpu.pci}" in found.refusals[0]
    other = msgspec.structs.replace(
        bound, passthrough=False, virtual=msgspec.structs.replace(virtual, driver="nouveau")
    )
    found = offer(factory.node(other), sliced="A2-4Q")
    assert not found.devices
    assert "its driver is nouveau" in found.refusals[0]


def test_pods_get_nothing_of_a_gpu_that_serves_vms_and_vms_nothing_of_others() -> None:
    node = factory.node(factory.gpu("NVIDIA A30", on=False), factory.gpu("NVIDIA A2", on=False, pci="0000:09:00.0"))
    node = msgspec.structs.replace(
        node, gpus=tuple(msgspec.structs.replace(g, minor=n) for n, g in enumerate(node.gpus))
    )
    found = offered_devices(node, NAMING, mode_changes="any", vms={"0000:09:00.0": VmService()})
    by_gpu = {
        pci: {each.attributes["type"].string_value for each in found.devices if each.pci == pci} for pci in found.gpus
    }
    assert by_gpu == {factory.PCI: {"gpu", "mig"}, "0000:09:00.0": {"vfio"}}


def owned(gpu: Gpu, short: str, device: str, number: int, held: bool = False) -> Gpu:
    """Return the GPU with the vGPU of a device."""
    there = factory.having(gpu, (factory.kind(gpu.product, short), number), held=(number,) if held else ())
    made = msgspec.structs.replace(there.vgpus[0], uuid=vgpu_uuid(gpu, device))
    return msgspec.structs.replace(gpu, vgpus=(*gpu.vgpus, made))


def passing(gpu: Gpu, *, held: bool) -> Gpu:
    """Return the GPU with its first virtual function bound to vfio-pci."""
    assert gpu.virtual is not None
    first, *others = gpu.virtual.functions
    bound = msgspec.structs.replace(first, driver="vfio-pci", holders=(factory.VM,) if held else ())
    return msgspec.structs.replace(gpu, virtual=msgspec.structs.replace(gpu.virtual, functions=(bound, *others)))


def test_vgpus_of_others_close_the_gpu_and_idle_ones_of_claims_do_not() -> None:
    gpu, name = factory.gpu("NVIDIA A2"), "vm-0000-08-00-0-a2-4q-1"
    found = offer(factory.node(gpu), sliced="A2-4Q")
    assert len(free(found, factory.node(gpu))) == 5
    foreign = factory.having(gpu, (factory.kind("NVIDIA A2", "4Q"), 0))
    assert free(found, factory.node(foreign)) == set()
    assert len(free(found, factory.node(owned(gpu, "4Q", name, 0)))) == 5
    running = factory.node(owned(gpu, "4Q", name, 0, held=True))
    assert free(found, running) == set()
    assert free(found, running, name) == {f"vm-0000-08-00-0-a2-4q-{n}" for n in (0, 2, 3)}
    busy = msgspec.structs.replace(gpu, holders=(factory.VM,))
    assert free(found, factory.node(busy)) == set()


@pytest.mark.parametrize("held", [True, False])
def test_a_virtual_function_that_is_passed_through_closes_the_gpu(held: bool) -> None:
    gpu = factory.gpu("NVIDIA A2")
    found = offer(factory.node(gpu), sliced="A2-4Q")
    assert free(found, factory.node(passing(gpu, held=held))) == set()


def test_instances_of_others_close_the_gpu() -> None:
    from support import factory as instances

    gpu = factory.gpu("NVIDIA A30", mig=True)
    found = offer(factory.node(gpu), backed=True)
    there = instances.with_instances(factory.node(gpu), 0, "1g.6gb@2")
    assert free(found, there, keeps=True) == set()
    assert len(free(found, there, keeps=False)) == len(found.devices)


def test_a_name_of_another_policy_is_still_of_its_gpu() -> None:
    gpu = msgspec.structs.replace(factory.gpu("NVIDIA A2"), minor=1)
    assert NAMING.names(gpu, "gpu-1")
    assert NAMING.names(gpu, "gpu-1-mig-1g5gb-19-0")
    assert NAMING.names(gpu, "vm-0000-08-00-0-a2-8q-1")
    assert not NAMING.names(gpu, "gpu-10")
    assert not NAMING.names(gpu, "vm-0000-09-00-0-vfio")


@pytest.mark.parametrize(("name", "sliced"), [("NVIDIA L40S", "L40S-1Q"), ("NVIDIA A100-PCIE-40GB", "A100-4C")])
def test_slices_are_valid_with_everything_allocated_and_are_read_back(name: str, sliced: str) -> None:
    addresses = [f"0000:{n:02x}:00.0" for n in range(8, 18)]
    node = factory.node(*(factory.gpu(name, pci=pci) for pci in addresses))
    found = offer(node, sliced=sliced, backed=True)
    allocated = [each.name for each in found.devices if each.vgpu == sliced]
    for names in ((), allocated):
        chosen = choose_devices(found, find_occupancy(node, found, names), PublishPolicy(layout=ALONE))
        published = Publication(chosen.devices, chosen.counter_sets, chosen.gpus)
        slices = build_slices(published, NAMING, "n1", layout=ALONE)
        validate_slices(slices, "n1")
        again = {each.name: each for each in read_publication(slices).devices}
        assert again == {each.name: each for each in published.devices}
        kinds = {(each.pci, each.vgpu) for each in published.devices}
        expected = {(each.pci, each.vgpu) for each in found.devices if not names or each.vgpu == sliced}
        assert kinds == expected


def test_the_option_names_gpus_and_what_they_offer() -> None:
    policy = read_vm_policy("all, 0000:08:00.0=A30-6C+mig-backed")
    node = factory.node(factory.gpu("NVIDIA A30"), factory.gpu("NVIDIA A2", pci="0000:09:00.0"))
    assert policy.of(node) == {"0000:08:00.0": VmService("A30-6C", True), "0000:09:00.0": VmService()}
    assert read_vm_policy("00000000:09:00.0=mig-backed").of(node) == {"0000:09:00.0": VmService("", True)}
    assert not read_vm_policy("")
    assert read_vm_policy("").of(node) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu-0=A2-4Q", "gpu-0 is neither a PCI address"),
        ("all=A2-4Q+A2-8Q", "are several types"),
        ("all=A2-4Q,all=A2-8Q", "all is named twice"),
        ("0000:08:00.0=A2-4Q,00000000:08:00.0", "00000000:08:00.0 is named twice"),
    ],
)
def test_a_wrong_option_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_vm_policy(text)
