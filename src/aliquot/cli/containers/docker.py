"""``aliquot docker``: MIG devices for plain containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.cli.containers import docker_view as dockerview
from aliquot.cli.containers.site import Order, Site, alone
from aliquot.cli.framework import file_output as documents
from aliquot.cli.framework import output, owned_files, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.containers.runtime.models import Reservation


def run(args: Args) -> int:
    verbs: dict[str, Callable[[Args], int]] = {
        "run-args": _run_args,
        "compose": _compose,
        "list": _list,
        "release": _release,
    }
    return verbs[args.verb](args)


def _run_args(args: Args) -> int:
    from aliquot.containers.runtime.choose import pick, wants
    from aliquot.containers.runtime.run_arguments import checked_name, run_arguments

    asked = wants(args.what)
    name = checked_name(args.name) if args.name else ""
    order = Order(args, [len(asked)])
    with _picking(args, order) as (site, reserve):
        devices = pick(asked, site.devices, site.busy, share=args.share)
        cdi = [order.cdi(site, d) for d in devices]
        made = order.reserved(devices, asked, name)
        reserve([made])
    label = "" if args.no_reserve else made.id
    words = run_arguments(devices, order.form, order.runtime.name, cdi=cdi, label=label, name=name)
    dockerview.remarks(site, devices, order.form)
    document = output.made(
        "ContainerArguments",
        runtime=order.runtime.name,
        form=order.form,
        args=words,
        devices=[dockerview.plain(d) for d in devices],
        reservation=None if args.no_reserve else made,
    )
    output.emit(document, args.output, " ".join(words))
    return 0


def _compose(args: Args) -> int:
    from aliquot.containers.runtime.choose import pick, wants
    from aliquot.containers.runtime.compose import Service, asked, document
    from aliquot.core.config.formats.yaml_writer import to_yaml

    wanted = {name: wants([what]) for name, what in asked(args.services)}
    if args.out:  # before anything is reserved
        owned_files.refuse_foreign(args.out, force=args.force)
    order = Order(args, [len(words) for words in wanted.values()] if args.form != "gpus" else [1])
    with _picking(args, order) as (site, reserve):
        every = iter(pick([w for words in wanted.values() for w in words], site.devices, site.busy, share=args.share))
        mine = {name: tuple(next(every) for _ in words) for name, words in wanted.items()}
        cdi = {name: tuple(order.cdi(site, d) for d in devices) for name, devices in mine.items()}
        made = {name: order.reserved(mine[name], words, name) for name, words in wanted.items()}
        reserve(list(made.values()))
    labels = {name: "" if args.no_reserve else each.id for name, each in made.items()}
    services = [Service(n, mine[n], args.image or "", cdi[n], labels[n]) for n in wanted]
    plain = document(services, order.form, order.runtime.name)
    for devices in mine.values():
        dockerview.remarks(site, devices, order.form)
    text = to_yaml(plain, flow=()).rstrip("\n")
    if args.out:
        documents.save(text, "yaml", args)
        text = f"wrote {args.out}: {', '.join(wanted)}"
    reservations = [] if args.no_reserve else list(made.values())
    output.emit(output.made("ComposeFile", compose=plain, reservations=reservations), args.output, text)
    return 0


@contextmanager
def _picking(args: Args, order: Order) -> Iterator[tuple[Site, Callable[[Sequence[Reservation]], None]]]:
    """A look at everything, and how to reserve, with nobody else picking or changing the GPUs meanwhile."""
    from aliquot.node.holders.reservations import Reservations

    with node.connected(args) as connection:
        directories = order.directories()
        if args.no_reserve:
            yield Site(connection, directories), lambda _: None
            return
        store = Reservations(connection.directory)
        with alone(args, connection, store):
            site = Site(connection, directories)
            yield site, lambda made: store.save((*site.settled.kept, *made))
    for each in site.settled.ended:
        streams.note(f"released {', '.join(each.reservation.devices)}: {each.why}")


def _list(args: Args) -> int:
    from aliquot.cdi.spec_files import DIRECTORIES

    with node.connected(args) as connection:
        site = Site(connection, DIRECTORIES)
    document = output.made(
        "ContainerDevices",
        devices=[dockerview.plain(d) | {"taken": site.busy.get(d.uuid, ())} for d in site.devices],
        reservations=site.settled.kept,
    )
    output.emit(document, args.output, dockerview.table(site))
    return 0


def _release(args: Args) -> int:
    from aliquot.node.holders.reservations import Reservations

    if bool(args.what) == bool(args.all):
        raise UsageError("which? Give reservations, or --all", next_step="aliquot docker list")
    with node.connected(args) as connection:
        store = Reservations(connection.directory)
        with store.alone(args.wait):
            recorded = store.load()
            ending = [r for r in recorded if args.all or set(args.what) & {r.id, r.name, r.container, *r.devices}]
            unknown = [
                w for w in args.what or () if not any(w in (r.id, r.name, r.container, *r.devices) for r in ending)
            ]
            if unknown:
                raise dockerview.no_reservation(unknown, recorded)
            if ending:
                store.save(r for r in recorded if r not in ending)
    document = output.made("ContainerRelease", released=ending)
    text = "\n".join(f"released {', '.join(r.devices)} ({r.name or r.id})" for r in ending)
    output.emit(document, args.output, text or "nothing is reserved")
    return 0
