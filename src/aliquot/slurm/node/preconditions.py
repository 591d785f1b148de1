"""Before anything is touched: can this change be made at all? Everything that can be refused is refused here."""

from __future__ import annotations

import os
import time

from msgspec.structs import replace

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.restore_point import former
from aliquot.errors import BlockedError, UsageError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.models import Job, SlurmNode
from aliquot.slurm.conf import api as conf
from aliquot.slurm.files import fence
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import conflicts as guards
from aliquot.slurm.node import fence_secrecy as hiding
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node import reconfigure as telling
from aliquot.slurm.node import record_attributes as besides
from aliquot.slurm.node import target as aim
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import OPEN, Before, Record
from aliquot.slurm.node.context import World
from aliquot.slurm.node.desired_gres import agrees, meant
from aliquot.slurm.node.gpu_plan import feasible, freed
from aliquot.slurm.node.request import DYNAMIC, REFUSE, REQUEUE, STATIC, Change, checked, held, ours


def begin(change: Change, world: World, earlier: Record | None) -> Record | None:
    """The record of the change, not yet on disk; None where all is so already. ``earlier`` is one that was cut off: its
    way back is kept. Raises AliquotError; nothing was touched then.
    """
    settings = checked(change.settings)
    found = files.conf_of(settings)
    settings = replace(settings, fence=files.fences(settings, found))
    change = replace(change, settings=settings)
    kind = files.kind_of(settings, found)
    version = str(world.slurm.version())
    node = _node(settings.name, kind, world)
    inventory = world.gpus.backend.read()
    guards.refuse(settings, kind, node, [gpu.pci for gpu in inventory.gpus], world)
    jobs = waiting.look(settings.name, world).jobs if node is not None else ()
    # What holds an instance while jobs run may be theirs, and gone when they are: it is looked at again then.
    # Only for jobs that are requeued it matters now who else is there: they would have been stopped for nothing.
    made = feasible(change, freed(inventory, _stopped(change, jobs)) if jobs else inventory)
    now = meant(inventory, settings, version)
    cut_off = earlier if earlier and earlier.status == OPEN and earlier.touched else None
    record = Record(
        run=os.urandom(4).hex(),
        change=change,
        kind=kind,
        version=version,
        began=time.time(),
        restart=bool(made.resets) or node is None or not node.answers,
        meant=now,
        drained=_ours(node, earlier),
        touched=cut_off is not None,
        before=_kept(cut_off, node) if cut_off else _before(change, inventory, found, node, earlier),
    )
    _refuse(record, made, node, world)
    if cut_off is None and not made.changes and _settled(record, node):
        hiding.hide(settings, world)
        return None
    if change.jobs == REFUSE and jobs:
        raise waiting.busy(settings.name, jobs, "jobs are on it")
    return replace(record, phase=steps.route(record)[0])


def _stopped(change: Change, jobs: tuple[Job, ...]) -> tuple[int, ...] | None:
    return tuple(job.id for job in jobs) if change.jobs == REQUEUE else None


def _node(name: str, kind: str, world: World) -> SlurmNode | None:
    node = waiting.settling(name, world)
    if node is None:
        if kind == STATIC:
            raise NoNodeError(
                f"slurm.conf names {name}, and slurmctld does not know it",
                details=("was slurmctld told of the change (scontrol reconfigure), and is it the same slurm.conf?",),
                next_step="scontrol show config | grep SLURM_CONF",
            )
        return None
    if kind == DYNAMIC and "FUTURE" in node.states:
        return None
    if kind == DYNAMIC and not node.dynamic:
        raise BlockedError(
            f"{name} is neither in slurm.conf nor dynamic ({'+'.join(sorted(node.states))})",
            details=("is --conf-dir the folder that slurmctld reads?",),
            next_step="scontrol show config | grep SLURM_CONF",
        )
    return node


def _before(
    change: Change, inventory: Inventory, found: conf.Conf, node: SlurmNode | None, earlier: Record | None
) -> Before:
    settings = change.settings
    pcis = settings.gpus or tuple(w.pci for w in change.desired.gpus)
    path = os.path.join(settings.conf_dir, "gres.conf")
    text = conf.text_of(path) if os.path.exists(path) else ""
    mine = next((b for b in block.blocks(text) if b.node == settings.name), None)
    line = conf.node_line(found, settings.name)
    words = "" if line else _node_conf(change, node)
    said = ",".join(map(fence.said, node.gres)) if node else ""
    has = line.get("Gres") if line else fence.counted(said, mine.lines if mine else ())
    typed = earlier is None or earlier.change.settings.node_conf != settings.node_conf
    return Before(
        desired=former(inventory, pcis) if change.desired.gpus else change.desired,
        lines=mine.lines if mine else (),
        gres=node.gres if node else (),
        gres_text=has,
        # What an operator has set since is in slurmctld alone.
        features=line.features if line else None if node is None or (typed and settings.node_conf) else node.features,
        node_conf=words,
        reason="" if node is None or _ours(node, None) else node.reason or "drained before, and nobody said why",
        slurmd_start=node.slurmd_start if node else 0,
        beside=besides.of(node, has or nodeconf.gres_of(words)),
    )


def _kept(cut_off: Record, node: SlurmNode | None) -> Before:
    """What was before a change that was cut off, and who has drained the node since."""
    reason = node.reason if node and held(node) else cut_off.before.reason
    return replace(cut_off.before, reason=reason, slurmd_start=node.slurmd_start if node else 0)


def _node_conf(change: Change, node: SlurmNode | None) -> str:
    """What a dynamic node says of itself beside its GPUs: as typed, as its slurmd was told, or as Slurm has it."""
    settings = change.settings
    typed = settings.node_conf
    wrong = nodeconf.faults(typed)
    if wrong:
        raise UsageError(f"--node-conf: {wrong[0]}", details=wrong[1:], next_step="aliquot slurm apply --help")
    told = "" if settings.by_commands else nodeconf.of_options(files.options_of(settings))
    words = typed or told or (nodeconf.from_node(node) if node else "")
    if not words:
        raise UsageError(
            f"Slurm does not know {settings.name} yet: what is it beside its GPUs?",
            details=(
                "say it once: --node-conf 'CPUs=64 RealMemory=500000 Feature=mig'",
                "slurmd -C prints CPUs and memory; Feature is what NodeSet in slurm.conf goes by",
            ),
            next_step="slurmd -C",
        )
    return words


def _ours(node: SlurmNode | None, earlier: Record | None) -> bool:
    """Whether the node is to take jobs afterwards: unless somebody else had drained it, or set it down, before."""
    if node is not None and held(node):
        return False
    if earlier is not None and earlier.status == OPEN:
        return earlier.drained or not earlier.before.reason
    # Drained without a word: not by us, who always say why.
    return node is None or not node.draining or bool(node.reason)


def _refuse(record: Record, made: Plan, node: SlurmNode | None, world: World) -> None:
    """Hand edits, lines that cover other nodes, and restarts that nobody may do."""
    change, settings = record.change, record.change.settings
    if steps.START in steps.route(record) and (made.changes or not _settled(record, node)):
        world.daemon.ready()
    files.gres_file(settings, record.meant.lines, force=change.force)
    if record.kind == DYNAMIC:
        return
    assert node is not None
    differs = made.changes or not agrees(node, record.meant.gres)
    if differs:
        # Which other value it will be is not known yet; that the line can have another one is asked here.
        files.node_file(settings, files.conf_of(settings), "gpu:0", change.features)
    old = steps.version_of(record.version) < steps.RELOADS
    if differs and old and not settings.controller_restart:
        raise telling.needs_restart(record.version)


def _settled(record: Record, node: SlurmNode | None) -> bool:
    """Whether Slurm, its files and the GPUs agree, and the node is as it should stay."""
    if node is None or not node.answers or not agrees(node, record.meant.gres):
        return False
    if node.draining and ours(node.reason):
        return False
    with files.alone(record.change.settings.conf_dir):
        if any(files.differs(each) for each in aim.wanted(record)):
            return False
    asked = record.change.features
    return asked is None or set(asked) == set(node.features)
