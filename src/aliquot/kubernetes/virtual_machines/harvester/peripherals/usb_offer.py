"""The USB devices that a node's device plugins offer to VMs. Pure.

Each device has a resource of its own. Sources: the variable that virt-launcher reads (KubeVirt, pkg/virt-launcher), and
the device plugin of harvester/pcidevices (ids, variable, device files, their owner).
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.gpu.device_resources import Delivery, DeviceResource, ResourceDevice
from aliquot.kubernetes.kinds.harvester_names import environment
from aliquot.kubernetes.kinds.harvester_peripherals import USB_ENV, usb_resource
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.peripherals.usb_devices import present_devices, served_claims


def usb_resources(view: NodeView, objects: Objects, owner: int | None) -> Iterator[DeviceResource]:
    """Yield the resources of the claimed USB devices. One that is unplugged is unhealthy.

    ``owner`` is the user that must own the device's file before a VM gets it; None to leave the file alone.
    """
    present = present_devices(view)
    for name in sorted(served_claims(view, objects)):
        device, resource = present.get(name), usb_resource(name)
        numbers = f"{device.bus}:{device.number}" if device is not None else ""
        yield DeviceResource(
            resource,
            (
                ResourceDevice(
                    id=name,
                    gpu="",
                    paths=(device.path,) if device is not None else (),
                    index="",
                    numa=None,
                    healthy=device is not None,
                    delivery=Delivery(environment(resource, USB_ENV), value=numbers, owner=owner),
                ),
            ),
        )
