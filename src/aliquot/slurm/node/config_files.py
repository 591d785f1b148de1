"""The files that define what a Slurm node offers, and their desired content. ``write_file`` writes them atomically.

gres.conf has a managed block. Everything around it stays. slurm.conf, or a file that it includes, names a static node
on a line. Only the values of Gres, and of Feature if requested, change on it. If systemd runs the slurmd of a dynamic
node, its options are in the environment file of its unit.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from aliquot.errors import BlockedError, ConfigError, LockedError
from aliquot.slurm.conf import files as conf
from aliquot.slurm.conf import hostlist, hosts
from aliquot.slurm.conf.nodes import ConfiguredNodeLine, node_line
from aliquot.slurm.conf.statements import Conf, ConfPair, ConfStatement, replaced
from aliquot.slurm.files import fence
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node.change_record import write_file
from aliquot.slurm.node.request import NodeKind, SlurmNodeSettings
from aliquot.slurm.node.slurmd import OPTIONS_FILES

LOCK = ".aliquot.lock"
"""Next to the files, because hosts that share them on a file server must share the lock."""
CACHE = "conf-cache"
"""The directory below slurmd's spool directory to which a configless slurmd writes the files that it receives."""
_LOCK_S = 10.0
_OPTIONS = re.compile(r"^(?P<head>\s*SLURMD_OPTIONS\s*=)(?P<value>.*)$", re.MULTILINE)


class DesiredFile(msgspec.Struct, frozen=True):
    """A file and its desired text."""

    path: str
    text: str


def conf_of(settings: SlurmNodeSettings) -> Conf:
    """Read slurm.conf with its includes. Raises ConfigError if it does not exist, or if Slurm could not read it."""
    path = os.path.join(settings.conf_dir, "slurm.conf")
    found = conf.read(path)
    if found is None:
        raise ConfigError(
            f"{path} does not exist",
            details=(
                "Name the directory of Slurm's files with --conf-dir.",
                "A configless node has them on the controller: run this on a host that shares their directory.",
            ),
            next_step="scontrol show config | grep SLURM_CONF",
        )
    if found.diagnostics:
        first, *rest = map(str, found.diagnostics)
        raise ConfigError(first, details=tuple(rest), next_step=f"aliquot slurm check --conf-dir {settings.conf_dir}")
    return found


def refuse_copies(settings: SlurmNodeSettings) -> None:
    """Raise ConfigError if the files are those that a configless slurmd got: it replaces them when it starts."""
    if os.path.basename(os.path.realpath(settings.conf_dir)) != CACHE:
        return
    raise ConfigError(
        f"{settings.conf_dir} has copies of slurmctld's files: slurmd of {settings.name} replaces them when it starts",
        details=(
            "Name the directory that slurmctld reads, on a host that shares it.",
            "Or give the node files of its own, and start its slurmd without --conf-server.",
        ),
        next_step=f"aliquot slurm apply --node-name {settings.name} --conf-dir DIR",
    )


def kind_of(settings: SlurmNodeSettings, found: Conf) -> NodeKind:
    """Return ``static`` for a node that slurm.conf names, else ``dynamic``. Raises ConfigError if --kind differs."""
    line = node_line(found, settings.name)
    kind: NodeKind = "static" if line else "dynamic"
    if settings.kind and settings.kind != kind:
        where = f"{line.statement.location} names it" if line else f"{found.path} does not name it"
        raise ConfigError(
            f"{settings.name} is not a {settings.kind} node: {where}",
            next_step=f"scontrol show node {settings.name}",
        )
    return kind


def has_fence_gres(settings: SlurmNodeSettings, found: Conf) -> bool:
    """Report whether slurm.conf has the GRES type of the fence, and this node can have a fence line.

    Existing fence lines for the node must have files and no type, because slurmd does not start if lines differ in
    that.
    """
    if fence.NAME not in {word.strip() for word in found.get("GresTypes").split(",")}:
        return False
    lines = conf.read(os.path.join(settings.conf_dir, "gres.conf"), "gres.conf")
    own = [s for s in lines.statements if s.get("Name") == fence.NAME and _about(s, settings.name)] if lines else []
    return all(not s.pair("Type") and s.pair("File", "Files", "MultipleFiles") for s in own)


def _about(statement: ConfStatement, name: str) -> bool:
    """Report whether a line of gres.conf applies to this node, or to all nodes."""
    about = statement.get("NodeName")
    try:
        return not about or name in hostlist.expand(about)
    except ValueError:
        return about == name


def gres_file(
    settings: SlurmNodeSettings, lines: Sequence[str], *, force: bool, allow_other_lines: bool = False
) -> DesiredFile:
    """Return gres.conf with our managed block.

    Raises ConfigError if the block was edited manually, unless ``force`` is set. Raises ConfigError if other lines
    offer this node's GPUs, unless ``allow_other_lines`` is set.
    """
    path = os.path.join(settings.conf_dir, "gres.conf")
    text = content(path)
    mine = [b for b in block.blocks(text) if b.node == settings.name]
    edited = [b for b in mine if b.edited]
    if edited and not force:
        raise ConfigError(
            f"{path}:{edited[0].first}: the managed block was edited by hand",
            details=(
                *(f"{path}:{edited[0].first + 1 + n}: {line}" for n, line in enumerate(edited[0].lines)),
                "Move the lines to keep out of the block first: --force replaces it.",
            ),
            next_step=f"aliquot slurm apply --node-name {settings.name} --force",
        )
    if not allow_other_lines:
        _refuse_other_lines(path, settings.name, mine)
    return DesiredFile(path, block.replace_block(text, settings.name, tuple(lines)))


def _refuse_other_lines(path: str, name: str, mine: Sequence[block.ManagedBlock]) -> None:
    """Raise ConfigError if lines outside our block offer this node's GPUs, because devices would count twice."""
    found = conf.read(path, "gres.conf")
    if found is None:
        return
    if found.diagnostics:
        first, *rest = map(str, found.diagnostics)
        raise ConfigError(first, details=tuple(rest), next_step="aliquot slurm check")
    inside = [(b.first, b.last) for b in mine]
    foreign = []
    for each in found.statements:
        ours = each.location.file == path and any(first <= each.location.line <= last for first, last in inside)
        if (
            not ours
            and _about(each, name)
            and each.get("Name", default="gpu").lower() == "gpu"
            and each.pair("Name", "File")
        ):
            foreign.append(each)
    if foreign:
        raise ConfigError(
            f"{foreign[0].location} also offers this node's GPUs: a device in two lines counts twice",
            details=(*(str(each.location) for each in foreign[1:]), f"Aliquot writes all lines for {name}."),
            next_step=_removal_command(found, foreign, name),
        )


def _removal_command(found: Conf, lines: Sequence[ConfStatement], name: str) -> str:
    """Return the command that removes lines from gres.conf, or opens an editor if other nodes may use these lines."""
    first = lines[0].location
    text = found.source(first.file).text
    alone = all(each.location.file == first.file and each.get("NodeName") == name for each in lines)
    if not alone or any("\n" in text[each.start : each.end] for each in lines):
        return f"${{EDITOR:-vi}} +{first.line} {shlex.quote(first.file)}"
    numbers = "".join(f"{each.location.line}d;" for each in lines)
    return f"sed -i.bak '{numbers}' {shlex.quote(first.file)}"


def node_file(
    settings: SlurmNodeSettings, found: Conf, text: str, features: tuple[str, ...] | None, state: str | None = None
) -> DesiredFile:
    """Return slurm.conf, or a file that it includes, with new values on the node's line.

    ``state`` is the value of ``State=``, "" to remove it, and None to keep it. Raises ConfigError for a line that
    covers other nodes, because theirs would change too.
    """
    line = node_line(found, settings.name)
    if line is None:
        raise ConfigError(f"{found.path} does not name {settings.name}", next_step="aliquot slurm render")
    changes = dict(_changes(line, "Gres", text))
    if features is not None and tuple(line.features) != features:
        changes |= _changes(line, "Feature", ",".join(features))
    path = line.statement.location.file
    previous = found.source(path).text
    if state is not None:
        changes |= _changes(line, "State", state) if state else _without(line, "State", previous)
    if changes and len(line.names) > 1:
        raise _shared(settings, line)
    return DesiredFile(path, replaced(previous, changes))


def _changes(line: ConfiguredNodeLine, key: str, value: str) -> Iterator[tuple[ConfPair, str]]:
    pair = line.statement.pair(key, f"{key}s")
    if pair is not None:
        if pair.value != value:
            yield pair, value
        return
    inherited = line.pair(key, f"{key}s")
    if inherited is None or inherited.value != value:
        end = line.statement.end
        yield ConfPair(key, "", line.statement.location, end, end), f" {key}={value}"


def _without(line: ConfiguredNodeLine, key: str, text: str) -> Iterator[tuple[ConfPair, str]]:
    """Yield the change that removes a pair from a node's line, with the space before it."""
    pair = line.statement.pair(key)
    if pair is not None:
        begin = pair.start - len(f"{pair.key}{pair.operator}=")
        begin -= text[begin - 1] in " \t"
        yield ConfPair(key, "", pair.location, begin, pair.end), ""


def _shared(settings: SlurmNodeSettings, line: ConfiguredNodeLine) -> ConfigError:
    own = line.names.index(settings.name)
    others = [number for number in range(len(line.names)) if number != own]
    return ConfigError(
        f"{line.statement.location} covers {len(line.names)} nodes: the GRES of one cannot change without the others'",
        details=(
            "Give each node its own line:",
            _line_for(line, others),
            _line_for(line, [own]),
        ),
        next_step=f"write these lines in place of {line.statement.location}, then run it again",
    )


def _line_for(line: ConfiguredNodeLine, numbers: Sequence[int]) -> str:
    """Return the line for some of its nodes, by their numbers on it. Each node keeps its own address and port."""
    words = []
    for pair in line.statement.pairs:
        value = pair.value
        if pair.called("NodeName", "NodeHostname", "NodeAddr", "Port"):
            each = hosts.expand_leniently(value)
            value = ",".join(each[n] for n in numbers) if len(each) == len(line.names) else value
        words.append(f'{pair.key}="{value}"' if " " in value else f"{pair.key}={value}")
    return " ".join(words)


def options_path(settings: SlurmNodeSettings) -> str:
    """Return the environment file of the unit: the first of the usual ones that exists, else Debian's."""
    every = (settings.options_file,) if settings.options_file else OPTIONS_FILES
    root = settings.root.rstrip("/")
    return next((root + p for p in every if os.path.exists(root + p)), root + every[0])


def options_of(settings: SlurmNodeSettings) -> str:
    """Return SLURMD_OPTIONS of the environment file, or "". Raises ConfigError for unclosed quotes."""
    match = _OPTIONS.search(content(options_path(settings)))
    try:
        return " ".join(shlex.split(match["value"])) if match else ""
    except ValueError as error:
        raise ConfigError(f"{options_path(settings)}: SLURMD_OPTIONS: {error}") from error


def options_file(settings: SlurmNodeSettings, words: str) -> DesiredFile:
    """Return the environment file with ``-Z --conf '...'`` in SLURMD_OPTIONS; everything else stays."""
    path = options_path(settings)
    text = content(path)
    value = nodeconf.with_conf(options_of(settings), words).replace("\\", "\\\\").replace('"', '\\"')
    line = f'SLURMD_OPTIONS="{value}"'
    if _OPTIONS.search(text):
        return DesiredFile(path, _OPTIONS.sub(lambda _: line, text, count=1))
    gap = "" if not text or text.endswith("\n") else "\n"
    return DesiredFile(path, f"{text}{gap}{line}\n")


def differs(desired: DesiredFile) -> bool:
    """Report whether a file differs from its desired text."""
    return content(desired.path) != desired.text


def write(desired: DesiredFile) -> bool:
    """Write a file if it differs, and report whether it did. Keeps mode and owner, and follows links.

    Raises StorageError.
    """
    path = os.path.realpath(desired.path)
    exists = os.path.exists(path)
    if content(path) == desired.text:
        return False
    mode, owner = 0o644, None
    if exists:
        facts = os.stat(path)
        mode, owner = stat.S_IMODE(facts.st_mode), (facts.st_uid, facts.st_gid)
    write_file(path, desired.text.encode("utf-8", "surrogateescape"), mode, owner=owner)
    return True


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock of a directory, because several nodes may share one gres.conf. Raises LockedError.

    The lock is a file that no other user can open. A lock on the directory itself could be held by anyone who can read
    it, and every change of every node would fail midway.
    """
    path = os.path.join(folder, LOCK)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(handle, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}", next_step=f"ls -ld {folder}") from error
    try:
        deadline = time.monotonic() + _LOCK_S
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise LockedError(f"another process is writing the files in {folder}", next_step=f"fuser {folder}")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def content(path: str) -> str:
    """Return the text of a file, or "" if it does not exist."""
    try:
        return conf.text_of(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BlockedError(
            f"cannot read {path}: {error.strerror or error}", code="UNREADABLE", next_step=f"ls -l {path}"
        ) from error
