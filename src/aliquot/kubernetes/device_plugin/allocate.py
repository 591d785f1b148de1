"""Pure logic of Allocate: refusals and responses from only a snapshot of the resource."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter

import msgspec
from grpclib.const import Status

from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.gpu.device_resources import Delivery, ResourceDevice

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Device files that every GPU container needs. The driver creates them when it is loaded."""


class AllocationOptions(msgspec.Struct, frozen=True):
    """Ways in which a container gets its devices."""

    cdi: bool = True
    """Qualified CDI names ``<cdi_kind>=<uuid>`` (kubelet 1.28, containerd 1.7 or CRI-O 1.28, and later)."""
    env: bool = True
    """NVIDIA_VISIBLE_DEVICES with the UUIDs, for NVIDIA's container runtime."""
    device_nodes: bool = False
    """Device files and ``control_nodes``, for containers that include the driver's libraries."""
    cdi_kind: str = "nvidia.com/gpu"
    cdi_annotations: bool = False
    """CDI names as annotations, for older versions."""
    control_nodes: tuple[str, ...] = CONTROL_NODES
    dev_root: str = ""
    """Prefix of device paths on the host."""


class AllocationRefusal(msgspec.Struct, frozen=True):
    """Refusal of an allocation: a gRPC status and the sentence that appears in the pod's status."""

    status: Status
    text: str


class ResourceSnapshot(msgspec.Struct, frozen=True, dict=True):
    """A resource as last published."""

    resource: str
    devices: tuple[ResourceDevice, ...] = ()
    withheld: frozenset[str] = frozenset()
    """Ids of devices that are about to be destroyed."""

    @cached_property
    def by_id(self) -> dict[str, tuple[int, ResourceDevice]]:
        return {d.id: (n, d) for n, d in enumerate(self.devices)}

    @cached_property
    def usable(self) -> tuple[ResourceDevice, ...]:
        """Return the devices, with withheld ones marked unhealthy."""
        replace = msgspec.structs.replace
        return tuple(replace(d, healthy=d.healthy and d.id not in self.withheld) for d in self.devices)

    @cached_property
    def list_response(self) -> pb.ListAndWatchResponse:
        """Build the message for kubelet."""
        return pb.ListAndWatchResponse(devices=[_plugin_device(d) for d in self.usable])

    def refusal(self, ids: Sequence[str]) -> AllocationRefusal | None:
        """Return the refusal if these devices cannot be allocated to one container; None if they can."""
        if not ids or len(set(ids)) != len(ids):
            return AllocationRefusal(Status.INVALID_ARGUMENT, f"{self.resource}: no device requested, or one twice")
        for each in ids:
            if each not in self.by_id:
                return AllocationRefusal(
                    Status.NOT_FOUND,
                    f"{each} is no longer a device of {self.resource} on this node: its GPU was repartitioned. "
                    "A controller (Deployment, Job) creates the pod again; a bare pod must be created by hand",
                )
            if each in self.withheld:
                return AllocationRefusal(
                    Status.UNAVAILABLE, f"{each} ({self.resource}) is about to be destroyed: its GPU is repartitioned"
                )
            if not self.by_id[each][1].healthy:
                return AllocationRefusal(
                    Status.FAILED_PRECONDITION, f"{each} ({self.resource}) is unhealthy: check the GPU's Xid errors"
                )
        return None

    def ownerships(self, ids: Sequence[str], dev_root: str) -> dict[str, int]:
        """Return the files on the host that must get an owner before a container has these devices, with the owner."""
        chosen = [self.by_id[each][1] for each in ids]
        return {
            dev_root + path: device.delivery.owner
            for device in chosen
            if device.delivery is not None and device.delivery.owner is not None
            for path in device.paths
        }

    def response(self, ids: Sequence[str], options: AllocationOptions) -> pb.ContainerAllocateResponse:
        """Build the response for a container with these devices, which must have passed ``refusal``."""
        chosen = [d for _, d in sorted((self.by_id[each] for each in ids), key=itemgetter(0))]
        response = pb.ContainerAllocateResponse()
        plain = [d for d in chosen if d.delivery is None]
        if plain:
            self._add_configured(plain, options, response)
        for device in chosen:
            if device.delivery is not None:
                _add_delivered(device, device.delivery, options.dev_root, response)
        return response

    def _add_configured(
        self, chosen: Sequence[ResourceDevice], options: AllocationOptions, response: pb.ContainerAllocateResponse
    ) -> None:
        names = [f"{options.cdi_kind}={d.id}" for d in chosen]
        if options.env:
            response.envs[VISIBLE_DEVICES] = ",".join(d.id for d in chosen)
        if options.cdi:
            response.cdi_devices.extend(pb.CDIDevice(name=name) for name in names)
        if options.cdi_annotations:
            response.annotations[_annotation(self.resource)] = ",".join(names)
        if options.device_nodes:
            paths = dict.fromkeys([p for d in chosen for p in d.paths] + list(options.control_nodes))
            response.devices.extend(_file(path, options.dev_root, "rw") for path in paths)


def _add_delivered(
    device: ResourceDevice, delivery: Delivery, dev_root: str, response: pb.ContainerAllocateResponse
) -> None:
    """Add a device to the response. A file that several devices need is listed once."""
    previous, value = response.envs.get(delivery.variable), delivery.value or device.id
    response.envs[delivery.variable] = f"{previous},{value}" if previous else value
    known = {each.container_path for each in response.devices}
    paths = dict.fromkeys((*delivery.common, *device.paths))
    response.devices.extend(_file(path, dev_root, delivery.permissions) for path in paths if path not in known)


def _file(path: str, dev_root: str, permissions: str) -> pb.DeviceSpec:
    return pb.DeviceSpec(container_path=path, host_path=dev_root + path, permissions=permissions)


def _annotation(resource: str) -> str:
    """Return CDI's annotation key: one per plugin and resource, with at most 63 characters after the prefix."""
    return "cdi.k8s.io/aliquot_" + resource.rpartition("/")[2]


def _plugin_device(device: ResourceDevice) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa is not None:
        message.topology.nodes.add(ID=device.numa)
    return message
