"""What is known about containers and the devices that they can be given. Values only."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Holder

LABEL = "aliquot.reservation"
"""The label by which a container is known to be the one that a device was reserved for."""


class ContainerDevice(msgspec.Struct, frozen=True):
    """A MIG device, or a whole GPU that is not in MIG mode.

    ``gpu`` and ``number`` are what nvidia-smi writes as ``gpu:number``; ``number`` is -1 for a whole GPU. ``profile``
    is ``3g.20gb`` or ``1c.3g.20gb``, "" for a whole GPU; ``start`` its first memory slice. ``minors`` are those of its
    device nodes: the GPU's, then the capabilities of the GPU instance and of the compute instance. ``holders`` are on
    it now. ``shared`` says that other compute instances have the same GPU instance.
    """

    uuid: str
    gpu: int
    number: int
    profile: str
    start: int
    pci: str
    gpu_uuid: str
    minors: tuple[int, ...]
    holders: tuple[Holder, ...] = ()
    shared: bool = False

    @property
    def index(self) -> str:
        """As nvidia-smi numbers it: ``0:1``, or ``0`` for a whole GPU."""
        return f"{self.gpu}" if self.number < 0 else f"{self.gpu}:{self.number}"

    def __str__(self) -> str:
        what = f"{self.profile} of GPU {self.gpu}" if self.profile else f"GPU {self.gpu}"
        return f"{self.index}  {self.uuid}  {what}"


class RequestedDevices(msgspec.Struct, frozen=True):
    """What a container was started with. ``names`` are devices by any name (UUID, index, what comes after ``=`` in a
    CDI name); ``everything`` says that it asked for all GPUs, and so for none in particular; ``nodes`` are device nodes
    that it was given one by one.
    """

    names: tuple[str, ...] = ()
    everything: bool = False
    nodes: tuple[str, ...] = ()


class Container(msgspec.Struct, frozen=True):
    """A container, running or not. ``state`` is the runtime's word: created, running, paused, restarting, exited."""

    runtime: str
    id: str
    name: str
    state: str
    reservation: str = ""
    requested: RequestedDevices = RequestedDevices()

    @property
    def live(self) -> bool:
        """Whether it runs, or is about to: one that ended has its devices only if it is started again."""
        return self.state not in ("exited", "dead", "removing", "stopped", "stopping")

    @property
    def holder(self) -> Holder:
        """``id`` has the runtime before it: twelve digits alone would look like a process."""
        return Holder("container", f"{self.runtime or 'containerd'}:{self.id[:12]}", self.name)


class ContainerReservation(msgspec.Struct, frozen=True):
    """Devices that are kept for a container. ``id`` is the value of its label.

    ``made`` is when, in seconds since 1970; ``until`` when it ends if the container does not come, None for never.
    ``container`` is the id of the container once it was seen: then the reservation ends with it. ``connection_env`` is
    how the runtime was reached (variables such as DOCKER_HOST): it has to be asked the same way later.
    """

    id: str
    runtime: str
    devices: tuple[str, ...]
    requested: tuple[str, ...] = msgspec.field(name="asked")
    made: float
    until: float | None
    name: str = ""
    container: str = ""
    connection_env: dict[str, str] = msgspec.field(default_factory=dict, name="where")

    @property
    def holder(self) -> Holder:
        """Who has the devices until the container itself does."""
        return Holder("reservation", f"{self.runtime}:{self.id}", self.name)
