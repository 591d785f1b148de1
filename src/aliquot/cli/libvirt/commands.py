"""``aliquot libvirt``: the vGPUs and GPUs of libvirt VMs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.libvirt import view as libvirtview
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.core.config.text.vgpu_request import VgpuRequest
    from aliquot.core.model.inventory import Inventory
    from aliquot.libvirt.attach import DeviceChange
    from aliquot.libvirt.choose import VmDeviceRequest
    from aliquot.libvirt.device_rules import VmContext
    from aliquot.libvirt.models import LibvirtDomain
    from aliquot.libvirt.port import Libvirt
    from aliquot.node.connect import Connection


def run(args: Args) -> int:
    verbs: dict[str, Callable[[Args], int]] = {"xml": _xml, "check": _check, "attach": _attach, "detach": _detach}
    return verbs[args.verb](args)


def opened(args: Args) -> AbstractContextManager[Libvirt]:
    """Open the daemon that ``--connect`` names."""
    from aliquot.libvirt.connect import open_libvirt

    return open_libvirt(args.connect)


def _request(args: Args, inventory: Inventory) -> VmDeviceRequest:
    """Return the request of a command line. Raises UsageError, and the errors of an unknown GPU or type."""
    from aliquot.core.config.text.vgpu_request import comma_separated, parse_vgpu_request
    from aliquot.libvirt.choose import VmDeviceRequest

    if args.count is not None and (args.count < 1 or not args.vgpu):
        raise UsageError("--count takes a number, 1 or more, and needs --vgpu", next_step=f"{args.prog} --help")
    types: list[tuple[str, int]] = []
    for text in args.vgpu or []:
        for column, part in comma_separated(text):
            try:
                type_request = parse_vgpu_request(part, column)
            except ValueError as error:
                raise UsageError(f"--vgpu {text}: {error}", next_step="aliquot vgpu types") from error
            types.append((_type(inventory, type_request), type_request.count * (args.count or 1)))
    gpus = tuple(gpu.pci for gpu in node.gpus(inventory, words)) if (words := getattr(args, "gpu", None)) else ()
    return VmDeviceRequest(tuple(types), gpus, tuple(_device(inventory, word) for word in args.devices))


def _type(inventory: Inventory, type_request: VgpuRequest) -> str:
    """Return the type's name, which must be spelled as for ``plan``. Raises ConfigError for one that no GPU has."""
    from aliquot.core.config.select.vgpu_lookup import every_name, find_type, hint, tables
    from aliquot.errors import ConfigError

    found = next((each for table in tables(inventory) if (each := find_type(table, type_request))), None)
    if found is None:
        close = hint(type_request, every_name(inventory))
        raise ConfigError(
            f"no GPU has a vGPU type {type_request.name}{close}", code="UNKNOWN_TYPE", next_step="aliquot vgpu types"
        )
    return type_request.name if type_request.id is None else found.name


def _device(inventory: Inventory, word: str) -> str:
    """Return the PCI address of a GPU or virtual function from any of its names; an mdev's UUID stays as typed."""
    text = word.lower()
    if len(text) == 36 and text.count("-") == 4:
        return text
    for gpu in inventory.gpus:
        for pci in gpu.virtual.addresses if gpu.virtual else ():
            if text in (pci, pci.partition(":")[2]):
                return pci
    return node.gpu(inventory, word).pci


def _require_devices(args: Args) -> None:
    every = getattr(args, "all", None)
    if not args.devices and not args.vgpu and not every:
        following = f"{args.prog} --help" if every is None else f"{args.prog} {shlex.quote(args.vm)} --all"
        raise UsageError("no device given: use --vgpu TYPE, or name devices", next_step=following)


def _xml(args: Args) -> int:
    from aliquot.libvirt import domain_xml as xml
    from aliquot.libvirt import rules
    from aliquot.libvirt.choose import select_devices
    from aliquot.libvirt.identify import vm_by_device

    _require_devices(args)
    inventory = node.inventory(args)
    request = _request(args, inventory)
    picked = select_devices(inventory, request, vm_by_device(_defined(args)) if request.types else {})
    devices = rules.with_ramfb(inventory, (), picked, auto=args.ramfb == "auto")
    libvirtview.refuse(rules.check_devices(inventory, picked, args.multi), args)
    texts = [xml.build(hostdev) for hostdev in devices]
    document = output.build("LibvirtXml", node=inventory.node, devices=libvirtview.plain(devices), xml=texts)
    output.emit(document, args.output, "\n".join(texts))
    return 0


def _defined(args: Args) -> tuple[LibvirtDomain, ...]:
    """Return the VMs, whose vGPUs are not free. Returns none, and prints a note, if libvirt does not answer."""
    from aliquot.libvirt.errors import LibvirtError

    try:
        with opened(args) as libvirt:
            return libvirt.domains()
    except LibvirtError as error:
        streams.note(f"note     {error.brief}: vGPUs in the definitions of VMs count as free")
        return ()


def _check(args: Args) -> int:
    from aliquot.libvirt.attach import find_domain
    from aliquot.libvirt.check import check

    with opened(args) as libvirt, node.connected(args) as connection:
        inventory = connection.backend.read()
        domains = libvirt.domains()
        domain = find_domain(domains, args.vm)
        report = check(inventory, domain, _around(args, libvirt, inventory, domains))
    document = output.build(
        "LibvirtCheck", node=inventory.node, **output.document(report), fine=not report.all_problems
    )
    output.emit(document, args.output, libvirtview.report(report, args.typed_node))
    return 20 if report.all_problems else 0


def _around(args: Args, libvirt: Libvirt, inventory: Inventory, domains: tuple[LibvirtDomain, ...]) -> VmContext:
    from aliquot.libvirt.related_devices import read_context

    return read_context(libvirt, inventory, domains, args.multi, lambda line: streams.note(f"note     {line}"))


def _attach(args: Args) -> int:
    from aliquot.foundation.signals import stoppable
    from aliquot.libvirt import apply as applying
    from aliquot.libvirt import attach

    _require_devices(args)
    with opened(args) as libvirt, node.connected(args) as connection, _locked(args, connection):
        inventory = connection.backend.read()
        domains = libvirt.domains()
        domain = attach.find_domain(domains, args.vm)
        if args.start and domain.running:
            raise UsageError(f"VM {domain.name} already runs: omit --start", next_step=f"{args.prog} --help")
        where = attach.change_target(domain, live=args.live, config=args.config, ramfb=args.ramfb)
        around = _around(args, libvirt, inventory, domains)
        change = attach.plan_attach(inventory, domain, _request(args, inventory), where, around)
        libvirtview.refuse(change.blockers, args)
        if not args.dry_run:
            with stoppable():
                applying.attach(libvirt, change, streams.note)
            _finish_attach(args, libvirt, inventory, change)
    return _emit_change(args, "LibvirtAttach", inventory, change)


def _finish_attach(args: Args, libvirt: Libvirt, inventory: Inventory, change: DeviceChange) -> None:
    from aliquot.libvirt import nodedev

    mdevs = [h.uuid for h in change.devices if h.uuid]
    if args.autostart and not mdevs:
        streams.note("note     --autostart is for mdevs: 'aliquot restore --boot' restores these vGPUs")
    if args.autostart and mdevs:
        for mdev in nodedev.select_mdevs(inventory, libvirt.mdevs(), mdevs):
            nodedev.autostart(libvirt, mdev, streams.note)
    if args.start:
        libvirt.start(change.uuid)
        streams.note(f"started VM {change.vm}")


def _detach(args: Args) -> int:
    from aliquot.libvirt import apply as applying
    from aliquot.libvirt import attach

    _require_devices(args)
    if args.all and (args.devices or args.vgpu):
        raise UsageError("--all excludes --vgpu and devices by name", next_step=f"{args.prog} --help")
    with opened(args) as libvirt, node.connected(args) as connection, _locked(args, connection):
        inventory = connection.backend.read()
        domain = attach.find_domain(libvirt.domains(), args.vm)
        where = attach.change_target(domain, live=args.live, config=args.config)
        change = attach.plan_detach(inventory, domain, _detached(args, inventory), where, all_devices=args.all)
        if not args.dry_run:
            applying.detach(libvirt, change, connection.clock, streams.note)
    return _emit_change(args, "LibvirtDetach", inventory, change)


def _detached(args: Args, inventory: Inventory) -> VmDeviceRequest:
    """Return the devices to detach. A name that the node does not have stays as typed: its device may be gone."""
    from aliquot.errors import AliquotError
    from aliquot.libvirt.choose import VmDeviceRequest

    words = []
    for word in args.devices:
        try:
            words.append(_device(inventory, word))
        except AliquotError:
            words.append(word)
    args.devices = []
    return VmDeviceRequest(_request(args, inventory).types, (), tuple(words))


def _locked(args: Args, connection: Connection) -> AbstractContextManager[None]:
    """Hold the node's lock, so that no other process picks or changes vGPUs meanwhile."""
    return nullcontext() if args.dry_run else connection.lock.hold()


def _emit_change(args: Args, kind: str, inventory: Inventory, change: DeviceChange) -> int:
    from aliquot.libvirt import domain_xml as xml

    for note in change.notes:
        streams.note(f"note     {note}")
    document = output.build(
        kind,
        node=inventory.node,
        vm=change.vm,
        config=change.target.config,
        live=change.target.live,
        done=not args.dry_run,
        devices=libvirtview.plain(change.devices),
        notes=change.notes,
    )
    shown = [h.text or xml.build(h) for h in change.devices] if args.dry_run else []
    text = "\n".join(shown) or f"done; see: {shlex.join(['aliquot', 'libvirt', 'check', change.vm])}"
    output.emit(document, args.output, text)
    return 0
