"""Reasons why a Slurm node cannot be a slot board. Each is found before anything changes."""

from __future__ import annotations

import os
import shlex

from aliquot.errors import BlockedError
from aliquot.slurm.conf import files as conf
from aliquot.slurm.conf.nodes import node_line
from aliquot.slurm.conf.statements import Conf
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.request import NodeKind, SlurmNodeSettings

_UP_STATES = ("", "UNKNOWN", "IDLE")
"""Values of ``State=`` with which a node takes jobs. A change that was interrupted may have left the last."""
_CACHE = "conf-cache"
"""The directory below slurmd's spool directory to which a configless slurmd writes the files that it receives."""


def refuse_unsuitable(settings: SlurmNodeSettings, kind: NodeKind, found: Conf) -> None:
    """Raise BlockedError if the node, its files or its slurmd cannot have a slot board."""
    if kind == "dynamic":
        raise _refused(
            settings,
            f"{settings.name} is a dynamic node",
            "slurmd registers it with its types, so each change of types registers it again.",
            "A node with a line in slurm.conf can be a slot board.",
        )
    line = node_line(found, settings.name)
    state = line.get("State").upper() if line else ""
    if state not in _UP_STATES:
        raise _refused(settings, f"{settings.name} has State={state} in slurm.conf", "Remove it, or use State=UNKNOWN.")
    _refuse_detection(settings)
    cache = _configless(settings, found)
    if cache:
        raise _refused(
            settings,
            f"slurmd of {settings.name} runs without files of its own ({cache})",
            "slurmctld does not send the file by which slurmd sorts the slots.",
        )


def _refuse_detection(settings: SlurmNodeSettings) -> None:
    if settings.form not in ("none", "off"):
        raise BlockedError(
            f"a slot board has a line for each slot, and --autodetect {settings.form} has none",
            next_step=f"aliquot slurm apply --slots --autodetect off --node-name {settings.name}",
        )
    lines = conf.read(os.path.join(settings.conf_dir, "gres.conf"), "gres.conf")
    pair = lines.last("AutoDetect") if lines else None
    if pair is not None and pair.value.lower() != "off" and settings.form == "none":
        raise BlockedError(
            f"{pair.location}: AutoDetect={pair.value} applies to all nodes, so the slots of a board could change",
            next_step=f"aliquot slurm apply --slots --autodetect off --node-name {settings.name}",
        )


def _configless(settings: SlurmNodeSettings, found: Conf) -> str:
    """Return the evidence that slurmd gets its files from slurmctld, or ""."""
    options = files.options_of(settings) if not settings.by_commands else settings.start
    if "--conf-server" in options:
        return "--conf-server"
    spool = found.get("SlurmdSpoolDir", default="/var/spool/slurmd")
    folder = spool.replace("%n", settings.name).replace("%h", os.uname().nodename.partition(".")[0])
    cache = os.path.join(settings.root, folder.lstrip("/"), _CACHE)
    return cache if os.path.exists(os.path.join(cache, "slurm.conf")) else ""


def _refused(settings: SlurmNodeSettings, why: str, *details: str) -> BlockedError:
    return BlockedError(
        f"no slot board: {why}",
        details=(*details, "Without --slots the node changes as a whole, once its jobs have ended."),
        next_step=shlex.join(["aliquot", "slurm", "apply", "--node-name", settings.name, "--jobs", "wait"]),
    )
