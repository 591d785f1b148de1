"""The proof that slurmd reads the lines of a node as intended, before they are written."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import NoSlurmError
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.job_devices import OfferedDevices
from aliquot.slurm.files.slot_board import ORDER_FILE
from aliquot.slurm.files.slot_proof import broken_jobs, unproved_order
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.change_record import ChangeRecord, ExpectedGres

_CGROUPS = re.compile(r"^[ \t]*(?:CgroupPlugin|CgroupMountpoint|IgnoreSystemd\w*)\b.*$", re.IGNORECASE | re.MULTILINE)
"""The lines of cgroup.conf that locate control groups."""


def refuse_differences(record: ChangeRecord) -> None:
    """Validate our lines with slurmd before they are written. Raises BlockedError if slurmd reads them differently.

    With AutoDetect, differences only show when slurmd registers.
    """
    if record.change.settings.form not in ("none", "off"):
        return
    offered, configured = _written_devices(record.expected)
    try:
        parsed = read(record, configured, record.expected.lines)
    except NoSlurmError:
        if record.goal_settings.slots:
            raise
        return
    wrong = validate.differences(offered, parsed, configured)
    if record.goal_settings.slots:
        wrong = (*wrong, *unproved_order(record.expected.lines, parsed))
    if wrong:
        raise BlockedError(
            f"slurmd reads the new gres.conf differently: {wrong[0]}",
            code="READ_DIFFERENTLY",
            details=wrong[1:],
            next_step="aliquot slurm check",
        )
    if record.beside_jobs:
        _refuse_harm(record, parsed)


def _refuse_harm(record: ChangeRecord, after: validate.ParsedFiles) -> None:
    """Raise BlockedError unless slurmd proves that each running job keeps its index, its type and its files."""
    before = record.restore_point
    now = read(record, before.gres_text, before.lines)
    wrong = broken_jobs(now, after, [each.slot for each in record.used_slots])
    if wrong:
        raise BlockedError(
            f"the change would harm a running job: {wrong[0]}",
            code="HARMS_JOB",
            details=wrong[1:],
            next_step=f"squeue --nodelist={record.name}",
        )


def read(record: ChangeRecord, configured: str, lines: Sequence[str]) -> validate.ParsedFiles:
    """Return lines of gres.conf, with a value of ``Gres=``, as slurmd reads them. Raises NoSlurmError."""
    folder = record.change.settings.conf_dir
    texts = {
        "slurm.conf": validate.minimal(record.name, configured),
        "gres.conf": "".join(f"{line}\n" for line in lines),
        # slurmd cannot locate control groups on every host, and exits without them.
        "cgroup.conf": "\n".join(_CGROUPS.findall(files.content(os.path.join(folder, "cgroup.conf")))) + "\n",
    }
    return validate.parse(texts | ({ORDER_FILE: ""} if record.goal_settings.slots else {}), record.name)


def _written_devices(expected: ExpectedGres) -> tuple[OfferedDevices, str]:
    """Return the devices of the lines, and the value of ``Gres=``; without types if the node's layouts are features."""
    if not expected.lines or any(" Type=" in line for line in expected.lines):
        return OfferedDevices(expected.devices), expected.text if expected.gres else ""
    plain = tuple(replace(device, type="") for device in expected.devices)
    return OfferedDevices(plain), f"gpu:{len(plain)}"
