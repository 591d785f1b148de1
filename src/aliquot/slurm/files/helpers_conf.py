"""helpers.conf and what slurm.conf needs beside it, for a node that changes between layouts of one number of devices.

Forms, as both releases take them: before 23.02 a line for each feature and no ``NodeName=``; from then on a node's
features on one line; from 24.05 on ``Flags=rebootless``: slurmd runs the helper program and registers anew, where
before it also runs ``RebootProgram``, which has to start slurmd anew with ``-b``.
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
"""Slurm reads no longer line of helpers.conf."""
_USUAL_EXEC_S, _USUAL_BOOT_S = 120, 300


class FeatureProgram(msgspec.Struct, frozen=True):
    """The helper program, as helpers.conf tells Slurm of it. ``exec_s`` is how long one call may last: Slurm's own 10 s
    are too short for a GPU; ``boot_s`` how long a whole change may; ``users`` may cause one, everybody if empty.
    """

    path: str = "/usr/local/libexec/aliquot/mig-helper"
    exec_s: int = _USUAL_EXEC_S
    boot_s: int = _USUAL_BOOT_S
    users: tuple[str, ...] = ()
    reboot: str = "/usr/local/libexec/aliquot/slurmd-restart"
    """What ``RebootProgram`` is, where this release runs one."""


def lines(node: str, layouts: Sequence[FeatureLayout], program: FeatureProgram, version: Version) -> tuple[str, ...]:
    """The lines of helpers.conf. ``node`` may be a host list. Raises OldSlurmError before 21.08, FamilyError where a
    line would be longer than Slurm reads.
    """
    if version < HELPERS:
        raise OldSlurmError(
            f"node_features/helpers came with Slurm 21.08, and this is {version}", next_step="slurmd -V"
        )
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
            f"a line of helpers.conf would have {longest} characters, and Slurm reads {LINE}",
            details=("give fewer layouts",),
            next_step="aliquot slurm families",
        )
    return tuple(found)


def keys(program: FeatureProgram, version: Version) -> tuple[str, ...]:
    """What slurm.conf needs once. slurmctld gives a change up after ``ResumeTimeout``, whatever helpers.conf says."""
    found = ["NodeFeaturesPlugins=node_features/helpers"]
    found += [f"RebootProgram={program.reboot}"] if version < REBOOTLESS else []
    return (*found, f"ResumeTimeout={max(program.boot_s, program.exec_s + 60)}")


def gres(devices: int, gpus: int) -> str:
    """The node's ``Gres=``: untyped, since the types change and the number does not."""
    return f"gpu:{devices * gpus}"


__all__ = ["HELPERS", "LINE", "ONE_LINE", "REBOOTLESS", "FeatureProgram", "gres", "keys", "lines"]
