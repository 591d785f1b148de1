"""``aliquot docker``: MIG devices for plain containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.containers import docker_view as dockerview
from aliquot.cli.containers.container_host import ContainerHost, DeviceOrder, exclusive_access
from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import output, owned_files, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.containers.runtime.models import ContainerDevice, ContainerReservation


def run(args: Args) -> int:
    verbs: dict[str, Callable[[Args], int]] = {
        "run-args": _run_args,
        "compose": _compose,
        "list": _list,
        "release": _release,
    }
    return verbs[args.verb](args)


def _run_args(args: Args) -> int:
    from aliquot.containers.runtime.run_arguments import checked_name, run_arguments

    wanted = _requests(args, args.what)
    name = checked_name(args.name) if args.name else ""
    request = DeviceOrder(args, [len(wanted)])
    with _picking(args, request) as (host, reserve):
        devices = _picked(args, host, wanted)
        cdi = [request.cdi(host, d) for d in devices]
        made = request.reservation(devices, wanted, name)
        reserve([made])
    label = "" if args.no_reserve else made.id
    words = run_arguments(devices, request.form, request.runtime.name, cdi=cdi, label=label, name=name)
    dockerview.remarks(host, devices, request.form)
    document = output.build(
        "ContainerArguments",
        runtime=request.runtime.name,
        form=request.form,
        args=words,
        devices=[dockerview.plain(d) for d in devices],
        reservation=None if args.no_reserve else made,
    )
    output.emit(document, args.output, " ".join(words))
    return 0


def _compose(args: Args) -> int:
    from aliquot.containers.runtime.compose import Service, document, parse_services
    from aliquot.core.config.formats.yaml_writer import to_yaml

    wanted = {name: _requests(args, [what]) for name, what in parse_services(args.services)}
    if path := documents.target(args):  # before anything is reserved
        owned_files.check(path, force=args.force)
    request = DeviceOrder(args, [len(words) for words in wanted.values()] if args.form != "gpus" else [1])
    with _picking(args, request) as (host, reserve):
        picked = iter(_picked(args, host, [w for words in wanted.values() for w in words]))
        devices_of = {name: tuple(next(picked) for _ in words) for name, words in wanted.items()}
        cdi = {name: tuple(request.cdi(host, d) for d in devices) for name, devices in devices_of.items()}
        made = {name: request.reservation(devices_of[name], words, name) for name, words in wanted.items()}
        reserve(list(made.values()))
    labels = {name: "" if args.no_reserve else each.id for name, each in made.items()}
    services = [Service(n, devices_of[n], args.image or "", cdi[n], labels[n]) for n in wanted]
    plain = document(services, request.form, request.runtime.name)
    for devices in devices_of.values():
        dockerview.remarks(host, devices, request.form)
    text = to_yaml(plain, flow=()).rstrip("\n")
    if path:
        documents.save(text, "yaml", path, force=args.force)
        text = f"wrote {path}: {', '.join(wanted)}"
    reservations = [] if args.no_reserve else list(made.values())
    output.emit(output.build("ComposeFile", compose=plain, reservations=reservations), args.output, text)
    return 0


def _requests(args: Args, words: Sequence[str]) -> tuple[str, ...]:
    """Return the requested devices. Raises UsageError, with similar names that the node has."""
    from functools import partial

    from aliquot.cli.framework.profile_names import known_names
    from aliquot.containers.runtime.choose import parse_requests

    return parse_requests(words, partial(known_names, args))


def _picked(args: Args, host: ContainerHost, wanted: Sequence[str]) -> tuple[ContainerDevice, ...]:
    """Return a device for each word. Raises ConfigError for a profile that no GPU has, and what ``pick`` raises."""
    from aliquot.cli.framework.profile_names import check_name
    from aliquot.containers.runtime.choose import is_profile, pick

    for word in filter(is_profile, wanted):
        check_name(word, host.inventory)
    return pick(wanted, host.devices, host.busy, share=args.share)


@contextmanager
def _picking(
    args: Args, request: DeviceOrder
) -> Iterator[tuple[ContainerHost, Callable[[Sequence[ContainerReservation]], None]]]:
    """Return the host and a function that reserves, with picks and changes of other processes locked out."""
    from aliquot.node.holders.reservations import ReservationFile

    with node.connected(args) as connection:
        directories = request.directories()
        if args.no_reserve:
            yield ContainerHost(connection, directories), lambda _: None
            return
        store = ReservationFile(connection.directory)
        with exclusive_access(args, connection, store):
            host = ContainerHost(connection, directories)
            yield host, lambda made: store.save((*host.settled.active, *made))
    for each in host.settled.ended:
        streams.note(f"released {', '.join(each.reservation.devices)}: {each.why}")


def _list(args: Args) -> int:
    from aliquot.cdi.spec_files import DIRECTORIES

    with node.connected(args) as connection:
        host = ContainerHost(connection, DIRECTORIES)
    document = output.build(
        "ContainerDevices",
        devices=[dockerview.plain(d) | {"taken": host.busy.get(d.uuid, ())} for d in host.devices],
        reservations=host.settled.active,
    )
    output.emit(document, args.output, dockerview.table(host))
    return 0


def _release(args: Args) -> int:
    from aliquot.node.holders.reservations import ReservationFile

    if bool(args.what) == bool(args.all):
        raise UsageError("release takes reservations, or --all", next_step="aliquot docker list")
    with node.connected(args) as connection:
        store = ReservationFile(connection.directory)
        with store.exclusive(args.wait):
            recorded = store.load()
            ending = [r for r in recorded if args.all or set(args.what) & {r.id, r.name, r.container, *r.devices}]
            unknown = [
                w for w in args.what or () if not any(w in (r.id, r.name, r.container, *r.devices) for r in ending)
            ]
            if unknown:
                raise dockerview.no_reservation(unknown, recorded)
            if ending:
                store.save(r for r in recorded if r not in ending)
    document = output.build("ContainerRelease", released=ending)
    text = "\n".join(f"released {', '.join(r.devices)} ({r.name or r.id})" for r in ending)
    output.emit(document, args.output, text or "nothing is reserved")
    return 0
