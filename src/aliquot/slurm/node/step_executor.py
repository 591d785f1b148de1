"""Each step of a change carried out. Every one may be done again, and does nothing where its end is reached already."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from aliquot.errors import AliquotError, BlockedError, MovedError
from aliquot.slurm.client.errors import NoNodeError, NoSlurmError
from aliquot.slurm.files import gpu_numbering as numbering
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.job_devices import Offering
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import conflicts as guards
from aliquot.slurm.node import fence_secrecy as hiding
from aliquot.slurm.node import gpu_apply as cutting
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import reconfigure as telling
from aliquot.slurm.node import record_attributes as besides
from aliquot.slurm.node import target as aim
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import Meant, Record
from aliquot.slurm.node.context import World
from aliquot.slurm.node.desired_gres import meant
from aliquot.slurm.node.request import DYNAMIC, held, ours

_CGROUPS = re.compile(r"^[ \t]*(?:CgroupPlugin|CgroupMountpoint|IgnoreSystemd\w*)\b.*$", re.IGNORECASE | re.MULTILINE)
"""The lines of cgroup.conf that say where control groups are."""


def act(step: str, record: Record, world: World) -> Record:
    """Do one step; the record with what was learnt. Raises AliquotError."""
    return _ACTS[step](record, world)


def _drain(record: Record, world: World) -> Record:
    node = waiting.record_of(record.name, world)
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
        for each in aim.wanted(record):
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
    node, before = waiting.record_of(record.name, world), record.before
    if node is None or before.features is None or set(node.features) != set(before.features):
        return False
    return bool(node.gres) and sorted(map(str, node.gres)) == sorted(map(str, before.gres))


def _start(record: Record, world: World) -> Record:
    settings = record.change.settings
    words = aim.conf(record, drained=True) if record.kind == DYNAMIC else ""
    # What was started and not recorded, before a kill, is started anew: it may have read other files.
    world.daemon.stop()
    if words and not settings.by_commands:
        files.write(files.options_file(settings, words))
    record = replace(record, started=waiting.another_second(record, world))
    world.keep(record)
    world.say(f"starting slurmd of {record.name}")
    world.daemon.start(words)
    return record


def _verify(record: Record, world: World) -> Record:
    node = waiting.registered(record, world)
    world.say(f"{record.name} registered with {record.meant.text}")
    hiding.hide(record.change.settings, world)
    _refuse_moved(record, world)
    if record.kind == DYNAMIC and not record.change.settings.by_commands:
        files.write(files.options_file(record.change.settings, aim.conf(record)))
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
    node = waiting.record_of(record.name, world)
    if node is None:
        return record
    if record.drained and held(node):
        world.say(f"{record.name} stays drained: {node.reason}")
    elif record.drained:
        if waiting.resumed(record, world) or not record.back:
            _past(record, world)
            world.say(f"{record.name} takes jobs again")
        else:
            _keep_silent(record, world)
    elif held(node):
        world.say(f"{record.name} stays drained, as it was: {node.reason}")
    elif record.before.reason:
        world.slurm.drain(record.name, record.before.reason)
        world.say(f"{record.name} stays drained, as it was: {record.before.reason}")
    return record


def _keep_silent(record: Record, world: World) -> None:
    """Drain a node again whose slurmd does not answer: what failed may have ended it, or left it half stopped."""
    world.slurm.drain(record.name, f"aliquot: slurmd does not answer; {record.why}"[:250])
    world.say(
        f"{record.name} stays drained: its slurmd does not answer. When it runs again: "
        f"scontrol update nodename={record.name} state=resume"
    )


def _past(record: Record, world: World) -> None:
    """24.11 keeps the reason of a node that takes jobs again: it is to say what was, not what is no more."""
    node = waiting.record_of(record.name, world)
    if node is not None and not node.draining and ours(node.reason):
        what = record.change.revision or "another layout"
        done = "was not changed" if record.back else f"was changed to {what}"
        with suppress(AliquotError):
            world.slurm.describe(record.name, {"reason": f"aliquot: {done}, takes jobs"[:250]})


def _explain(record: Record, world: World) -> Record:
    """The end of the way back. Where nothing was touched the node is as usable as before."""
    if not record.touched:
        return _resume(record, world)
    node = waiting.record_of(record.name, world)
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
    steps.TELL: telling.tell,
    steps.START: _start,
    steps.VERIFY: _verify,
    steps.RESUME: _resume,
    steps.EXPLAIN: _explain,
}
