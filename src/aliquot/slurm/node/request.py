"""The request for a change of one Slurm node, and the settings of that node."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from aliquot.core.model.desired import Desired
from aliquot.core.model.plan import Policy
from aliquot.core.model.stored import Stored
from aliquot.errors import UsageError
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.files.gres_conf import AutoDetect
from aliquot.slurm.gpus.gres_types import TypeStyle

NodeKind = Literal["dynamic", "static"]
JobsPolicy = Literal["refuse", "wait", "requeue"]
QuietStep = Literal["stop", "gpus", "files", "forget", "tell", "start"]
SlurmStep = Literal["drain", "wait", "gate", QuietStep, "verify", "resume", "explain", "release"]
MARK = "aliquot: "
"""The beginning of every reason that Aliquot sets. A node that was drained for another reason stays drained."""

BY_HAND = "by-hand"
"""The value of ``controller_restart`` for a manual restart, for which the user is asked at the right time."""

_SLURM_REASONS = ("gres/gpu", "Not responding")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class SlurmNodeSettings(msgspec.Struct, frozen=True):
    """The settings of a Slurm node. The record stores them, so that ``--continue`` needs none of them again."""

    name: str
    conf_dir: str = "/etc/slurm"
    kind: Stored[NodeKind | Literal[""]] = ""
    """``dynamic`` (``slurmd -Z``), ``static`` (a line in slurm.conf), or "" to detect it."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs that the node offers; empty means all GPUs of the host."""
    style: Stored[TypeStyle] = "short"
    """The style of type names."""
    form: Stored[AutoDetect] = "none"
    """The form of gres.conf: ``none`` for explicit lines, or a kind of AutoDetect (see ``files.gres_conf``)."""
    unit: str = "slurmd.service"
    """The systemd unit of slurmd, unless ``start`` and ``stop`` are set."""
    start: str = ""
    """The shell command that starts slurmd."""
    stop: str = ""
    """The shell command that stops slurmd."""
    options_file: str = ""
    node_conf: str = ""
    """The keys of a dynamic node other than Gres (``CPUs=2 Feature=mig``)."""
    controller_restart: str = ""
    """The command that restarts slurmctld, for releases that need it."""
    push: str = ""
    """The command that copies the files to the other nodes."""
    dev_root: str = "/"
    root: str = "/"
    fence: bool = False
    """Whether slurm.conf allows to deny jobs access to the host's other GPUs (see ``files.fence``). Detected again for
    each change.
    """
    slots: bool = False
    """Whether the node is a slot board after the change (see ``files.slot_board``)."""

    @property
    def dev(self) -> str:
        """The directory of device nodes, both for creating them and in gres.conf."""
        return f"{self.dev_root.rstrip('/')}/dev"

    @property
    def by_commands(self) -> bool:
        """True if commands start and stop slurmd, not systemd."""
        return bool(self.start or self.stop)


class SlurmChange(msgspec.Struct, frozen=True):
    """A change of one node."""

    settings: SlurmNodeSettings
    desired: Desired = Desired(())
    """The GPUs to change. If it is empty, the GPUs stay, and files and Slurm are updated to match them."""
    jobs: Stored[JobsPolicy] = "refuse"
    """The policy for jobs on the node: ``refuse`` to start while it has any, ``wait`` for them to end, or ``requeue``
    them and wait.
    """
    timeout_s: float = 60.0
    """Time limit of that wait in seconds."""
    policy: Policy = Policy()
    """The policy for processes outside Slurm on the GPUs."""
    features: tuple[str, ...] | None = None
    """The node's new features; None leaves them unchanged."""
    force: bool = False
    """Whether to overwrite manual edits."""
    revision: str = ""
    """A text that Slurm shows as the node's Extra."""


def checked(settings: SlurmNodeSettings) -> SlurmNodeSettings:
    """Return the settings. Raises UsageError if they are invalid on every host."""
    if not _NAME.fullmatch(settings.name):
        raise UsageError(f"invalid Slurm node name {settings.name!r}: use letters, digits, '.', '_' or '-'")
    if bool(settings.start) != bool(settings.stop):
        raise UsageError(
            "--slurmd-start and --slurmd-stop need each other: use both commands, or the systemd unit",
            next_step="aliquot slurm apply --help",
        )
    return settings


def is_our_reason(reason: str) -> bool:
    """Report whether Aliquot set a node's reason."""
    return reason.startswith(MARK)


def held_by_others(node: SlurmNode) -> bool:
    """Report whether someone else keeps the node out of service, so that we must not resume it.

    Slurm's own reasons, for a node that registered with other GRES or not at all, end with a good registration.
    """
    stopped = node.draining or "DOWN" in node.states
    return (
        stopped and bool(node.reason) and not is_our_reason(node.reason) and not node.reason.startswith(_SLURM_REASONS)
    )
