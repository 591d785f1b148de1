"""What is asked of one Slurm node, and how that node's Slurm is told."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from aliquot.core.model.desired import Desired
from aliquot.core.model.plan import Policy
from aliquot.core.model.stored import Stored
from aliquot.errors import UsageError
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.gpus.gres_types import TypeStyle

NodeKind = Literal["dynamic", "static"]
JobsPolicy = Literal["refuse", "wait", "requeue"]
QuietStep = Literal["stop", "gpus", "files", "forget", "tell", "start"]
SlurmStep = Literal["drain", "wait", QuietStep, "verify", "resume", "explain"]
MARK = "aliquot: "
"""How every reason begins that we give Slurm. Whoever drained a node with another one keeps it drained."""

BY_HAND = "by-hand"
"""The choice of ``controller_restart`` that leaves it to a person, who is told when."""

_SLURM_REASONS = ("gres/gpu", "Not responding")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class SlurmNodeSettings(msgspec.Struct, frozen=True):
    """How one Slurm node is run. Kept in its record, so that ``--continue`` needs none of it typed again.

    ``kind``: ``dynamic`` (``slurmd -Z``), ``static`` (a line in slurm.conf), "" to find out. ``gpus`` are the PCI
    addresses that it offers, none for all of the host. ``style`` is that of type names. ``form`` is how gres.conf says
    it: ``none`` for explicit lines, or a way of AutoDetect (see ``files.gres_conf``). slurmd is the systemd
    unit ``unit``, or run by the shell commands ``start`` and ``stop``. ``node_conf`` are the words of a dynamic node
    beside Gres (``CPUs=2 Feature=mig``). ``controller_restart`` restarts slurmctld where its release needs that,
    ``push`` takes files to the other nodes. ``fence`` is found out anew for each change: whether slurm.conf lets jobs
    be kept from the host's other GPUs (see ``files.fence``).
    """

    name: str
    conf_dir: str = "/etc/slurm"
    kind: Stored[NodeKind | Literal[""]] = ""
    gpus: tuple[str, ...] = ()
    style: Stored[TypeStyle] = "short"
    form: str = "none"
    unit: str = "slurmd.service"
    start: str = ""
    stop: str = ""
    options_file: str = ""
    node_conf: str = ""
    controller_restart: str = ""
    push: str = ""
    dev_root: str = "/"
    root: str = "/"
    fence: bool = False

    @property
    def dev(self) -> str:
        """The folder of device nodes: the same where they are made and where gres.conf says that they are."""
        return f"{self.dev_root.rstrip('/')}/dev"

    @property
    def by_commands(self) -> bool:
        """Whether slurmd is run by commands, not by systemd."""
        return bool(self.start or self.stop)


class SlurmChange(msgspec.Struct, frozen=True):
    """One change of one node. ``desired`` names the GPUs to change; none: the GPUs stay, files and Slurm follow them.

    ``jobs``: what becomes of jobs on the node: ``refuse`` to begin while there are any, ``wait`` for their ends
    ``timeout_s`` seconds at most, or ``requeue`` them (and wait as long). ``policy`` is about processes outside Slurm
    on the GPUs. ``features`` replace the node's features, None leaves them. ``force`` overwrites hand edits.
    ``revision`` is shown by Slurm as the node's Extra.
    """

    settings: SlurmNodeSettings
    desired: Desired = Desired(())
    jobs: Stored[JobsPolicy] = "refuse"
    timeout_s: float = 60.0
    policy: Policy = Policy()
    features: tuple[str, ...] | None = None
    force: bool = False
    revision: str = ""


def checked(settings: SlurmNodeSettings) -> SlurmNodeSettings:
    """The same settings. Raises UsageError for those that make no sense on any machine."""
    if not _NAME.fullmatch(settings.name):
        raise UsageError(f"{settings.name!r} is no name of a Slurm node", next_step="aliquot slurm apply --help")
    if bool(settings.start) != bool(settings.stop):
        raise UsageError(
            "--slurmd-start and --slurmd-stop go together: slurmd is run by commands, or by its systemd unit",
            next_step="aliquot slurm apply --help",
        )
    return settings


def is_our_reason(reason: str) -> bool:
    """Whether a node's reason is one that we gave."""
    return reason.startswith(MARK)


def held_by_others(node: SlurmNode) -> bool:
    """Whether somebody else keeps the node from its jobs, so that we must not let it have any. What Slurm itself holds
    against a node that registered with other GRES, or not at all, ends with a good registration.
    """
    stopped = node.draining or "DOWN" in node.states
    return (
        stopped and bool(node.reason) and not is_our_reason(node.reason) and not node.reason.startswith(_SLURM_REASONS)
    )
