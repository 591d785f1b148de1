"""Stops and starts the node's slurmd: a systemd unit, or shell commands for hosts (and tests) without systemd."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from typing import Protocol

from aliquot.errors import BlockedError
from aliquot.slurm.conf import files as conf_files
from aliquot.slurm.node.request import SlurmNodeSettings

STOP_S = 60.0
START_S = 60.0
END_S = 5.0
"""Seconds that slurmd may run after ``--slurmd-stop`` ended."""
PID_FILE = "/var/run/slurmd.pid"
"""The default of ``SlurmdPidFile``."""
OPTIONS_FILES = ("/etc/default/slurmd", "/etc/sysconfig/slurmd")
"""Files from which Slurm's own unit reads SLURMD_OPTIONS: on Debian, and on Red Hat and SUSE."""


class SlurmdDaemon(Protocol):
    """The slurmd of one node. Jobs survive its stop, because their steps have their own processes."""

    def ready(self) -> None:
        """Raise BlockedError if slurmd cannot be stopped and started on this host."""
        ...

    def stop(self) -> None:
        """Stop slurmd and wait until it has ended; does nothing if it does not run. Raises BlockedError."""
        ...

    def start(self, conf: str) -> None:
        """Start slurmd. ``conf`` is the value of ``--conf`` for a dynamic node, "" otherwise. Raises BlockedError."""
        ...


def daemon_of(settings: SlurmNodeSettings) -> SlurmdDaemon:
    """Return the slurmd of the settings."""
    return SlurmdCommands(settings) if settings.by_commands else SlurmdUnit(settings)


class SlurmdUnit:
    """A systemd unit. The options of its slurmd are in the unit's environment file, which ``config_files`` writes."""

    def __init__(self, settings: SlurmNodeSettings) -> None:
        name = settings.unit
        self._unit = name if "." in name else f"{name}.service"
        self._root = settings.root

    def stop(self) -> None:
        import asyncio

        from aliquot.hardware.systemd.services import Services

        self.ready()
        asyncio.run(Services(self._root, stop_s=STOP_S).stop([self._unit], lambda _: None))

    def start(self, conf: str) -> None:
        import asyncio

        from aliquot.hardware.systemd.services import Services
        from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit

        self.ready()
        notes = asyncio.run(Services(self._root, start_s=START_S).start(StoppedServices((StoppedUnit(self._unit),))))
        if notes:
            raise BlockedError(
                f"slurmd does not start: {notes[0]}", code="SLURMD", next_step=f"systemctl status {self._unit}"
            )

    def ready(self) -> None:
        from aliquot.hardware.systemd.bus import reachable

        if not reachable(self._root):
            raise BlockedError(
                "cannot restart slurmd: this host does not run systemd",
                code="SLURMD",
                details=("Give commands instead: --slurmd-stop and --slurmd-start",),
                next_step="aliquot slurm apply --help",
            )


class SlurmdCommands:
    """Shell commands, which get these variables.

    ALIQUOT_NODE_NAME is the node, ALIQUOT_SLURMD_CONF the value of ``--conf`` for a dynamic node, and
    ALIQUOT_SLURMD_OPTIONS the same as shell-quoted options (``-Z --conf '...'``). The last two are empty if not needed.
    """

    def __init__(self, settings: SlurmNodeSettings) -> None:
        self._settings = settings

    def ready(self) -> None:
        """Accept every host, because a shell is always available."""

    def stop(self) -> None:
        self._run(self._settings.stop, "--slurmd-stop", STOP_S, "")
        deadline = time.monotonic() + END_S
        while pid := running_slurmd(self._settings):
            if time.monotonic() > deadline:
                raise _still_running(self._settings, pid)
            time.sleep(0.05)

    def start(self, conf: str) -> None:
        self._run(self._settings.start, "--slurmd-start", START_S, conf)

    def _run(self, command: str, option: str, seconds: float, conf: str) -> None:
        words = ["-Z", "--conf", conf] if conf else []
        variables = {
            "ALIQUOT_NODE_NAME": self._settings.name,
            "ALIQUOT_SLURMD_CONF": conf,
            "ALIQUOT_SLURMD_OPTIONS": shlex.join(words),
        }
        run_shell(command, option, seconds, variables)


def pid_file(settings: SlurmNodeSettings) -> str:
    """Return the file in which slurmd writes its process id: ``SlurmdPidFile`` of slurm.conf. Raises ConfigError."""
    found = conf_files.read(os.path.join(settings.conf_dir, "slurm.conf"), "slurm.conf")
    path = found.get("SlurmdPidFile", default=PID_FILE) if found else PID_FILE
    return path.replace("%n", settings.name).replace("%h", os.uname().nodename.partition(".")[0])


def running_slurmd(settings: SlurmNodeSettings) -> int:
    """Return the process id of the node's slurmd, or 0 if it does not run."""
    try:
        with open(pid_file(settings)) as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode(errors="replace").split("\0")
    except (OSError, ValueError):
        return 0
    return pid if os.path.basename(words[0]) == "slurmd" and _node_of(words) in ("", settings.name) else 0


def _node_of(words: Sequence[str]) -> str:
    """Return the node of a slurmd's command line (``-N NAME``), or "" if it has none.

    slurmds of one host may share a file of process ids; it then belongs to one of them.
    """
    for number, word in enumerate(words):
        if word == "-N" and number + 1 < len(words):
            return words[number + 1]
        if word.startswith("-N"):
            return word[2:]
    return ""


def _still_running(settings: SlurmNodeSettings, pid: int) -> BlockedError:
    path = shlex.quote(pid_file(settings))
    working = f"p=$(cat {path} 2>/dev/null) || exit 0; kill $p; tail --pid=$p -f /dev/null"
    return BlockedError(
        f"--slurmd-stop ended, but slurmd of {settings.name} still runs (process {pid})",
        code="SLURMD",
        details=(settings.stop, f"SlurmdPidFile of slurm.conf is {path}"),
        next_step=f"repeat the command with --slurmd-stop {shlex.quote(working)}",
    )


def run_shell(command: str, option: str, seconds: float, variables: dict[str, str]) -> None:
    """Run a shell command to its end. Processes that it leaves running survive this process.

    Raises BlockedError, with its last output, if it fails or does not end in time.
    """
    from aliquot.foundation import bounded_process

    # A slurmd that finds a token authenticates with it, and slurmctld then treats it as not responding.
    env = {**{k: v for k, v in os.environ.items() if k != "SLURM_JWT"}, **variables}
    try:
        ran = bounded_process.run_starter(["/bin/sh", "-c", command], seconds, env=env)
    except bounded_process.ProcessTimeoutError as late:
        raise _failed(f"{option} did not end within {seconds:g} s", command, late.err) from late
    if ran.code:
        raise _failed(f"{option} ended with status {ran.code}", command, ran.out)


def _failed(brief: str, command: str, output: str) -> BlockedError:
    return BlockedError(brief, code="SLURMD", details=(command, *output.strip().splitlines()[-10:]), next_step=command)
