"""Locations of state. Simulated nodes and user state live below the user's state directory. The lock and journal of a
real node have one location for all users, so that there is one writer per node.
"""

from __future__ import annotations

import os
import stat

RUN = "/run/aliquot"
LIB = "/var/lib/aliquot"
SETTING = "/etc/aliquot/directories"
SLURM_CHANGES = "slurm-changes"
"""The directory beside the journal with the records of Slurm nodes."""


def state_dir() -> str:
    """Return the user's state directory: ALIQUOT_STATE_DIR, else XDG_STATE_HOME/aliquot, else
    ~/.local/state/aliquot.
    """
    if chosen := os.environ.get("ALIQUOT_STATE_DIR"):
        return os.path.abspath(chosen)
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "aliquot")


def simulated_nodes(state: str) -> str:
    """Return the directory in which the simulator keeps the nodes of a state directory."""
    return os.path.join(os.path.abspath(state), "sim")


def unsafe_reason(folder: str) -> str:
    """Return why another user could replace the files of a directory; "" if only root and this user can. For a symbolic
    link, both the link and its target are checked. Raises OSError.
    """
    for found in (os.lstat(folder), os.stat(folder)):
        if found.st_uid not in (0, os.geteuid()):
            return f"user {found.st_uid} owns it"
        if stat.S_ISLNK(found.st_mode):
            continue
        if found.st_mode & stat.S_IWOTH:
            return "all users can write in it"
        if found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid()):
            return f"group {found.st_gid} can write in it"
    return ""


def directories(node: str | None, state: str = "") -> tuple[str, str]:
    """Return the directories of a node's lock and of its journal: those of this host (``node`` None), or of a simulated
    node in a state directory (the user's by default).
    """
    if node is None:
        return node_directories()
    folder = os.path.join(simulated_nodes(state or state_dir()), node)
    return folder, folder


def node_directories(setting: str = SETTING) -> tuple[str, str]:
    """Return the directories of a real node's lock and of its journal.

    Only a file that only root can write moves them (lines ``run=/path`` and ``lib=/path``). An environment variable
    would let two users write at the same time, each with their own lock.
    """
    places = {"run": RUN, "lib": LIB}
    try:
        with open(setting, errors="surrogateescape") as file:
            owner = os.fstat(file.fileno())
            if owner.st_uid == 0 and not owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                for line in file:
                    key, _, value = line.partition("=")
                    if key.strip() in places and os.path.isabs(value.strip()):
                        places[key.strip()] = value.strip()
    except OSError:
        return RUN, LIB
    return places["run"], places["lib"]
