"""``aliquot cdi``: CDI specs for container runtimes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aliquot.cli.cdi import view as cdiview
from aliquot.cli.framework import file_output, output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.directories import require_directories
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError, DriftError, UsageError
from aliquot.foundation.decimals import counted

if TYPE_CHECKING:
    from aliquot.cdi.options import CdiOptions


def run(args: Args) -> int:
    return {"generate": _generate, "list": _list}[args.verb](args)


def _generate(args: Args) -> int:
    from aliquot.cdi import spec
    from aliquot.cdi import spec_files as write
    from aliquot.cdi.probe import probe_host

    path = file_output.target(args)
    chosen = _options(args)
    found = node.inventory(args)
    host_files = probe_host(found, chosen)
    for sentence in host_files.host.notes if host_files.host else ():
        streams.note(f"note     {sentence}")
    document = spec.document(found, host_files)
    if not document["devices"]:
        return _nothing(path)
    text = write.encoded(document, write.form_of(path) if args.output == "text" else args.output)
    if not path:
        streams.result(text.rstrip("\n"))
        return 0
    _save(path, text, document, args)
    streams.note(f"wrote {path}: {counted(len(document['devices']), 'name')} of {document['kind']}")
    return 0


def _save(path: str, text: str, document: dict[str, Any], args: Args) -> None:
    """Write the file. The folders that runtimes read are made: /var/run/cdi is missing after each boot."""
    from aliquot.cdi import spec_files
    from aliquot.cli.framework import owned_files

    if os.path.dirname(os.path.abspath(path)) not in spec_files.DIRECTORIES:
        owned_files.check_folder(path)
    spec_files.check(path, document, force=args.force or owned_files.is_special(path))
    owned_files.replace(path, text.encode(), mode=0o644, durable=True)


def _nothing(path: str) -> int:
    """Remove our stale file, because CDI does not allow a document without devices. Raises BlockedError without one."""
    from aliquot.cdi import spec_files as write

    if path and write.remove(path):
        streams.note(f"removed {path}: this node has no device to offer any more")
        return 0
    raise BlockedError(
        "this node has no device to offer: it has no GPU, or only GPUs in MIG mode without instances",
        code="NO_DEVICE",
        next_step="aliquot show",
    )


def _options(args: Args) -> CdiOptions:
    """Read the options of a command line. Raises UsageError for a kind that CDI does not allow, or a missing root."""
    from aliquot.cdi.options import CdiOptions

    root = args.driver_root or "/"
    chosen = CdiOptions(
        vendor=args.vendor or "",
        class_name=getattr(args, "class"),
        names=tuple(args.device_name_strategy or CdiOptions().names),
        mode="management" if args.mode == "management" else "workload",
        all_device=not args.no_all_device,
        whole_mig=args.whole_mig_gpus,
        driver_root=root,
        local_driver_root=args.driver_root_ctr_path or "",
        dev_root=args.dev_root or ("" if root == "/" else root),
        local_dev_root=args.driver_root_ctr_path or "",
        hook=args.nvidia_cdi_hook_path or "",
        simulated=_simulated(args),
    )
    _check_kind(chosen.kind, args)
    _check_roots(args, there=not chosen.simulated)
    return chosen


def _check_kind(kind: str, args: Args) -> None:
    from aliquot.cdi.rules import kind_errors

    if wrong := kind_errors(kind):
        raise UsageError(f"{kind} is not a CDI kind", details=wrong, next_step=f"{args.prog} --help")


def _check_roots(args: Args, *, there: bool) -> None:
    """Raise UsageError for a path that is not absolute, or with ``there`` for a root that does not exist here."""
    driver_root = args.driver_root_ctr_path or args.driver_root
    pairs = (("--driver-root", driver_root), ("--dev-root", None if args.driver_root_ctr_path else args.dev_root))
    for option, path in pairs:
        if path and there:
            require_directories(option, [path], args)
    typed = (
        ("--driver-root", args.driver_root),
        ("--dev-root", args.dev_root),
        ("--nvidia-cdi-hook-path", args.nvidia_cdi_hook_path),
    )
    for option, path in typed:
        if path and not os.path.isabs(path):
            raise UsageError(
                f"{option}: {path} is not an absolute path, which container runtimes need",
                next_step=f"{args.prog} --help",
            )


def _simulated(args: Args) -> str:
    """Return the folder of the simulated node, and build its library; "" for this host."""
    if args.sim is None:
        return ""
    from aliquot.foundation.paths import state_dir
    from aliquot.sim import lifecycle as control

    return os.path.dirname(control.library(state_dir(), args.sim))


def _list(args: Args) -> int:
    from aliquot.cdi.options import CdiOptions
    from aliquot.cdi.spec_files import DIRECTORIES

    kind = CdiOptions(vendor=args.vendor or "", class_name=getattr(args, "class")).kind
    _check_kind(kind, args)
    require_directories("--spec-dir", args.spec_dir or (), args)
    found = node.inventory(args)
    listing = cdiview.compare(found, kind, args.spec_dir or DIRECTORIES)
    document = output.build("CdiDevices", node=found.node, cdiKind=kind, devices=listing.devices, stale=listing.stale)
    output.emit(document, args.output, cdiview.table(listing.devices))
    for each in listing.stale:
        streams.note(f"note     {each.file} has {each.name}, and this node has no such device")
    if not listing.outdated:
        return 0
    raise DriftError(
        f"{listing.outdated[0]} does not match the devices of this node",
        details=tuple(f"neither does {path}" for path in listing.outdated[1:]),
        next_step=f"aliquot cdi generate --out {listing.outdated[0]}",
    )
