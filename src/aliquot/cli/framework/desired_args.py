"""The wish that a command line states: a file and a named config, or GPUs and profiles typed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.framework import output
from aliquot.cli.framework.parser import Args
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.errors import AliquotError, BlockedError, ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile

_SHARES = ("mig", "vgpu", "passthrough")


def _given(args: Args, name: str) -> bool:
    return bool(getattr(args, name, None))


def has_desired(args: Args) -> bool:
    """Whether the command line says anything of a wish."""
    return any(_given(args, name) for name in ("file", "config", "gpu", *_SHARES, "mixed_size", "mode_only"))


def config_from_args(args: Args) -> ConfigFile | None:
    """The file of the wish, None for a typed one. What is wrong on every machine is told before this one is asked:
    raises UsageError for a command line that states no wish or two, ConfigError with every fault of the file.
    """
    shares = [name for name in _SHARES if _given(args, name)]
    help_line = f"{args.prog} --help"
    if args.file and (args.gpu or shares or args.mixed_size):
        raise UsageError(
            "a wish is either a file (-f) or typed (--gpu with --mig, --vgpu or --passthrough), not both",
            next_step=help_line,
        )
    if args.config and not args.file:
        raise UsageError(f"-c {args.config} needs a file (-f)", next_step=help_line)
    if len(shares) > 1:
        raise UsageError(f"a GPU is shared in one way: give one of --{' and --'.join(shares)}", next_step=help_line)
    if args.mixed_size and shares != ["vgpu"]:
        raise UsageError("--mixed-size is about vGPUs: it needs --vgpu", next_step=help_line)
    if not args.file and not shares:
        if args.gpu:
            raise UsageError(
                "--gpu needs --mig, --vgpu or --passthrough: what should it hold?",
                next_step=f"aliquot profiles {args.gpu[0]}",
            )
        raise UsageError("what should be? Give -f FILE, --mig WISH or --vgpu TYPES", next_step=help_line)
    return config_file(args.file, args.config, compat=args.compat) if args.file else None


def read(args: Args, config: ConfigFile | None, inventory: Inventory) -> Desired:
    """The wish, resolved against this node. Raises ConfigError with every fault of a typed one."""
    if config is not None:
        from aliquot.core.config.select.named_config import select

        desired = select(config, args.config, inventory)
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


def config_file(path: str, name: str | None, *, compat: bool = False) -> ConfigFile:
    """A file that has the named config. Raises ConfigError with every fault."""
    from aliquot.core.config.load import load
    from aliquot.core.config.select.named_config import named

    source = "<stdin>" if path == "-" else path
    config = load(output.read_text(path, "config file"), source, compat=compat)
    named(config, name)
    return config


def policy(args: Args) -> Policy:
    """What may be done to held instances."""
    if not 0 <= args_timeout(args) < float("inf"):
        raise UsageError("--timeout takes seconds, 0 or more", next_step=f"{args.prog} --help")
    return Policy(held=args.policy, timeout_s=args_timeout(args))


def args_timeout(args: Args) -> float:
    return float(args.timeout)


def saved_plan(path: str) -> Plan:
    """A plan that ``aliquot plan --out`` wrote. Raises ConfigError if it is anything else."""
    text, again = output.read_text(path, "plan"), "aliquot plan -f FILE --out plan.json"
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a plan: {error}", next_step=again) from error
    if plan.kind != "Plan" or plan.api_version != "aliquot/v1":
        raise ConfigError(f"{path} is a {plan.kind} of {plan.api_version}, not a Plan of aliquot/v1")
    if plan.blockers:
        raise ConfigError(f"{path} is a plan with blockers, which nothing can carry out", next_step=again)
    for text in _texts(msgspec.to_builtins(plan)):
        if not text.isprintable():
            raise ConfigError(f"{path} is not a plan: a text in it has control characters: {text!a}", next_step=again)
    return plan


def _texts(plain: object) -> Iterator[str]:
    """Every text in plain data: what is printed of a file must not give orders to a terminal."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        yield from _texts(list(plain.values()))
    elif isinstance(plain, list | tuple):
        for each in plain:
            yield from _texts(each)


def refuse_errors(desired: Desired) -> None:
    """Raises BlockedError if the wish names things that this node does not have."""
    if not desired.failures:
        return
    first = desired.failures[0]
    error: AliquotError = BlockedError(
        first.message, details=tuple(f.message for f in desired.failures[1:]), next_step=first.next_step
    )
    error.code = first.rule
    raise error


def command_line(args: Args, verb: str) -> str | None:
    """The same wish as a command with another verb, or None if it came from stdin and cannot be repeated."""
    import shlex

    if args.file == "-":
        return None
    out = ["aliquot", verb]
    out += ["-f", args.file] if args.file else []
    out += ["-c", args.config] if args.config else []
    for name in ("gpu", "mig", "vgpu"):
        for value in getattr(args, name) or []:
            out += [f"--{name}", value]
    out += ["--mixed-size"] if args.mixed_size else []
    out += ["--passthrough", args.passthrough] if args.passthrough else []
    out += ["--compat"] if args.compat else []
    out += ["--mode-only"] if args.mode_only else []
    if getattr(args, "policy", "refuse") != "refuse" and verb in ("plan", "apply"):
        out += ["--policy", args.policy]
        out += ["--timeout", str(args.timeout)] if args.policy == "wait" else []
    out += ["--node", args.typed_node] if args.typed_node else []
    return shlex.join(out)
