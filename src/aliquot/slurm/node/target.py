"""What a change aims at, by its record: the files as they should be, the value of ``Gres=``, the features."""

from __future__ import annotations

from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node import record_attributes as besides
from aliquot.slurm.node.change_record import Record
from aliquot.slurm.node.desired_gres import counts
from aliquot.slurm.node.request import DYNAMIC


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


def conf(record: Record, *, drained: bool = False) -> str:
    """What a dynamic node's slurmd is started with; ``drained``: it takes no job before it was looked at."""
    return nodeconf.conf(record.before.node_conf, gres_text(record), features(record), drained=drained)
