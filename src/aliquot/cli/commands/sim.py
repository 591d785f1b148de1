"""``aliquot sim``: simulated nodes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.views import sim_view as simview
from aliquot.errors import BlockedError, UsageError
from aliquot.foundation.decimals import decimal
from aliquot.foundation.paths import state_dir
from aliquot.sim import lifecycle as control

if TYPE_CHECKING:
    from aliquot.sim.client import SimClient

NAMED = 10
"""At most this many nodes are named; there may be thousands."""


def run(args: Args) -> int:
    verbs = {
        "start": _start,
        "stop": _stop,
        "list": _list,
        "show": _show,
        "hold": _hold,
        "release": _release,
        "create": _create,
        "destroy": _destroy,
        "mode": _mode,
        "reset": _reset,
        "fault": _fault,
        "reboot": _reboot,
        "lib": _lib,
        "tools": _tools,
        "mount": _mount,
        "umount": _umount,
        "vm": _vm,
        "usb": _usb,
        "read": _read,
        "write": _write,
    }
    return verbs[args.verb](args)


def _some(names: Sequence[str]) -> str:
    """Return ``a, b, c``; of many names the first ones and how many more."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def _name(args: Args) -> str:
    """Return the node named on the command line or in ALIQUOT_SIM, or the only one. Raises UsageError, BlockedError."""
    name: str | None = getattr(args, "name", None) or args.sim
    known = control.names(state_dir())
    if name in known:
        return str(name)
    if name or not known:
        details = (f"running: {_some(known)}",) if known else ()
        following = "aliquot sim list" if known else "aliquot sim start dgx-a100"
        sentence = f"no simulated node {name!r}" if name else "no simulated node runs"
        raise control.NoSimulatedNodeError(sentence, details=details, next_step=following)
    if len(known) > 1:
        raise UsageError(
            f"{len(known)} simulated nodes run, and none was named: {_some(known)}",
            details=(f"use --sim {known[0]}, or export ALIQUOT_SIM={known[0]}",),
            next_step="aliquot sim list",
        )
    return known[0]


def _node(args: Args) -> SimClient:
    from aliquot.sim.client import SimClient  # most verbs only talk to the server

    return SimClient(state_dir(), _name(args))


def _emit(args: Args, sentence: str, **facts: Any) -> int:
    output.emit(output.build("Simulation", verb=args.verb, **facts), args.output, sentence)
    return 0


def _start(args: Args) -> int:
    if args.count is not None:
        return _start_many(args)
    name = control.start(state_dir(), args.template, args.name, args.latency, args.driver)
    _emit(args, name, node=name)
    if args.output == "text":
        streams.note(f"next     aliquot show --sim {name}     or, for every verb     export ALIQUOT_SIM={name}")
    return 0


def _start_many(args: Args) -> int:
    names = control.start_many(state_dir(), args.template, args.count, args.name, args.latency, args.driver)
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    _emit(args, shown, nodes=names)
    if args.output == "text":
        streams.note(f"next     aliquot dashboard --fleet     or     aliquot show --sim {names[0]}")
    return 0


def _stop(args: Args) -> int:
    if args.all and args.name:
        raise UsageError("stop takes a name or --all, not both", next_step="aliquot sim stop --help")
    stopped = control.stop(state_dir(), None if args.all else _name(args))
    return _emit(args, f"stopped {_some(stopped)}" if stopped else "no simulated node runs", nodes=stopped)


def _list(args: Args) -> int:
    names = control.names(state_dir())
    if not names and args.output == "text":
        streams.note("no simulated node runs\n  next     aliquot sim start dgx-a100")
    return _emit(args, "\n".join(names), nodes=names)


def _show(args: Args) -> int:
    found = _node(args)
    if args.calls:
        calls = found.calls()
        output.emit(output.build("Calls", node=found.name, calls=calls), args.output, simview.calls(calls))
    else:
        state = found.show()
        output.emit(output.build("SimulatedNode", **state), args.output, simview.node(state))
    return 0


def _where(args: Args) -> str:
    return f"instance {args.instance} of GPU {args.gpu}" if args.instance else f"GPU {args.gpu}"


def _hold(args: Args) -> int:
    if args.busy is not None and not 0 <= args.busy <= 1:
        raise UsageError(f"--busy is a share from 0 to 1, not {args.busy}", next_step="aliquot sim hold --help")
    pid = _node(args).hold(args.gpu, args.instance, args.pid, memory=args.memory, busy=args.busy)
    return _emit(args, f"process {pid} is on {_where(args)}", gpu=args.gpu, instance=args.instance, pid=pid)


def _release(args: Args) -> int:
    count = _node(args).release(args.gpu, args.instance)
    ended = "1 process" if count == 1 else f"{count} processes"
    return _emit(args, f"ended {ended} on {_where(args)}", gpu=args.gpu, instance=args.instance, released=count)


def _create(args: Args) -> int:
    made = _node(args).create(args.gpu, args.profile, args.start, compute=not args.no_compute)
    return _emit(args, f"created instance {made} of GPU {args.gpu}", gpu=args.gpu, instance=made)


def _destroy(args: Args) -> int:
    _node(args).destroy(args.gpu, args.instance)
    return _emit(args, f"destroyed {_where(args)}", gpu=args.gpu, instance=args.instance)


def _mode(args: Args) -> int:
    pending = _node(args).set_mode(args.gpu, args.mode == "on")
    sentence = "is pending: the GPU is in use" if pending else "is set"
    return _emit(args, f"MIG mode {args.mode} of GPU {args.gpu} {sentence}", gpu=args.gpu, pending=bool(pending))


def _reset(args: Args) -> int:
    _node(args).reset(args.gpu)
    return _emit(args, f"GPU {args.gpu} was reset", gpu=args.gpu)


def _fault(args: Args) -> int:
    facts = dict(_fact(word) for word in args.words)
    _node(args).inject_fault(args.kind, **facts)
    sentence = {"none": "faults are cleared", "xid": "the XID was raised"}.get(args.kind, f"fault {args.kind} is set")
    return _emit(args, sentence, fault=args.kind, facts=facts)


def _fact(word: str) -> tuple[str, str | int | float]:
    key, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"{word!r} is not KEY=VALUE", next_step="aliquot sim fault --help")
    if key in ("kind", "do", "self"):
        raise UsageError(f"{key!r} is not an option of a fault", next_step="aliquot sim fault --help")
    if (number := decimal(value, 18)) is not None:
        return key, number
    parts = [decimal(part, 18) for part in value.split(".")]
    return key, float(value) if len(parts) == 2 and None not in parts else value


def _reboot(args: Args) -> int:
    found = _node(args)
    found.reboot(args.kernel)
    return _emit(args, f"{found.name} has rebooted", node=found.name)


def _vm(args: Args) -> int:
    if args.action == "stop":
        if args.devices:
            raise UsageError("stop takes a name only", next_step="aliquot sim vm --help")
        _node(args).stop_vm(args.machine)
        return _emit(args, f"virtual machine {args.machine} has stopped", machine=args.machine)
    pid = _node(args).start_vm(args.machine, *args.devices)
    sentence = f"virtual machine {args.machine} runs as process {pid}"
    return _emit(args, sentence, machine=args.machine, pid=pid, devices=args.devices)


def _usb(args: Args) -> int:
    if args.action == "unplug":
        _node(args).unplug_usb(args.device)
        return _emit(args, f"{args.device} is unplugged", device=args.device)
    path = _node(args).plug_usb(args.device, args.product)
    return _emit(args, f"{args.device} is plugged in as {path}", device=args.device, path=path)


def _read(args: Args) -> int:
    value, code = _node(args).files("read", args.path)
    _check(args, "read", code)
    return _emit(args, str(value).removesuffix("\n"), path=args.path, value=value)


def _write(args: Args) -> int:
    _, code = _node(args).files("write", args.path, args.value, hand=True)
    _check(args, "write", code)
    return _emit(args, f"wrote {args.value} to {args.path}", path=args.path, value=args.value)


def _check(args: Args, verb: str, code: int) -> None:
    """Raise BlockedError with the error of the simulated kernel."""
    if code:
        import os

        raise BlockedError(
            f"the kernel of {_name(args)} refuses to {verb} {args.path}: {os.strerror(code)}",
            code="KERNEL_REFUSES",
            next_step=f"aliquot sim show {_name(args)}",
        )


def _lib(args: Args) -> int:
    path = control.library(state_dir(), _name(args))
    return _emit(args, path, path=path)


def _tools(args: Args) -> int:
    name = _name(args)
    control.ensure_server(state_dir())  # it writes the programs
    path = os.path.join(control.folder(state_dir(), name), "driver/usr/bin")
    return _emit(args, path, path=path)


def _mount(args: Args) -> int:
    from aliquot.sim import mount_process as mounting

    name = _name(args)
    pid = mounting.mount(state_dir(), name, args.folder)
    sentence = f"{name} is mounted on {args.folder}: its /sys, /proc and /dev are below"
    return _emit(args, sentence, node=name, folder=os.path.abspath(args.folder), pid=pid)


def _umount(args: Args) -> int:
    from aliquot.sim import mount_process as mounting

    name = mounting.unmount(args.folder)
    return _emit(args, f"{name} is no longer mounted on {args.folder}", node=name, folder=os.path.abspath(args.folder))
