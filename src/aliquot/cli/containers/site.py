"""What ``aliquot docker`` finds of a node and its runtimes, and what a command line asks of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.containers import docker_view as dockerview
from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError, LockedError, UsageError

if TYPE_CHECKING:
    from aliquot.containers.runtime.cdi_names import Entry
    from aliquot.containers.runtime.choose import Busy
    from aliquot.containers.runtime.expire import Settled
    from aliquot.containers.runtime.models import Container, Device, Reservation
    from aliquot.containers.runtime.runtimes import Runtime
    from aliquot.node.connect import Connection
    from aliquot.node.holders.reservations import Reservations

_POLL_S = 0.05


class Site:
    """What was found at one look: the node's devices, what they are called, and who has each."""

    __slots__ = ("busy", "containers", "devices", "entries", "names", "settled", "simulated")

    def __init__(self, connection: Connection, directories: Sequence[str]) -> None:
        from aliquot.cdi.spec_files import read
        from aliquot.containers.runtime.cdi_names import by_name, entries
        from aliquot.containers.runtime.devices import devices
        from aliquot.containers.runtime.expire import settle
        from aliquot.containers.runtime.reserve import busy
        from aliquot.containers.runtime.runtimes import Answers
        from aliquot.node.holders.reservations import Reservations

        numbers = {d.uuid: d.index for d in connection.backend.facts().mig_devices if d.index >= 0}
        self.devices: tuple[Device, ...] = devices(connection.backend.read(), numbers)
        self.simulated = connection.directory if connection.simulated else ""
        self.entries: tuple[Entry, ...] = entries([found for d in directories for found in read(d)])
        self.names = by_name(self.entries, self.devices, self.simulated)
        answers = Answers()
        present = frozenset(d.uuid for d in self.devices)
        recorded = Reservations(connection.directory).load()
        self.settled: Settled = settle(recorded, answers.of, present, time.time(), answers.departed)
        self.containers: tuple[Container, ...] = answers.here()
        self.busy: Busy = busy(self.devices, self.containers, self.names)
        for sentence in answers.silent:
            streams.note(f"note     {sentence}: what its containers have is known only where they run")


class Order:
    """What a command line asks for, checked as far as it can be without a machine."""

    __slots__ = ("args", "form", "hold", "runtime")

    def __init__(self, args: Args, counts: Sequence[int]) -> None:
        from aliquot.containers.runtime.run_arguments import form_of
        from aliquot.containers.runtime.runtimes import Runtime

        self.args = args
        self.hold = _hold(args)
        self.runtime: Runtime = Runtime(args.runtime or _chosen(args.form))
        self.form = form_of(args.form, self.runtime.name, max(counts))

    def directories(self) -> tuple[str, ...]:
        """Where the runtime looks for CDI files. Raises RuntimeAwayError for a runtime that nothing can be reserved
        for, BlockedError for one that takes no CDI names.
        """
        from aliquot.cdi.spec_files import DIRECTORIES

        reached = self._reached()
        if self.args.spec_dir:
            return tuple(self.args.spec_dir)
        if self.form != "cdi" or self.runtime.name != "docker" or not reached:
            return DIRECTORIES
        found = self.runtime.info().get("CDISpecDirs")
        if not found:
            error = BlockedError(
                "Docker's daemon does not take CDI names: it is too old, or CDI is off",
                details=("--form legacy needs no CDI, but NVIDIA's container toolkit",),
                next_step="aliquot docker check",
            )
            error.code = "CDI_OFF"
            raise error
        return tuple(map(str, found))

    def _reached(self) -> bool:
        """Whether there is a runtime to ask: whoever only picks may do so for later."""
        from aliquot.containers.runtime.errors import RuntimeAwayError

        name, reached = self.runtime.name, self.runtime.worth_asking
        if self.runtime.elsewhere:
            raise RuntimeAwayError(
                f"{name} speaks to {self.runtime.elsewhere}: its containers run on another machine",
                next_step="unset DOCKER_HOST CONTAINER_HOST",
            )
        if not reached and not self.args.no_reserve:
            what = "does not run" if self.runtime.installed else "is not installed"
            raise RuntimeAwayError(
                f"{name} {what}: nobody could tell when its container is gone",
                details=(*_besides(name), "--no-reserve only picks a device"),
                next_step="aliquot docker check",
            )
        return reached

    def cdi(self, site: Site, device: Device) -> str:
        """The device's full CDI name. Raises BlockedError where no file has one that is right."""
        from aliquot.containers.runtime.cdi_names import name_of

        if self.form != "cdi":
            return ""
        name = name_of(device, site.entries, site.simulated)
        if not name:
            raise dockerview.no_name(device, site)
        if name.partition("=")[2] != device.uuid:
            streams.note(f"note     no CDI file names {device.uuid}: {name} is the same device only until a change")
        return name

    def reserved(self, devices: Sequence[Device], asked: Sequence[str], name: str) -> Reservation:
        import msgspec

        from aliquot.containers.runtime.reserve import reservation

        now = time.time()
        made = reservation(devices, asked, runtime=self.runtime.name, where=self.runtime.where, name=name, now=now)
        return msgspec.structs.replace(made, until=None if self.hold is None else now + self.hold)


def _chosen(form: str) -> str:
    """Choose the first runtime that is ready, by ``NAMES``; the first that is installed where none is: its error says
    what is missing. The only one that is installed is not asked.
    """
    from aliquot.containers.runtime.errors import RuntimeAwayError
    from aliquot.containers.runtime.runtimes import NAMES, Runtime

    here = [each for each in map(Runtime, NAMES) if each.installed]
    if not here:
        raise RuntimeAwayError(
            "no container runtime is installed: neither docker, podman nor nerdctl", next_step="aliquot docker check"
        )
    ready = (each for each in here if _ready(each, form))
    return (here[0] if len(here) == 1 else next(ready, here[0])).name


def _ready(runtime: Runtime, form: str) -> bool:
    """Whether a runtime answers and takes what is meant: Docker's daemon may be down, or have CDI switched off."""
    from aliquot.containers.runtime.errors import RuntimeAwayError

    if not runtime.worth_asking or runtime.elsewhere:
        return False
    if runtime.name != "docker":
        return (runtime.name, form) not in (("podman", "gpus"), ("nerdctl", "env"))
    try:
        info = runtime.info()
    except RuntimeAwayError:
        return False
    return form != "cdi" or bool(info.get("CDISpecDirs"))


def _besides(name: str) -> tuple[str, ...]:
    """What to type for the runtimes that are here besides one that cannot be asked."""
    from aliquot.containers.runtime.runtimes import NAMES, Runtime

    return tuple(f"--runtime {n}: it can be asked" for n in NAMES if n != name and Runtime(n).worth_asking)


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
def alone(args: Args, connection: Connection, store: Reservations) -> Iterator[None]:
    """Pickers wait for each other; and for an apply, so that nothing is reserved that is about to be destroyed."""
    if not 0 <= args.wait < float("inf"):
        raise UsageError("--wait takes seconds, 0 or more", next_step=f"{args.prog} --help")
    deadline = time.monotonic() + args.wait
    with store.alone(args.wait), ExitStack() as stack:
        while True:
            try:
                stack.enter_context(connection.lock.hold())
                break
            except LockedError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_S)
        yield
