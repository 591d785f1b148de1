"""``aliquot slurm power``: ResumeProgram and SuspendProgram, and the commands that they run on a host."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import switch as slurm_switch
from aliquot.errors import AliquotError, BlockedError, ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.slurm.layouts.cloud_nodes import Sibling
    from aliquot.slurm.layouts.power_saving import SiblingHost

_BOUND_S = 900.0
"""Time limit of a host in seconds: longer than any change of GPUs."""
_LINES = 50
"""Limit of lines of a host's output in the log."""


def run(args: Args) -> int:
    verbs = {"resume": _resume, "suspend": _suspend, "start": _start, "stop": _stop, "follow": _follow}
    return verbs[args.verb](args)


def _resume(args: Args) -> int:
    from aliquot.slurm.conf.hostlist import expand
    from aliquot.slurm.layouts import power_saving as power
    from aliquot.slurm.layouts.cloud_siblings import OURS

    waiting = power.first_jobs(_resume_file())  # first, because the file disappears when slurmctld stops waiting for us
    hosts = _load_hosts(args.siblings)
    siblings = {name: [s.node_name for s in host.siblings] for name, host in hosts.items()}
    picked = power.select_starts(expand(args.hosts), siblings, waiting)
    for node_name in picked.start:
        _spawn("start", node_name, args)
    for node_name, winner in picked.losers:
        _down(node_name, f"{OURS}{winner} uses its GPUs")
    return _emit_begun(args, picked.start, picked.unknown)


def _suspend(args: Args) -> int:
    from aliquot.slurm.conf.hostlist import expand

    known = {s.node_name for host in _load_hosts(args.siblings).values() for s in host.siblings}
    names = expand(args.hosts)
    stopped = tuple(name for name in names if name in known)
    for node_name in stopped:
        _spawn("stop", node_name, args)
    return _emit_begun(args, stopped, tuple(name for name in names if name not in known))


def _emit_begun(args: Args, begun: tuple[str, ...], unknown: tuple[str, ...]) -> int:
    """Print the records whose start or stop continues in the background. Raises BlockedError for unknown records."""
    output.emit(output.build("SlurmPower", begun=begun), args.output, "\n".join(begun))
    if unknown:
        raise BlockedError(
            f"no sibling file has {', '.join(unknown)}, so its host is unknown",
            code="UNKNOWN_HOST",
            details=(f"Hosts are read from {args.siblings}",),
            next_step="aliquot slurm siblings -o json",
        )
    return 0


def _resume_file() -> bytes:
    """Return Slurm's data about the waiting jobs, or b""."""
    try:
        with open(os.environ.get("SLURM_RESUME_FILE") or os.devnull, "rb") as file:
            return file.read(1 << 24)
    except OSError:
        return b""


def _load_hosts(path: str) -> dict[str, SiblingHost]:
    """Return the hosts by name. Raises ConfigError with every error of every file."""
    from aliquot.slurm.layouts.power_saving import host_of

    try:
        names = sorted(n for n in os.listdir(path) if n.endswith(".json")) if os.path.isdir(path) else []
    except OSError as error:
        raise UsageError(f"cannot list {path}: {error.strerror}", next_step=f"ls -ld {path}") from error
    files = [os.path.join(path, n) for n in names] if os.path.isdir(path) else [path]
    found: dict[str, SiblingHost] = {}
    errors: list[str] = []
    for each in files:
        try:
            host = host_of(output.read_text(each, "file of siblings"), each)
        except ConfigError as error:
            errors.append(error.brief)
            continue
        found[host.host] = host
    if errors:
        raise ConfigError(errors[0], details=tuple(errors[1:]), next_step="aliquot slurm siblings -o json > FILE")
    return found


def _spawn(what: str, node_name: str, args: Args) -> None:
    """Start a process in its own session, without our streams, because slurmctld kills its script's process group."""
    words = [sys.executable, "-m", "aliquot", "slurm", "power", "follow", what, node_name, "--siblings", args.siblings]
    from aliquot.foundation import bounded_process

    log = _log(args.log, node_name)
    try:
        bounded_process.start(words, log)
    finally:
        os.close(log)


def _log(folder: str, node_name: str) -> int:
    """Open the log file of a record, or /dev/null if that fails."""
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        file_name = f"slurm-power-{node_name.replace('/', '_')}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(os.path.join(folder, file_name), flags, 0o640)
    except OSError as error:
        streams.note(f"note: cannot log to {folder}: {error.strerror}")
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _follow(args: Args) -> int:
    """Run the command on the host to its end.

    A failed start sets the record DOWN with the reason, so that its jobs return to the queue at once, and not only
    after ResumeTimeout.
    """
    from aliquot.foundation import bounded_process
    from aliquot.slurm.controller.remote_nodes import printable

    host, sibling = _sibling(args.record, _load_hosts(args.siblings))
    words = remote_command(host, sibling, args.what)
    try:
        done = bounded_process.run(words, _BOUND_S)
    except TimeoutError:
        return _failed(args, "TIMEOUT", f"{host.host} did not answer within {_BOUND_S:g} s")
    except OSError as error:
        return _failed(args, "REACH", f"{words[0]}: {error.strerror}")
    for line in done.err.splitlines()[-_LINES:]:
        streams.note(printable(line))
    return _failed(args, *_why(done.err)) if done.code else 0


def remote_command(host: SiblingHost, sibling: Sibling, what: str) -> list[str]:
    """Return the command line that runs ``power start`` or ``stop`` of a record on its host.

    The words are quoted for ssh, which passes them to a shell.
    """
    words = ["slurm", "power", what, sibling.node_name, *host.run, "-o", "json"]
    # "--capacity" to the next release: the host may have an older one.
    words += ["--layout", ",".join(sibling.profiles), *(w for pci in sibling.gpus for w in ("--offers", pci))]
    if not host.reach:
        return [sys.executable, "-m", "aliquot", *words]
    from aliquot.slurm.controller.remote_nodes import uses_shell

    command = [word.replace("{host}", host.host) for word in shlex.split(host.reach)]
    words = ["aliquot", *words]
    return command + (list(map(shlex.quote, words)) if uses_shell(command) else words)


def _sibling(node_name: str, hosts: dict[str, SiblingHost]) -> tuple[SiblingHost, Sibling]:
    for host in hosts.values():
        for each in host.siblings:
            if each.node_name == node_name:
                return host, each
    raise BlockedError(
        f"no sibling file has {node_name}, so its host is unknown",
        code="UNKNOWN_HOST",
        next_step="aliquot slurm siblings -o json",
    )


def _why(text: str) -> tuple[str, str]:
    """Return the code and the message of an error document, or the last line of other output."""
    import msgspec

    from aliquot.slurm.controller.remote_nodes import printable

    try:
        plain = msgspec.json.decode(text[text.index("{") :], type=dict[str, object])
        return str(plain["code"]), printable(str(plain["message"]))
    except (ValueError, KeyError, RecursionError, msgspec.DecodeError):
        lines = [line for line in text.splitlines() if line.strip()]
        return "REACH", printable(lines[-1]) if lines else "it printed no error"


def _failed(args: Args, code: str, sentence: str) -> int:
    from aliquot.slurm.layouts.cloud_siblings import FAILED, OURS
    from aliquot.slurm.node.cloud_claim import TakenError

    streams.error(f"{args.what} {args.record}: {sentence}")
    if args.what == "start":
        _down(args.record, f"{OURS if code == TakenError.code else f'{FAILED}: '}{sentence}"[:250])
    return BlockedError.exit_code


def _down(node_name: str, reason: str) -> None:
    from aliquot.slurm.client.connect import open_client

    try:
        with open_client() as slurm:
            slurm.down(node_name, reason)
    except AliquotError as error:
        streams.error(f"note: cannot set {node_name} DOWN: {error.brief}")


def _start(args: Args) -> int:
    from aliquot.slurm.node import cloud_claim as claim
    from aliquot.slurm.node import layout_switch as switch

    with node.connected(args) as connection:
        inventory = connection.backend.read()
        chosen = slurm_switch.settings(args, connection, args.record, inventory)
        node_gpus = switch.gpu_group(inventory, chosen.gpus)
        layouts = slurm_switch.layouts(args, node_gpus)
        if len(layouts) != 1:
            raise UsageError("a record has one layout: give one --layout", next_step=f"{args.prog} --help")
        with slurm_switch.exclusive_access(connection), slurm_switch.open_context(args, connection, chosen) as context:
            change_record = claim.start(layouts[0], node_gpus, chosen, context)
    document = output.build("SlurmRecord", record=args.record, gres=change_record.expected.text)
    output.emit(document, args.output, f"this host now runs as {args.record}: {change_record.expected.text}")
    return 0


def _stop(args: Args) -> int:
    from aliquot.slurm.node import cloud_claim as claim

    with node.connected(args) as connection:
        chosen = slurm_switch.settings(args, connection, args.record, connection.backend.read())
        with slurm_switch.exclusive_access(connection), slurm_switch.open_context(args, connection, chosen) as context:
            stopped = claim.stop(chosen, context)
    text = f"this host no longer runs as {args.record}" if stopped else f"this host did not run as {args.record}"
    output.emit(output.build("SlurmRecord", record=args.record, stopped=stopped), args.output, text)
    return 0
