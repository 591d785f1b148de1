"""The desired state of a command line: a file and a named config, or GPUs and profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.framework import output
from aliquot.cli.framework.parser import Args
from aliquot.core.model.desired import Desired
from aliquot.core.model.encoding import to_builtins
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.errors import BlockedError, ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile

_SHARES = ("mig", "vgpu", "passthrough")
_CHANGES = ("add", "remove")
_FLAGS = ("total", "mixed_size", "mode_only")


def _given(args: Args, name: str) -> bool:
    return bool(getattr(args, name, None))


def has_desired(args: Args) -> bool:
    """Report whether the command line has a desired state."""
    return any(_given(args, name) for name in ("file", "config", "gpu", *_SHARES, *_CHANGES, *_FLAGS))


def config_from_args(args: Args) -> ConfigFile | None:
    """Return the config file, or None for a typed desired state. Invalid input is reported before the host is read:
    raises UsageError for a command line with no desired state or two, ConfigError with every error of the file.
    """
    changes = any(_given(args, name) for name in _CHANGES)
    shares = [name for name in _SHARES if _given(args, name)]
    help_line = f"{args.prog} --help"
    if args.file and (args.gpu or shares or changes or args.mixed_size):
        raise UsageError(
            "give either a file (-f) or options (--gpu with --mig, --vgpu or --passthrough), not both",
            next_step=help_line,
        )
    if changes and (shares or args.mode_only):
        other = f"--{shares[0]} replaces it" if shares else "--mode-only leaves it alone"
        raise UsageError(f"--add and --remove change what is there, {other}: give one", next_step=help_line)
    if _given(args, "total") and shares != ["mig"]:
        raise UsageError("--total needs --mig", next_step=help_line)
    if args.config and not args.file:
        raise UsageError(f"-c {args.config} needs a file (-f)", next_step=help_line)
    if len(shares) > 1:
        raise UsageError(f"a GPU is shared in one way: give one of --{' and --'.join(shares)}", next_step=help_line)
    if args.mixed_size and shares != ["vgpu"]:
        raise UsageError("--mixed-size needs --vgpu", next_step=help_line)
    if not args.file and not shares and not changes:
        if args.gpu:
            raise UsageError(
                "--gpu needs --mig, --vgpu or --passthrough",
                next_step=f"aliquot profiles {args.gpu[0]}",
            )
        raise UsageError("no desired state: give -f FILE, --mig PROFILES or --vgpu TYPES", next_step=help_line)
    return config_file(args, args.file, args.config, compat=args.compat) if args.file else None


def read(args: Args, config: ConfigFile | None, inventory: Inventory) -> Desired:
    """Return the desired state, resolved for this node. Raises ConfigError with every error of a typed one."""
    if config is not None:
        from aliquot.core.config.select.named_config import select

        desired = select(config, args.config, inventory)
    elif _given(args, "total") or any(_given(args, name) for name in _CHANGES):
        from aliquot.core.config.select import instance_changes

        if _given(args, "total"):
            desired = instance_changes.total(args.gpu or [], args.mig, inventory)
        else:
            desired = instance_changes.add_and_remove(args.gpu or [], args.add or [], args.remove or [], inventory)
    else:
        from aliquot.core.config.select.command_line import adhoc

        desired = adhoc(
            args.gpu or [],
            args.mig or [],
            inventory,
            vgpu=args.vgpu or [],
            mixed_size=True if args.mixed_size else None,
            passthrough=args.passthrough == "on" if args.passthrough else None,
        )
    if args.mode_only:
        from aliquot.core.config.select.named_config import mode_only

        return mode_only(desired)
    return desired


_SHOWING = {"aliquot apply": "aliquot plan", "aliquot slurm apply": "aliquot slurm apply --dry-run"}
"""The command that shows what another one would do."""


def config_file(args: Args, path: str, name: str | None, *, compat: bool = False) -> ConfigFile:
    """Load a config file that has the named config. The node is read only for names similar to a wrong profile.

    Raises ConfigError with every error of the file; its next step is the command with the file and a named config, or
    the one that shows what it would do.
    """
    from functools import partial

    from aliquot.cli.framework.profile_names import known_names
    from aliquot.core.config.load import load
    from aliquot.core.config.select.named_config import named

    source = "<stdin>" if path == "-" else path
    config = None
    try:
        text = output.read_text(path, "config file")
        config = load(text, source, compat=compat, profiles=partial(known_names, args))
        named(config, name)
    except ConfigError as error:
        command = _SHOWING.get(args.prog, args.prog)
        error.next_step = error.next_step or _command_with_file(command, path, name, config)
        raise
    return config


def _command_with_file(command: str, path: str, name: str | None, config: ConfigFile | None) -> str | None:
    """Return a command with a file, and with a named config that it has if it could be read. None for stdin."""
    import difflib
    import shlex

    if path == "-":
        return None
    if config is not None and config.names and name not in config.names:
        name = next(iter(difflib.get_close_matches(name or "", config.names)), config.names[0])
    return shlex.join([*command.split(), "-f", path, *(["-c", name] if name else [])])


def policy(args: Args) -> Policy:
    """Return what may be done to held instances."""
    if not 0 <= args_timeout(args) < float("inf"):
        raise UsageError("--timeout takes seconds, 0 or more", next_step=f"{args.prog} --help")
    return Policy(held=args.policy, timeout_s=args_timeout(args))


def args_timeout(args: Args) -> float:
    return float(args.timeout)


def saved_plan(path: str) -> Plan:
    """Read a plan that ``aliquot plan --out`` wrote. Raises ConfigError if it is anything else."""
    text, again = output.read_text(path, "plan"), "aliquot plan -f FILE --out plan.json"
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        if path != "-" and not text.lstrip().startswith("{"):
            again = _command_with_file("aliquot plan", path, None, None) or again  # -f was forgotten
        raise ConfigError(f"{path} is not a plan: {error}", next_step=again) from error
    if plan.kind != "Plan" or plan.api_version != "aliquot/v1":
        raise ConfigError(f"{path} is a {plan.kind} of {plan.api_version}, not a Plan of aliquot/v1")
    if plan.blockers:
        raise ConfigError(f"{path} is a plan with blockers, which nothing can carry out", next_step=again)
    for text in _texts(to_builtins(plan)):
        if not text.isprintable():
            raise ConfigError(f"{path} is not a plan: a text in it has control characters: {text!a}", next_step=again)
    return plan


def _texts(plain: object) -> Iterator[str]:
    """Yield every text in plain data: what is printed of a file must not control a terminal."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        yield from _texts(list(plain.values()))
    elif isinstance(plain, list | tuple):
        for each in plain:
            yield from _texts(each)


def refuse_errors(desired: Desired) -> None:
    """Raise BlockedError if the desired state names things that this node does not have."""
    if not desired.failures:
        return
    first = desired.failures[0]
    raise BlockedError(
        first.message,
        code=first.rule,
        details=tuple(f.message for f in desired.failures[1:]),
        next_step=first.next_step,
    )


def command_line(args: Args, verb: str) -> str | None:
    """Return the same desired state as a command with another verb, or None if it came from stdin and cannot be
    repeated.
    """
    import shlex

    if args.file == "-":
        return None
    out = ["aliquot", verb]
    out += ["-f", args.file] if args.file else []
    out += ["-c", args.config] if args.config else []
    for name in ("gpu", "mig", *_CHANGES, "vgpu"):
        for value in getattr(args, name, None) or []:
            out += [f"--{name}", value]
    out += ["--total"] if _given(args, "total") else []
    out += ["--mixed-size"] if args.mixed_size else []
    out += ["--passthrough", args.passthrough] if args.passthrough else []
    out += ["--compat"] if args.compat else []
    out += ["--mode-only"] if args.mode_only else []
    if getattr(args, "policy", "refuse") != "refuse" and verb in ("plan", "apply"):
        out += ["--policy", args.policy]
        out += ["--timeout", str(args.timeout)] if args.policy == "wait" else []
    out += ["--sim", args.typed_node] if args.typed_node else []
    return shlex.join(out)
