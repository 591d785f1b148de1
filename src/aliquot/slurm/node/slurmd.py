"""Stops and starts the node's slurmd: a systemd unit, or shell commands for hosts (and tests) without systemd."""

from __future__ import annotations

import os
from typing import Protocol

from aliquot.errors import BlockedError
from aliquot.slurm.node.request import SlurmNodeSettings

STOP_S = 60.0
START_S = 60.0
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
            raise BlockedError(f"slurmd does not start: {notes[0]}", next_step=f"systemctl status {self._unit}")

    def ready(self) -> None:
        from aliquot.hardware.systemd.bus import reachable

        if not reachable(self._root):
            raise BlockedError(
                "cannot restart slurmd: this host does not run systemd",
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

    def start(self, conf: str) -> None:
        self._run(self._settings.start, "--slurmd-start", START_S, conf)

    def _run(self, command: str, option: str, seconds: float, conf: str) -> None:
        import shlex

        words = ["-Z", "--conf", conf] if conf else []
        variables = {
            "ALIQUOT_NODE_NAME": self._settings.name,
            "ALIQUOT_SLURMD_CONF": conf,
            "ALIQUOT_SLURMD_OPTIONS": shlex.join(words),
        }
        run_shell(command, option, seconds, variables)


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
    return BlockedError(brief, details=(command, *output.strip().splitlines()[-10:]), next_step=command)
