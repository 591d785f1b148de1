"""A model of what pcidevices 1.8 does with USB devices and network ports on one node, on the objects of a ``Store``.

Facts are from harvester/pcidevices bdd8025: pkg/controller/usbdevice, pkg/controller/sriovdevice, pkg/util/nichelper.
Its writes know only its own fields, so that ours vanish.
"""

from __future__ import annotations

from aliquot.core.model.peripherals import UsbDevice
from aliquot.hardware.kernel.network_ports import set_functions
from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.kinds.harvester_peripherals import USB_FINALIZER
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One

API_VERSION = "devices.harvesterhci.io/v1beta1"


class PcidevicesPeripherals:
    """The controller. ``run`` is its reconciliation with the handlers that its writes wake."""

    def __init__(self, one: One) -> None:
        self.one, self.store = one, one.store

    def run(self) -> None:
        """Run until nothing changes."""
        for _ in range(6):
            before = repr(self.store.objects)
            self._claims()
            self._usb()
            self._ports()
            if before == repr(self.store.objects):
                return
        raise AssertionError("pcidevices does not come to rest")

    def _usb(self) -> None:
        """Create the objects of new device files. Delete those of files that are gone, with their claims."""
        seen = self.one.view().peripherals
        assert seen is not None
        stored = {body["status"]["devicePath"]: name for name, body in self.store.of("USBDevice").items()}
        for device in seen.usb:
            name = stored.pop(device.path, "")
            if not name:
                self._create("USBDevice", self._name(device), self._status(device))
        for name in stored.values():
            if name in self.store.of("USBDeviceClaim"):
                self.store.delete("USBDeviceClaim", name)
            elif not self.store.get("USBDevice", name)["status"]["enabled"]:
                self.store.delete("USBDevice", name)

    def _claims(self) -> None:
        for name, claim in self.store.of("USBDeviceClaim").items():
            if name not in self.store.of("USBDevice"):
                continue
            device, meta = self.store.get("USBDevice", name), claim["metadata"]
            leaving = bool(meta.get("deletionTimestamp"))
            device["status"] = {k: v for k, v in device["status"].items() if k in _USB_FIELDS} | {
                "enabled": not leaving
            }
            if leaving:
                self.store.patch("USBDeviceClaim", name, {"metadata": {"finalizers": []}})
                continue
            meta["finalizers"] = [USB_FINALIZER]
            claim["status"] = {"nodeName": self.one.name, "pciAddress": device["status"]["pciAddress"]}

    def _ports(self) -> None:
        seen = self.one.view().peripherals
        assert seen is not None
        for port in seen.ports:
            name = f"{self.one.name}-{port.interface}".lower()
            if name not in self.store.of("SRIOVNetworkDevice"):
                self._create("SRIOVNetworkDevice", name, {}, {"address": port.address, "nodeName": "n", "numVFs": 0})
            body = self.store.get("SRIOVNetworkDevice", name)
            wanted = body["spec"]["numVFs"]
            if wanted != len(port.functions):
                set_functions(self.one.node.files, port.address, wanted)
            port = next(p for p in self.one._peripherals().ports if p.interface == port.interface)
            found = [each.address for each in port.functions]
            names = [object_name(self.one.name, each) for each in found]
            enabled = {"vfAddresses": found, "vfPCIDevices": names, "status": "sriovNetworkDeviceEnabled"}
            body["status"] = enabled if found else {"status": "sriovNetworkDeviceDisabled"}

    def _create(self, kind: str, name: str, status: JSON, spec: JSON | None = None) -> None:
        meta = {"name": name, "labels": {"nodename": self.one.name}}
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": meta} | ({} if spec is None else {"spec": spec})
        self.store.create(kind, body)
        self.store.get(kind, name)["status"] = status

    def _name(self, device: UsbDevice) -> str:
        number = device.path.removeprefix("/dev/bus/usb/").replace("/", "")
        return f"{self.one.name}-{device.vendor_id}-{device.product_id}-{number}"

    def _status(self, device: UsbDevice) -> JSON:
        return {
            "vendorID": device.vendor_id,
            "productID": device.product_id,
            "resourceName": f"kubevirt.io/{self._name(device)}",
            "nodeName": self.one.name,
            "devicePath": device.path,
            "description": device.description,
            "pciAddress": device.controller,
            "classType": device.class_type,
            "enabled": False,
        }


_USB_FIELDS = (
    *("vendorID", "productID", "nodeName", "resourceName", "devicePath", "description", "pciAddress", "classType"),
    *("enabled", "status", "message"),
)
