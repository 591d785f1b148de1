"""The goal of a change, from its record: the desired files, the value of ``Gres=``, the features."""

from __future__ import annotations

from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import node_attributes
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.desired_gres import counts


def desired_files(record: ChangeRecord) -> tuple[files.DesiredFile, ...]:
    """Return the desired files."""
    settings = record.change.settings
    force = record.change.force or record.undoing
    # The lines of a slot board follow from the GPUs alone, so equal counts do not mean equal lines.
    previous = _restores_previous(record) and not record.goal_settings.slots
    lines = record.restore_point.lines if previous and record.restore_point.lines else record.expected.lines
    found = [files.gres_file(settings, lines, force=force, allow_other_lines=record.undoing)]
    if record.kind != "dynamic":
        state = record.restore_point.state if record.beside_jobs else None
        found.append(files.node_file(settings, files.conf_of(settings), gres_text(record), features(record), state))
    return tuple(found)


def file_while_restarting(record: ChangeRecord) -> files.DesiredFile:
    """Return slurm.conf with which slurmctld has the node up as soon as it starts.

    Otherwise the node is unknown until its slurmd registers. A step of a running job that is requested in between waits
    for a minute, although this takes less than a tenth of a second.

    Other nodes of the cluster keep their lines. A step on one of them that is requested in that moment may wait for a
    minute, as at every restart or reconfiguration of slurmctld. On 24.11 that was seen once (67 s).
    """
    settings = record.change.settings
    return files.node_file(settings, files.conf_of(settings), gres_text(record), features(record), "IDLE")


def gres_text(record: ChangeRecord) -> str:
    """Return the value of ``Gres=``: our GPUs, and the node's other GRES."""
    previous = record.restore_point.gres_text if _restores_previous(record) else ""
    return previous or node_attributes.joined_gres(record.expected.text, record.restore_point.attributes)


def _restores_previous(record: ChangeRecord) -> bool:
    """Report whether undoing restores the previous GRES. If the GPUs differ from before, their current GRES count."""
    return record.undoing and counts(record.restore_point.gres) == counts(record.expected.gres)


def features(record: ChangeRecord) -> tuple[str, ...] | None:
    """Return the node's features, or None to keep them."""
    unchanged = record.kind == "dynamic" and record.change.features is None
    return record.restore_point.features if record.undoing or unchanged else record.change.features


def conf(record: ChangeRecord, *, drained: bool = False) -> str:
    """Return ``--conf`` of a dynamic node's slurmd. With ``drained``, it takes no jobs until it is verified."""
    previous = record.restore_point.node_conf
    keys = previous if record.undoing else record.node_conf or previous
    return nodeconf.conf(keys, gres_text(record), features(record), drained=drained)
