"""Containers, and the devices that they can get. Values only."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Holder

LABEL = "aliquot.reservation"
"""The label that identifies the container for which a device was reserved."""


class ContainerDevice(msgspec.Struct, frozen=True):
    """A MIG device, or a whole GPU that is not in MIG mode. nvidia-smi writes it as ``gpu:number``."""

    uuid: str
    gpu: int
    number: int
    """The number of the MIG device, or -1 for a whole GPU."""
    profile: str
    """``3g.20gb`` or ``1c.3g.20gb``, or "" for a whole GPU."""
    start: int
    """The first memory slice of the profile."""
    pci: str
    gpu_uuid: str
    minors: tuple[int, ...]
    """Minors of its device nodes: the GPU's, then the capabilities of the GPU instance and of the compute instance."""
    holders: tuple[Holder, ...] = ()
    """Current holders."""
    shared: bool = False
    """True if the GPU instance has other compute instances."""

    @property
    def index(self) -> str:
        """nvidia-smi's number: ``0:1``, or ``0`` for a whole GPU."""
        return f"{self.gpu}" if self.number < 0 else f"{self.gpu}:{self.number}"

    def __str__(self) -> str:
        what = f"{self.profile} of GPU {self.gpu}" if self.profile else f"GPU {self.gpu}"
        return f"{self.index}  {self.uuid}  {what}"


class RequestedDevices(msgspec.Struct, frozen=True):
    """Devices that a container was started with."""

    names: tuple[str, ...] = ()
    """Any names of devices: UUID, index, or the part after ``=`` of a CDI name."""
    everything: bool = False
    """True if it requested all GPUs, and so no device in particular."""
    nodes: tuple[str, ...] = ()
    """Device nodes that it was given one by one."""


class Container(msgspec.Struct, frozen=True):
    """A container, running or not."""

    runtime: str
    id: str
    name: str
    state: str
    """The runtime's word: created, running, paused, restarting, exited."""
    reservation: str = ""
    requested: RequestedDevices = RequestedDevices()

    @property
    def live(self) -> bool:
        """True if it runs or is about to. A container that ended has its devices only if it is started again."""
        return self.state not in ("exited", "dead", "removing", "stopped", "stopping")

    @property
    def holder(self) -> Holder:
        """The container as a holder. The id starts with the runtime, because twelve digits would look like a
        process.
        """
        return Holder("container", f"{self.runtime or 'containerd'}:{self.id[:12]}", self.name)


class ContainerReservation(msgspec.Struct, frozen=True):
    """Devices that are reserved for a container."""

    id: str
    """The value of the container's label."""
    runtime: str
    devices: tuple[str, ...]
    requested: tuple[str, ...] = msgspec.field(name="asked")
    made: float
    """When it was made, in seconds since 1970."""
    until: float | None
    """When it ends if the container does not come, in seconds since 1970; None for never."""
    name: str = ""
    container: str = ""
    """The id of the container once it was seen. From then on the reservation ends with it."""
    connection_env: dict[str, str] = msgspec.field(default_factory=dict, name="where")
    """Variables such as DOCKER_HOST that reach the runtime. Later queries must use the same ones."""

    @property
    def holder(self) -> Holder:
        """The reservation as the holder of the devices until its container holds them."""
        return Holder("reservation", f"{self.runtime}:{self.id}", self.name)
