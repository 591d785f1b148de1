"""Lines of helpers.conf and keys of slurm.conf for a node that switches between layouts with equal device counts.

Before 23.02, each feature has its own line without ``NodeName=``; later releases have a node's features on one line.
From 24.05, with ``Flags=rebootless``, slurmd runs the helper program and registers again. Before that, it also runs
``RebootProgram``, which must restart slurmd with ``-b``.
Sources: slurm.schedmd.com/helpers.conf.html, and tests/system/slurm/test_helpers.py on 22.05 and 24.11.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.layouts.families import FamilyError, FeatureLayout

HELPERS, ONE_LINE, REBOOTLESS = Version(21, 8), Version(23, 2), Version(24, 5)
LINE = 1024
"""Slurm's limit for the length of a line in helpers.conf."""
_USUAL_EXEC_S, _USUAL_BOOT_S = 120, 300


class FeatureProgram(msgspec.Struct, frozen=True):
    """The settings of the helper program in helpers.conf."""

    path: str = "/usr/local/libexec/aliquot/mig-helper"
    exec_s: int = _USUAL_EXEC_S
    """Time limit of one call in seconds. Slurm's default of 10 s is too short for a GPU."""
    boot_s: int = _USUAL_BOOT_S
    """Time limit of a whole change in seconds."""
    users: tuple[str, ...] = ()
    """The users who may cause a change; empty means all."""
    reboot: str = "/usr/local/libexec/aliquot/slurmd-restart"
    """The value of ``RebootProgram`` for releases that run it."""


def lines(node: str, layouts: Sequence[FeatureLayout], program: FeatureProgram, version: Version) -> tuple[str, ...]:
    """Return the lines of helpers.conf. ``node`` may be a host list.

    Raises OldSlurmError before 21.08, and FamilyError if a line would be longer than Slurm allows.
    """
    if version < HELPERS:
        raise OldSlurmError(f"node_features/helpers needs Slurm 21.08, and this is {version}", next_step="slurmd -V")
    names = ",".join(each.feature for each in layouts)
    if version < ONE_LINE:
        found = [f"Feature={each.feature} Helper={program.path}" for each in layouts]
    else:
        flags = " Flags=rebootless" if version >= REBOOTLESS else ""
        found = [f"NodeName={node} Feature={names} Helper={program.path}{flags}"]
    found += [f"MutuallyExclusive={names}", f"BootTime={program.boot_s}", f"ExecTime={program.exec_s}"]
    found += [f"AllowUserBoot={','.join(program.users)}"] if program.users else []
    longest = max(map(len, found))
    if longest > LINE:
        raise FamilyError(
            f"a line of helpers.conf would have {longest} characters, but Slurm's limit is {LINE}",
            details=("Use fewer layouts.",),
            next_step="aliquot slurm families",
        )
    return tuple(found)


def keys(program: FeatureProgram, version: Version) -> tuple[str, ...]:
    """Return the keys that slurm.conf needs once.

    slurmctld abandons a change after ``ResumeTimeout``, regardless of helpers.conf.
    """
    found = ["NodeFeaturesPlugins=node_features/helpers"]
    found += [f"RebootProgram={program.reboot}"] if version < REBOOTLESS else []
    return (*found, f"ResumeTimeout={max(program.boot_s, program.exec_s + 60)}")


def gres(devices: int, gpus: int) -> str:
    """Return the node's ``Gres=``, untyped because the types change and the number does not."""
    return f"gpu:{devices * gpus}"


__all__ = ["HELPERS", "LINE", "ONE_LINE", "REBOOTLESS", "FeatureProgram", "gres", "keys", "lines"]
