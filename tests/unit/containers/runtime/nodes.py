"""A node for container tests: two A100, the first with two 3g.20gb, the second with a 1g.5gb and a 2g.10gb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot.containers.runtime.devices import devices
from aliquot.containers.runtime.models import Container, ContainerDevice, ContainerReservation, RequestedDevices
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory
from support import factory


def uuid(gpu: int, instance: int, compute: int = 0) -> str:
    """Return the UUID of a MIG device."""
    return f"MIG-{gpu:08x}-{instance:04x}-4000-8000-{compute:012x}"


def instance(gpu: int, ident: int, profile: str, placement: str, held: Sequence[Holder] = ()) -> GpuInstance:
    """Build a GPU instance with one compute instance that fills it."""
    minor = 3 + 135 * gpu + 9 * ident
    whole = ComputeInstance(0, profile, 0, "0:1", uuid(gpu, ident), minor + 1)
    return GpuInstance(ident, profile, 0, placement, bool(held), tuple(held), minor, (whole,))


def node() -> Inventory:
    """Build the node."""
    found = factory.inventory("a100-sxm4-40gb*3", enabled=True)
    cut = (
        (instance(0, 1, "3g.20gb", "0:4"), instance(0, 2, "3g.20gb", "4:4")),
        (instance(1, 7, "1g.5gb", "0:1"), instance(1, 5, "2g.10gb", "2:2")),
    )
    first, second, third = found.gpus
    off = msgspec.structs.replace(third.mig, current="disabled", pending="disabled")
    gpus: tuple[Gpu, ...] = (
        msgspec.structs.replace(first, instances=cut[0]),
        msgspec.structs.replace(second, instances=cut[1]),
        msgspec.structs.replace(third, mig=off),
    )
    return msgspec.structs.replace(found, gpus=gpus)


def all_devices() -> tuple[ContainerDevice, ...]:
    """Return the devices that containers can have on the node: 0:0, 0:1, 1:0 (2g.10gb), 1:1 (1g.5gb), and GPU 2."""
    return devices(node())


def container(ident: str = "c" * 64, state: str = "running", **fields: Any) -> Container:
    """Build a Docker container."""
    given: dict[str, Any] = {"name": "web", "reservation": "", "requested": RequestedDevices()} | fields
    return Container("docker", ident, state=state, **given)


def reservation(ident: str = "r1", **fields: Any) -> ContainerReservation:
    """Build a reservation of the first device for ten minutes, made at second 1000."""
    usual = {"devices": (uuid(0, 1),), "requested": ("3g.20gb",), "made": 1000.0, "until": 1600.0}
    given: dict[str, Any] = usual | fields
    return ContainerReservation(ident, "docker", **given)


def spec(devices: Mapping[str, Sequence[str]], *, kind: str = "nvidia.com/gpu", simulated: str = "") -> dict[str, Any]:
    """Build a CDI document from the device nodes of each name."""
    mounts = [{"hostPath": simulated, "containerPath": "/run/aliquot-sim"}] if simulated else []
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": p} for p in paths]}}
            for name, paths in devices.items()
        ],
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}], "mounts": mounts},
    }


def nodes_of(device: ContainerDevice) -> list[str]:
    """Return the paths of a device's nodes."""
    gpu, *caps = device.minors
    return [f"/dev/nvidia{gpu}", *(f"/dev/nvidia-caps/nvidia-cap{m}" for m in caps)]


def full_spec(found: Sequence[ContainerDevice]) -> dict[str, Any]:
    """Build the correct CDI document for these devices, named by UUID and by index."""
    return spec({d.uuid: nodes_of(d) for d in found} | {d.index: nodes_of(d) for d in found})
