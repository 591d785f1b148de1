"""What a container gets, from a snapshot alone: pure, and all that Allocate does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter

import msgspec
from grpclib.const import Status

from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.gpu.device_resources import Delivery, Device

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Device files that every GPU container needs; the driver makes them as it is loaded."""


class Allocation(msgspec.Struct, frozen=True):
    """How a container gets its devices.

    ``cdi``: qualified CDI names ``<cdi_kind>=<uuid>`` (kubelet 1.28, containerd 1.7 or CRI-O 1.28 and later);
    ``cdi_annotations``: the same as annotations, for older ones; ``env``: NVIDIA_VISIBLE_DEVICES with the UUIDs, for
    NVIDIA's container runtime; ``device_nodes``: the device files, for containers that bring the driver's libraries
    themselves, together with ``control_nodes``; ``dev_root`` is put before a path on the host.
    """

    cdi: bool = True
    env: bool = True
    device_nodes: bool = False
    cdi_kind: str = "nvidia.com/gpu"
    cdi_annotations: bool = False
    control_nodes: tuple[str, ...] = CONTROL_NODES
    dev_root: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why devices are not given: a gRPC status and the sentence that ends up in the pod's status."""

    status: Status
    text: str


class Snapshot(msgspec.Struct, frozen=True, dict=True):
    """One resource as it was last published. ``held`` are ids about to be destroyed."""

    resource: str
    devices: tuple[Device, ...] = ()
    held: frozenset[str] = frozenset()

    @cached_property
    def by_id(self) -> dict[str, tuple[int, Device]]:
        return {d.id: (n, d) for n, d in enumerate(self.devices)}

    @cached_property
    def usable(self) -> tuple[Device, ...]:
        """The devices with held ones marked unhealthy."""
        replace = msgspec.structs.replace
        return tuple(replace(d, healthy=d.healthy and d.id not in self.held) for d in self.devices)

    @cached_property
    def listed(self) -> pb.ListAndWatchResponse:
        """The message that kubelet is sent."""
        return pb.ListAndWatchResponse(devices=[_device(d) for d in self.usable])

    def refusal(self, ids: Sequence[str]) -> Refusal | None:
        """Why these devices cannot be given to one container, None if they can."""
        if not ids or len(set(ids)) != len(ids):
            return Refusal(Status.INVALID_ARGUMENT, f"{self.resource}: no device asked for, or one twice")
        for each in ids:
            if each not in self.by_id:
                return Refusal(
                    Status.NOT_FOUND,
                    f"{each} is no device of {self.resource} on this node any more: its GPU was divided anew. "
                    "A controller (Deployment, Job) makes the pod again; a bare pod must be created again",
                )
            if each in self.held:
                return Refusal(
                    Status.UNAVAILABLE, f"{each} ({self.resource}) is about to be destroyed: its GPU is divided anew"
                )
            if not self.by_id[each][1].healthy:
                return Refusal(Status.FAILED_PRECONDITION, f"{each} ({self.resource}) is unhealthy: see the GPU's XIDs")
        return None

    def answer(self, ids: Sequence[str], how: Allocation) -> pb.ContainerAllocateResponse:
        """What a container with these devices gets. They must have passed ``refusal``."""
        chosen = [d for _, d in sorted((self.by_id[each] for each in ids), key=itemgetter(0))]
        out = pb.ContainerAllocateResponse()
        plain = [d for d in chosen if d.delivery is None]
        if plain:
            self._as_settings_say(plain, how, out)
        for device in chosen:
            if device.delivery is not None:
                _deliver(device, device.delivery, how.dev_root, out)
        return out

    def _as_settings_say(self, chosen: Sequence[Device], how: Allocation, out: pb.ContainerAllocateResponse) -> None:
        names = [f"{how.cdi_kind}={d.id}" for d in chosen]
        if how.env:
            out.envs[VISIBLE_DEVICES] = ",".join(d.id for d in chosen)
        if how.cdi:
            out.cdi_devices.extend(pb.CDIDevice(name=name) for name in names)
        if how.cdi_annotations:
            out.annotations[_annotation(self.resource)] = ",".join(names)
        if how.device_nodes:
            paths = dict.fromkeys([p for d in chosen for p in d.paths] + list(how.control_nodes))
            out.devices.extend(_file(path, how.dev_root, "rw") for path in paths)


def _deliver(device: Device, way: Delivery, dev_root: str, out: pb.ContainerAllocateResponse) -> None:
    """Adds one device to what the container gets already; a file that two devices need is there once."""
    former = out.envs.get(way.variable)
    out.envs[way.variable] = f"{former},{device.id}" if former else device.id
    known = {each.container_path for each in out.devices}
    paths = dict.fromkeys((*way.common, *device.paths))
    out.devices.extend(_file(path, dev_root, way.permissions) for path in paths if path not in known)


def _file(path: str, dev_root: str, permissions: str) -> pb.DeviceSpec:
    return pb.DeviceSpec(container_path=path, host_path=dev_root + path, permissions=permissions)


def _annotation(resource: str) -> str:
    """CDI's annotation key: one per plugin and resource, at most 63 characters after the prefix."""
    return "cdi.k8s.io/aliquot_" + resource.rpartition("/")[2]


def _device(device: Device) -> pb.Device:
    out = pb.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
    if device.numa is not None:
        out.topology.nodes.add(ID=device.numa)
    return out
