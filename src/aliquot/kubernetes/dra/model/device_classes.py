"""Device classes: whole GPUs, MIG devices, and one class for each profile with an extended resource name.

The first two have the names and selectors of NVIDIA's driver, with the driver's own name in them. With a class per
profile, pods that request ``nvidia.com/mig-1g.10gb`` get an instance on demand, without a change of the pod.
"""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.device import VGPU_TYPE
from aliquot.kubernetes.dra.model.naming import DriverNaming, label_word
from aliquot.kubernetes.dra.model.objects import (
    CelSelector,
    DeviceAttribute,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    ResourceSlice,
)
from aliquot.kubernetes.gpu import label_names
from aliquot.kubernetes.gpu.device_resources import PREFIX, WHOLE_GPU


def device_classes(
    naming: DriverNaming, profiles: Iterable[str] = (), *, extended_resources: bool = True
) -> tuple[DeviceClass, ...]:
    """Return the classes for GPUs with profiles of these names. Without ``extended_resources`` pods need claims.

    A resource name that a device plugin offers on a node must not be in a class that fits devices of the same node.
    """
    whole = WHOLE_GPU if extended_resources else None
    return (
        _class(f"gpu.{naming.parent_class}", naming, "gpu", resource=whole),
        _class(f"mig.{naming.parent_class}", naming, "mig"),
        *(profile_class(naming, profile, extended_resources=extended_resources) for profile in sorted(set(profiles))),
    )


def vm_classes(naming: DriverNaming, slices: Iterable[ResourceSlice]) -> tuple[DeviceClass, ...]:
    """Return the classes for what slices publish for VMs: whole GPUs, and one class for each vGPU type.

    That of whole GPUs has the name of NVIDIA's, ``vfio.gpu.nvidia.com``. KubeVirt takes claims only, so none has a
    resource.
    """
    attributes = [device.attributes for each in slices for device in each.spec.devices]
    types = {each[VGPU_TYPE].string_value or "" for each in attributes if VGPU_TYPE in each}
    whole = any(each.get("type") == DeviceAttribute(string_value="vfio") for each in attributes)
    return (
        *((_class(f"vfio.{naming.driver}", naming, "vfio"),) if whole else ()),
        *(vgpu_class(naming, each) for each in sorted(types)),
    )


def vgpu_class(naming: DriverNaming, vgpu_type: str) -> DeviceClass:
    """Return the class of a vGPU type by its short name: ``vgpu-l40s-12q.nvidia.com`` for ``L40S-12Q``."""
    domain, _, attribute = VGPU_TYPE.partition("/")
    term = f"device.attributes['{domain}'].{attribute} == '{vgpu_type}'"
    return _class(f"vgpu-{label_word(vgpu_type)}.{naming.parent_class}", naming, "vgpu", term=term)


def preferred_class(classes: Iterable[DeviceClass]) -> DeviceClass:
    """Return the one of several classes with the same resource that the API server takes: the one created last.

    Of equal times the first name wins. Source: k8s.io/api resource/v1/types.go, ``extendedResourceName``.
    """
    # RFC 3339 in UTC is ordered like text.
    return max(sorted(classes, key=lambda each: each.name), key=lambda each: each.metadata.creation_timestamp or "")


def profile_class(naming: DriverNaming, profile: str, *, extended_resources: bool = True) -> DeviceClass:
    """Return the class of a profile: ``mig-1g.10gb.me.nvidia.com`` for ``1g.10gb+me``."""
    word = f"mig-{label_names.profile_word(profile)}"
    resource = f"{PREFIX}{word}" if extended_resources else None
    return _class(f"{word}.{naming.parent_class}", naming, "mig", profile, resource)


def published_profiles(slices: Iterable[ResourceSlice]) -> set[str]:
    """Return the names of the MIG profiles that slices publish for pods."""
    kind = DeviceAttribute(string_value="mig")  # a MIG-backed vGPU has a profile too
    devices = (device for each in slices for device in each.spec.devices if device.attributes.get("type") == kind)
    named = (device.attributes.get("profile") for device in devices)
    return {each.string_value for each in named if each is not None and each.string_value}


def _class(
    name: str,
    naming: DriverNaming,
    kind: str,
    profile: str | None = None,
    resource: str | None = None,
    term: str = "",
) -> DeviceClass:
    # A selector that reads a missing attribute is an error, so the driver is compared first.
    own = f"device.attributes['{naming.driver}']"
    terms = [f"device.driver == '{naming.driver}'", f"{own}.type == '{kind}'"]
    if profile is not None:
        terms.append(f"{own}.profile == '{profile}'")
    terms += [term] if term else []
    selector = DeviceSelector(CelSelector(" && ".join(terms)))
    return DeviceClass(ObjectMeta(name=name), DeviceClassSpec((selector,), resource))
