"""Sources of ``aliquot slurm render`` other than the GPUs: slurmd, the kernel's lists, inventory files."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import output
from aliquot.cli.framework.parser import Args
from aliquot.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory

_FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/var/spool/slurmd")
_LISTED = "/proc/driver/nvidia-caps/mig-minors"
_BOUND_S = 10.0


def conf_folder(typed: str | None, next_step: str) -> str:
    """Return the directory of Slurm's files: the typed one, that of SLURM_CONF, else the first usual one that has them.

    Raises ConfigError, with ``next_step``, if there is none.
    """
    import os

    named = typed or os.path.dirname(os.environ.get("SLURM_CONF", ""))
    if named:
        if not os.path.isdir(named):
            raise ConfigError(f"the directory {named} does not exist", next_step=next_step)
        return named
    found = next((f for f in _FOLDERS if os.path.exists(f"{f}/slurm.conf") or os.path.exists(f"{f}/gres.conf")), None)
    if found is None:
        raise ConfigError(
            "cannot find slurm.conf or gres.conf on this host",
            details=tuple(f"searched {folder}" for folder in _FOLDERS),
            next_step=next_step,
        )
    return found


def node_name(args: Args) -> str:
    """Return the node's name in Slurm: from the command line, else the host's short name.

    Raises UsageError for an invalid name.
    """
    import socket

    name = str(args.node_name or socket.gethostname().partition(".")[0])
    if not _is_name(name):
        raise UsageError(
            f"--node-name: invalid Slurm node name {name!r}: use letters, digits, '.', '_' or '-'",
            next_step="aliquot slurm render --help",
        )
    return name


def _is_name(text: str) -> bool:
    import re

    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text) is not None


def is_board(name: str) -> bool:
    """Report whether gres.conf of this host has a slot board for a node.

    The file is in the directory of SLURM_CONF, else in Slurm's default one.
    """
    import os

    from aliquot.slurm.files import managed_block as block
    from aliquot.slurm.files import slot_board as board

    folder = os.path.dirname(os.environ.get("SLURM_CONF", "")) or "/etc/slurm"
    try:
        with open(os.path.join(folder, "gres.conf"), encoding="utf-8", errors="surrogateescape") as file:
            mine = block.block_of(file.read(), name)
    except OSError:
        return False
    return mine is not None and board.is_board(mine.lines)


def check_words(args: Args) -> None:
    """Raise UsageError for a value that is not one word in a line of slurm.conf or gres.conf."""
    import re

    given = [("--feature", word) for word in args.feature or ()]
    given += [
        (option, word) for option, word in (("--task-prolog", args.task_prolog), ("--dev-root", args.dev_root)) if word
    ]
    for option, word in given:
        if not re.fullmatch(r"[A-Za-z0-9_.=+:/@%-]+", word):
            raise UsageError(
                f"{option}: {word!r} is not one word in Slurm's files: use letters, digits and _ . = + : / @ % -",
                next_step="aliquot slurm render --help",
            )


def slurmd_output(slurmd: str, word: str) -> str:
    """Return the output of slurmd for one of its options; "" if it fails or is not installed."""
    import shlex

    from aliquot.foundation import bounded_process

    try:
        done = bounded_process.run([*shlex.split(slurmd), word], _BOUND_S)
    except (OSError, ValueError):  # a TimeoutError too
        return ""
    return done.out if done.code == 0 else ""


def listed_capabilities() -> dict[str, int]:
    """Return the kernel's list of capability minors; {} if it does not exist."""
    found: dict[str, int] = {}
    try:
        with open(_LISTED) as file:
            for line in file:
                key, _, minor = line.strip().rpartition(" ")
                if minor.isdigit():
                    found[key] = int(minor)
    except OSError:
        return {}
    return found


def inventories(paths: list[str]) -> list[tuple[str, Inventory]]:
    """Read nodes from files of ``aliquot show -o json`` (or yaml).

    The name comes from ``NAME=FILE`` or from ``node`` in the file. Raises ConfigError with every error of every file.
    """
    found: list[tuple[str, Inventory]] = []
    errors: list[str] = []
    for word in paths:
        typed, equals, path = word.partition("=")
        name, path = (typed, path) if equals else ("", word)
        try:
            read = _read(path)
        except ConfigError as error:
            errors += [error.brief, *error.details]
            continue
        found.append((name or read.node, read))
    names = [name for name, _ in found]
    errors += [f"invalid Slurm node name {name!r}" for name in names if not _is_name(name)]
    errors += [
        f"{name}: {names.count(name)} files have this name" for name in dict.fromkeys(names) if names.count(name) > 1
    ]
    if errors:
        raise ConfigError(
            "cannot read the inventories", details=tuple(errors), next_step="aliquot show -o json > n1.json"
        )
    return found


def _read(path: str) -> Inventory:
    import msgspec

    from aliquot.core.model.inventory import Inventory

    plain = _plain(path, output.read_text(path, "inventory"))
    if not isinstance(plain, dict) or plain.get("kind") != "Inventory":
        raise ConfigError(f"{path}:1: this is not an inventory")
    try:
        return msgspec.convert(plain, Inventory)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}:1: {error}") from error


def _plain(path: str, text: str) -> Any:
    """Parse JSON or YAML. A YAML parser can read JSON, but takes much longer, and a cluster has a thousand files."""
    import msgspec

    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: neither JSON nor YAML") from error
