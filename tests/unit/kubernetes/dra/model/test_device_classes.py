"""Device classes: NVIDIA's two, and one per profile."""

from __future__ import annotations

import json

import msgspec

import support.vgpufactory as factory
from aliquot.core.model import catalog
from aliquot.kubernetes.dra.model.device_classes import device_classes, profile_class, published_profiles, vm_classes
from aliquot.kubernetes.dra.model.names_validation import is_subdomain
from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from aliquot.kubernetes.dra.model.offer import offered_devices
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.dra.model.slices import build_slices
from aliquot.kubernetes.dra.model.vm_service import VmService

NVIDIA = DriverNaming(NVIDIA_DRIVER)


def test_the_classes_of_nvidia_s_driver() -> None:
    whole, mig = (json.loads(msgspec.json.encode(each)) for each in device_classes(NVIDIA))
    assert whole == {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {
            "selectors": [
                {
                    "cel": {
                        "expression": "device.driver == 'gpu.nvidia.com' && "
                        "device.attributes['gpu.nvidia.com'].type == 'gpu'"
                    }
                }
            ],
            "extendedResourceName": "nvidia.com/gpu",
        },
    }
    assert mig["metadata"]["name"] == "mig.nvidia.com"
    assert "type == 'mig'" in mig["spec"]["selectors"][0]["cel"]["expression"]
    assert "extendedResourceName" not in mig["spec"]


def test_a_class_for_each_profile_gives_pods_the_resource_of_the_device_plugin() -> None:
    found = {
        each.name: each.spec for each in device_classes(NVIDIA, [p.name for p in catalog.family("a100-40gb").profiles])
    }
    assert len(found) == 9
    media = found["mig-1g.5gb.me.nvidia.com"]
    assert media.extended_resource_name == "nvidia.com/mig-1g.5gb.me"
    assert media.selectors[0].cel.expression.endswith(".profile == '1g.5gb+me'")
    assert found["mig-7g.40gb.nvidia.com"].extended_resource_name == "nvidia.com/mig-7g.40gb"


def test_profiles_of_several_families_have_one_class_and_every_name_is_valid() -> None:
    every = device_classes(NVIDIA, [p.name for name in catalog.family_names() for p in catalog.family(name).profiles])
    names = [each.name for each in every]
    assert len(names) == len(set(names))
    assert all(is_subdomain(name) for name in names)
    resources = [each.spec.extended_resource_name for each in every if each.spec.extended_resource_name]
    assert len(resources) == len(set(resources)) == len(every) - 1


def test_under_our_own_name_and_without_extended_resources() -> None:
    own = DriverNaming()
    assert [each.name for each in device_classes(own)] == ["gpu.aliquot.dev", "mig.aliquot.dev"]
    found = profile_class(own, "1g.24gb-me", extended_resources=False)
    assert found.name == "mig-1g.24gb-me.aliquot.dev"
    assert found.spec.extended_resource_name is None
    assert "device.attributes['gpu.aliquot.dev'].profile == '1g.24gb-me'" in found.spec.selectors[0].cel.expression


def test_what_is_published_for_vms_has_classes() -> None:
    node = factory.node(factory.gpu("NVIDIA A30"))
    found = offered_devices(node, NVIDIA, vms={factory.PCI: VmService("A30-6C")})
    slices = build_slices(Publication(found.devices, found.counter_sets, found.gpus), NVIDIA, "n1")
    whole, vgpu = vm_classes(NVIDIA, slices)
    assert whole.name == "vfio.gpu.nvidia.com"
    assert whole.spec.selectors[0].cel.expression.endswith(".type == 'vfio'")
    assert vgpu.name == "vgpu-a30-6c.nvidia.com"
    assert vgpu.spec.selectors[0].cel.expression == (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'vgpu' && "
        "device.attributes['aliquot.dev'].vgpuType == 'A30-6C'"
    )
    assert is_subdomain(vgpu.name)
    assert vgpu.spec.extended_resource_name is None
    assert vm_classes(NVIDIA, ()) == ()
    backed = offered_devices(node, NVIDIA, mode_changes="any", vms={factory.PCI: VmService(mig_backed=True)})
    slices = build_slices(Publication(backed.devices, backed.counter_sets, backed.gpus), NVIDIA, "n1")
    assert len(vm_classes(NVIDIA, slices)) > 2
    assert published_profiles(slices) == set()
