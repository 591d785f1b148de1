"""The node and container runtime that ``aliquot docker`` reads, and the request of a command line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.framework import streams
from aliquot.cli.framework.directories import require_directories
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError, LockedError, PermissionDeniedError, UsageError

if TYPE_CHECKING:
    from aliquot.containers.runtime.cdi_names import CdiEntry
    from aliquot.containers.runtime.choose import Busy
    from aliquot.containers.runtime.expire import ExpiryResult
    from aliquot.containers.runtime.models import Container, ContainerDevice, ContainerReservation
    from aliquot.containers.runtime.runtimes import ContainerRuntime
    from aliquot.node.connect import Connection
    from aliquot.node.holders.reservations import ReservationFile

_POLL_S = 0.05
_FILE = "/var/run/cdi/nvidia.com-gpu.yaml"


class ContainerHost:
    """An observation of a node: its devices, their CDI names, and the holder of each."""

    __slots__ = ("busy", "containers", "devices", "entries", "inventory", "names", "settled", "simulated")

    def __init__(self, connection: Connection, directories: Sequence[str]) -> None:
        from aliquot.cdi.spec_files import read
        from aliquot.containers.runtime.cdi_names import by_name, entries
        from aliquot.containers.runtime.devices import devices
        from aliquot.containers.runtime.expire import expire_reservations
        from aliquot.containers.runtime.reserve import busy
        from aliquot.containers.runtime.runtimes import RuntimeQueries
        from aliquot.node.holders.reservations import ReservationFile

        numbers = {d.uuid: d.index for d in connection.backend.facts().mig_devices if d.index >= 0}
        self.inventory = connection.backend.read()
        self.devices: tuple[ContainerDevice, ...] = devices(self.inventory, numbers)
        self.simulated = connection.directory if connection.simulated else ""
        self.entries: tuple[CdiEntry, ...] = entries([found for d in directories for found in read(d)])
        self.names = by_name(self.entries, self.devices, self.simulated)
        answers = RuntimeQueries()
        present = frozenset(d.uuid for d in self.devices)
        recorded = ReservationFile(connection.directory).load()
        self.settled: ExpiryResult = expire_reservations(
            recorded, answers.containers_for, present, time.time(), answers.departed
        )
        self.containers: tuple[Container, ...] = answers.local_containers()
        self.busy: Busy = busy(self.devices, self.containers, self.names)
        for sentence in answers.errors:
            streams.note(f"note     {sentence}: devices of its containers are known only while they run")


class DeviceOrder:
    """A request of a command line, checked as far as possible without reading the host."""

    __slots__ = ("args", "form", "hold", "runtime")

    def __init__(self, args: Args, counts: Sequence[int]) -> None:
        from aliquot.containers.runtime.run_arguments import form_of
        from aliquot.containers.runtime.runtimes import ContainerRuntime

        self.args = args
        self.hold = _hold(args)
        require_directories("--spec-dir", args.spec_dir or (), args)
        self.runtime: ContainerRuntime = ContainerRuntime(args.runtime or _chosen(args.form))
        self.form = form_of(args.form, self.runtime.name, max(counts))

    def directories(self) -> tuple[str, ...]:
        """Return the folders in which the runtime searches CDI files.

        Raises RuntimeUnavailableError for a runtime for which nothing can be reserved, BlockedError for one that
        does not take CDI names.
        """
        from aliquot.cdi.spec_files import DIRECTORIES

        reached = self._check_runtime()
        if self.args.spec_dir:
            return tuple(self.args.spec_dir)
        if self.form != "cdi" or self.runtime.name != "docker" or not reached:
            return DIRECTORIES
        found = self.runtime.info().get("CDISpecDirs")
        if not found:
            raise BlockedError(
                "Docker's daemon does not take CDI names: it is too old, or CDI is disabled",
                code="CDI_OFF",
                details=("--form legacy does not need CDI, but needs NVIDIA's container toolkit",),
                next_step="aliquot docker check",
            )
        return tuple(map(str, found))

    def _check_runtime(self) -> bool:
        """Report whether the runtime can be queried. With --no-reserve it need not run yet."""
        from aliquot.containers.runtime.errors import RuntimeUnavailableError

        name, reached = self.runtime.name, self.runtime.worth_asking
        if self.runtime.remote_address:
            raise RuntimeUnavailableError(
                f"{name} connects to {self.runtime.remote_address}: its containers run on another host",
                next_step="unset DOCKER_HOST CONTAINER_HOST",
            )
        if not reached and not self.args.no_reserve:
            what = "does not run" if self.runtime.installed else "is not installed"
            raise RuntimeUnavailableError(
                f"{name} {what}: without it Aliquot cannot detect when the container ends",
                details=(*_other_runtimes(name), "--no-reserve picks a device without reserving it"),
                next_step="aliquot docker check",
            )
        return reached

    def cdi(self, host: ContainerHost, device: ContainerDevice) -> str:
        """Return the device's full CDI name. Raises BlockedError if no CDI file has a correct one."""
        from aliquot.containers.runtime.cdi_names import name_of

        if self.form != "cdi":
            return ""
        name = name_of(device, host.entries, host.simulated)
        if not name:
            raise _no_name(device, host)
        if name.partition("=")[2] != device.uuid:
            streams.note(f"note     no CDI file has {device.uuid}: {name} names this device only until the next change")
        return name

    def reservation(
        self, devices: Sequence[ContainerDevice], requested: Sequence[str], name: str
    ) -> ContainerReservation:
        import msgspec

        from aliquot.containers.runtime.reserve import reservation

        now = time.time()
        made = reservation(
            devices,
            requested,
            runtime=self.runtime.name,
            connection_env=self.runtime.connection_env,
            name=name,
            now=now,
        )
        return msgspec.structs.replace(made, until=None if self.hold is None else now + self.hold)


def _chosen(form: str) -> str:
    """Choose the first runtime of ``NAMES`` that is ready. A runtime that is the only installed one is not queried.

    If none is ready, choose the first installed one, whose error says what is missing.
    """
    from aliquot.containers.runtime.errors import RuntimeUnavailableError
    from aliquot.containers.runtime.runtimes import NAMES, ContainerRuntime

    installed = [each for each in map(ContainerRuntime, NAMES) if each.installed]
    if not installed:
        raise RuntimeUnavailableError(
            "no container runtime is installed: install docker, podman or nerdctl", next_step="aliquot docker check"
        )
    ready = (each for each in installed if _ready(each, form))
    return (installed[0] if len(installed) == 1 else next(ready, installed[0])).name


def _ready(runtime: ContainerRuntime, form: str) -> bool:
    """Report whether a runtime answers and takes the form: Docker's daemon may be down, or have CDI disabled."""
    from aliquot.containers.runtime.errors import RuntimeUnavailableError

    if not runtime.worth_asking or runtime.remote_address:
        return False
    if runtime.name != "docker":
        return (runtime.name, form) not in (("podman", "gpus"), ("nerdctl", "env"))
    try:
        info = runtime.info()
    except RuntimeUnavailableError:
        return False
    return form != "cdi" or bool(info.get("CDISpecDirs"))


def _other_runtimes(name: str) -> tuple[str, ...]:
    """Return the options that choose another installed runtime instead of one that does not answer."""
    from aliquot.containers.runtime.runtimes import NAMES, ContainerRuntime

    return tuple(f"--runtime {n} is available" for n in NAMES if n != name and ContainerRuntime(n).worth_asking)


def _hold(args: Args) -> float | None:
    if args.hold == "forever":
        return None
    try:
        seconds = float(args.hold)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise UsageError("--hold takes seconds, more than 0, or 'forever'", next_step=f"{args.prog} --help")
    return seconds


@contextmanager
def exclusive_access(args: Args, connection: Connection, store: ReservationFile) -> Iterator[None]:
    """Hold the locks while picking: wait for other pickers, and for an apply, which may destroy the instance."""
    if not 0 <= args.wait < float("inf"):
        raise UsageError("--wait takes seconds, 0 or more", next_step=f"{args.prog} --help")
    deadline = time.monotonic() + args.wait
    with ExitStack() as stack:
        try:
            stack.enter_context(store.exclusive(args.wait))
        except PermissionDeniedError as denied:
            denied.details += ("--no-reserve picks a device without reserving it, so others may take it too",)
            raise
        while True:
            try:
                stack.enter_context(connection.lock.hold())
                break
            except LockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_S)
        yield


def _no_name(device: ContainerDevice, host: ContainerHost) -> BlockedError:
    """Build the error for a device that no CDI file has under any name."""
    outdated = sorted({e.path for e in host.entries if e.simulated == host.simulated})
    if outdated:
        sentence = f"no CDI file has {device.uuid}: {', '.join(outdated)} lists other instances"
    else:
        sentence = f"no CDI file has {device.uuid}: no CDI file lists a device of this node"
    details = ("--form legacy does not need CDI, but needs NVIDIA's container toolkit",)
    file = next((path for path in outdated if path.endswith("nvidia.com-gpu.yaml")), _FILE)
    return BlockedError(sentence, code="NO_CDI_NAME", details=details, next_step=f"aliquot cdi generate --out {file}")
