"""Each step of a change carried out. Every one may be done again, and does nothing where its end is reached already."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from aliquot.agent.slurm import besides, cutting, files, guards, hiding, nodeconf, steps, waiting
from aliquot.agent.slurm.change import BY_HAND, DYNAMIC, held, ours
from aliquot.agent.slurm.daemon import shell
from aliquot.agent.slurm.meant import agrees, counts, meant
from aliquot.agent.slurm.record import Meant, Record
from aliquot.agent.slurm.world import World
from aliquot.errors import AliquotError, BlockedError, MovedError
from aliquot.integrations.slurm import numbering, validate
from aliquot.integrations.slurm.devices import Offering
from aliquot.integrations.slurm.errors import NoNodeError, NoSlurmError, OldSlurmError

_CGROUPS = re.compile(r"^[ \t]*(?:CgroupPlugin|CgroupMountpoint|IgnoreSystemd\w*)\b.*$", re.IGNORECASE | re.MULTILINE)
"""The lines of cgroup.conf that say where control groups are."""

COMMAND_S = 300.0
"""The bound of --push and --slurmctld-restart."""


def act(step: str, record: Record, world: World) -> Record:
    """Do one step; the record with what was learnt. Raises AliquotError."""
    return _ACTS[step](record, world)


def _drain(record: Record, world: World) -> Record:
    node = waiting.look(record.name, world).node
    if node is not None and not node.draining:
        world.say(f"draining {record.name}")
        world.slurm.drain(record.name, waiting.reason(record))
    return record


def _wait(record: Record, world: World) -> Record:
    waiting.wait_for_jobs(record, world)
    if not record.touched and not record.back:
        waiting.let_go(record, world)
    return record


def _stop(record: Record, world: World) -> Record:
    world.say(f"stopping slurmd of {record.name}")
    world.daemon.stop()
    return record


def _files(record: Record, world: World) -> Record:
    settings = record.change.settings
    if not record.back:
        _read_by_slurmd(record)
    with files.alone(settings.conf_dir):
        for each in wanted(record):
            if files.write(each):
                world.say(f"wrote {each.path}")
    detected = settings.form not in ("none", "off")
    numbering.write(numbering.Numbering(record.name, record.meant.devices, detected), world.places.run)
    return record


def _read_by_slurmd(record: Record) -> None:
    """slurmd itself reads our lines before they are in place. Raises BlockedError where it makes something else of
    them; what it would find by itself (AutoDetect) shows when it registers.
    """
    if record.change.settings.form not in ("none", "off"):
        return
    folder = record.change.settings.conf_dir
    offered, configured = _as_written(record.meant)
    texts = {
        "slurm.conf": validate.minimal(record.name, configured),
        "gres.conf": "".join(f"{line}\n" for line in record.meant.lines),
        # Where control groups are is nothing that slurmd finds out everywhere, and without them it ends.
        "cgroup.conf": "\n".join(_CGROUPS.findall(files.content(os.path.join(folder, "cgroup.conf")))) + "\n",
    }
    try:
        wrong = validate.differences(offered, validate.parse(texts, record.name), configured)
    except NoSlurmError:
        return
    if wrong:
        raise BlockedError(f"slurmd does not read gres.conf as it is meant: {wrong[0]}", details=wrong[1:])


def _as_written(meant: Meant) -> tuple[Offering, str]:
    """What the lines say, and ``Gres=`` beside them: of a node whose layouts are features neither names types."""
    if not meant.lines or any(" Type=" in line for line in meant.lines):
        return Offering(meant.devices), meant.text if meant.gres else ""
    plain = tuple(replace(device, type="") for device in meant.devices)
    return Offering(plain), f"gpu:{len(plain)}"


def wanted(record: Record) -> tuple[files.Wanted, ...]:
    """The files as they should be."""
    settings = record.change.settings
    force = record.change.force or record.back
    lines = record.before.lines if _as_before(record) and record.before.lines else record.meant.lines
    found = [files.gres_file(settings, lines, force=force, beside=record.back)]
    if record.kind != DYNAMIC:
        found.append(files.node_file(settings, files.conf_of(settings), gres_text(record), features(record)))
    return tuple(found)


def gres_text(record: Record) -> str:
    """The value of ``Gres=``: our GPUs, and what else the node has."""
    former = record.before.gres_text if _as_before(record) else ""
    return former or besides.joined(record.meant.text, record.before.beside)


def _as_before(record: Record) -> bool:
    """Whether the way back ends where the change began. What the GPUs are is told, whatever was said of them before."""
    return record.back and counts(record.before.gres) == counts(record.meant.gres)


def features(record: Record) -> tuple[str, ...] | None:
    """The node's features, None for those that it has."""
    kept = record.kind == DYNAMIC and record.change.features is None
    return record.before.features if record.back or kept else record.change.features


def _forget(record: Record, world: World) -> Record:
    record = waiting.minded(record, world)
    if record.back and _still_there(record, world):
        return record
    if not record.back:
        guards.refuse_reserved(record.name, world)
    try:
        world.slurm.delete(record.name)
    except NoNodeError:
        return record
    world.say(f"deleted the record of {record.name}")
    return record


def _still_there(record: Record, world: World) -> bool:
    """Whether Slurm has the former record still: slurmd registers with it, and nothing of it is lost."""
    node, before = waiting.look(record.name, world).node, record.before
    if node is None or before.features is None or set(node.features) != set(before.features):
        return False
    return bool(node.gres) and sorted(map(str, node.gres)) == sorted(map(str, before.gres))


def _tell(record: Record, world: World) -> Record:
    settings = record.change.settings
    if settings.push:
        world.say("distributing the files")
        shell(settings.push, "--push", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})
    record = replace(record, started=waiting.another_second(record, world))
    world.keep(record)
    if steps.version_of(record.version) >= steps.RELOADS:
        world.say("having Slurm read its files again")
        world.slurm.reconfigure()
        waiting.answering(world)
        return record
    if not _known(record, world):
        _restart_controller(record, world)
    return record


def _known(record: Record, world: World) -> bool:
    """Whether slurmctld has the new GRES. Of a node that is INVALID it shows what slurmd said, not what it asks for."""
    node = world.slurm.node(record.name)
    return agrees(node, record.meant.gres) and not node.invalid


def _restart_controller(record: Record, world: World) -> None:
    """A release before 23.11 takes other GRES only when slurmctld starts. Jobs live on."""
    command = record.change.settings.controller_restart
    if not command:
        raise needs_restart(record.version)
    if command == BY_HAND:
        world.say("restart slurmctld now: it is waited for")
        seconds = record.change.timeout_s
    else:
        world.say("restarting slurmctld")
        shell(command, "--slurmctld-restart", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})
        seconds = 30.0
    begin = world.now()
    while world.now() - begin <= seconds:
        waiting.answering(world, seconds)
        if _known(record, world):
            return
        world.sleep(waiting.POLL_S * 5)
    raise BlockedError(
        f"slurmctld does not have the new GRES of {record.name}",
        details=("was it restarted, and does it read the same slurm.conf (--push distributes it)?",),
        next_step="restart slurmctld, then run: aliquot slurm apply --continue",
    )


def needs_restart(version: str) -> OldSlurmError:
    """Why nothing can be done here without a restart of slurmctld."""
    return OldSlurmError(
        f"Slurm {version} takes other GRES of a static node only when slurmctld starts",
        details=(
            "from 23.11 on 'scontrol reconfigure' does it",
            "say how: --slurmctld-restart 'ssh CONTROLLER systemctl restart slurmctld' (jobs live on)",
            "or --slurmctld-restart by-hand: then it is said when, and waited for as long as --timeout",
            "a dynamic node (slurmd -Z) needs no restart of slurmctld on any release from 22.05 on",
        ),
        next_step="aliquot slurm apply --help",
    )


def _start(record: Record, world: World) -> Record:
    settings = record.change.settings
    words = _conf(record, drained=True) if record.kind == DYNAMIC else ""
    # What was started and not recorded, before a kill, is started anew: it may have read other files.
    world.daemon.stop()
    if words and not settings.by_commands:
        files.write(files.options_file(settings, words))
    record = replace(record, started=waiting.another_second(record, world))
    world.keep(record)
    world.say(f"starting slurmd of {record.name}")
    world.daemon.start(words)
    return record


def _conf(record: Record, *, drained: bool = False) -> str:
    return nodeconf.conf(record.before.node_conf, gres_text(record), features(record), drained=drained)


def _verify(record: Record, world: World) -> Record:
    node = waiting.registered(record, world)
    world.say(f"{record.name} registered with {record.meant.text}")
    hiding.hide(record.change.settings, world)
    _refuse_moved(record, world)
    if record.kind == DYNAMIC and not record.change.settings.by_commands:
        files.write(files.options_file(record.change.settings, _conf(record)))
    if not record.back and record.change.revision:
        world.slurm.note(record.name, f"aliquot: {record.change.revision}")
    if not node.draining and record.back:
        world.slurm.drain(record.name, waiting.reason(record))
    if record.kind != DYNAMIC:
        return record
    lost = besides.restore(
        record.before.beside, node, world.slurm, noted=not record.back and bool(record.change.revision)
    )
    return replace(record, meant=replace(record.meant, notes=(*record.meant.notes, *lost)))


def _refuse_moved(record: Record, world: World) -> None:
    """Raises MovedError where the GPUs are not what slurmd was told any more: some other verb has changed them."""
    now = meant(world.gpus.backend.read(), record.change.settings, record.version)
    if now.devices != record.meant.devices:
        raise MovedError(
            f"the GPUs of {record.name} were changed by something else meanwhile",
            details=(f"{record.meant.text} was told to Slurm, {now.text} is there",),
            next_step="aliquot show",
        )


def _resume(record: Record, world: World) -> Record:
    node = waiting.look(record.name, world).node
    if node is None:
        return record
    if record.drained and held(node):
        world.say(f"{record.name} stays drained: {node.reason}")
    elif record.drained:
        waiting.resumed(record, world)
        _past(record, world)
        world.say(f"{record.name} takes jobs again")
    elif held(node):
        world.say(f"{record.name} stays drained, as it was: {node.reason}")
    elif record.before.reason:
        world.slurm.drain(record.name, record.before.reason)
        world.say(f"{record.name} stays drained, as it was: {record.before.reason}")
    return record


def _past(record: Record, world: World) -> None:
    """24.11 keeps the reason of a node that takes jobs again: it is to say what was, not what is no more."""
    node = waiting.look(record.name, world).node
    if node is not None and not node.draining and ours(node.reason):
        what = record.change.revision or "another layout"
        done = "was not changed" if record.back else f"was changed to {what}"
        with suppress(AliquotError):
            world.slurm.describe(record.name, {"reason": f"aliquot: {done}, takes jobs"[:250]})


def _explain(record: Record, world: World) -> Record:
    """The end of the way back. Where nothing was touched the node is as usable as before."""
    if not record.touched:
        return _resume(record, world)
    node = waiting.look(record.name, world).node
    if node is not None and not held(node):
        world.slurm.drain(record.name, f"aliquot: {record.why}; undone, the former layout is back"[:250])
    return record


_ACTS: dict[str, Callable[[Record, World], Record]] = {
    steps.DRAIN: _drain,
    steps.WAIT: _wait,
    steps.STOP: _stop,
    steps.GPUS: cutting.cut,
    steps.FILES: _files,
    steps.FORGET: _forget,
    steps.TELL: _tell,
    steps.START: _start,
    steps.VERIFY: _verify,
    steps.RESUME: _resume,
    steps.EXPLAIN: _explain,
}
