"""One of Slurm's programs, run to its end within a bound. Where slurmctld is away they try for 9 s and more: after
``PATIENCE_S`` a ``scontrol ping`` (which tries once) says whether to wait on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple

from aliquot.slurm.client import error_messages as complaints
from aliquot.slurm.client.errors import NoSlurmError
from aliquot.slurm.client.port import BOUND_S

PATIENCE_S = 3.0
PING_S = 2.0
PACKAGES = "install Slurm's programs: apt-get install slurm-client, or dnf install slurm"


class Ran(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str


class Programs:
    """Slurm's programs as found in PATH, of the cluster of ``conf`` (else of SLURM_CONF, else Slurm's own default)."""

    def __init__(self, conf: str = "", bound_s: float = BOUND_S) -> None:
        self._bound_s = bound_s
        # English and seconds of the epoch: local times are ambiguous for an hour a year.
        self._env = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C", "SLURM_TIME_FORMAT": "%s"}
        # A person's taste in listings (SQUEUE_STATES, SLURM_CLUSTERS) is not for us.
        for name in [n for n in self._env if n.startswith(("SQUEUE_", "SCONTROL_", "SLURM_CLUSTERS"))]:
            del self._env[name]
        if conf:
            self._env["SLURM_CONF"] = conf

    def run(self, doing: str, *words: str) -> Ran:
        """To its end, whatever that is. Raises NoSlurmError (not installed, no slurm.conf), AwayError (no answer)."""
        self._check_conf(doing)
        deadline = time.monotonic() + self._bound_s
        started = self._start(doing, words)
        try:
            return self._wait(started, doing, deadline, pings=words[1:2] != ("ping",))
        finally:
            _end(started)

    def ok(self, doing: str, *words: str) -> str:
        """Its stdout. Raises what Slurm's complaint means, too."""
        ran = self.run(doing, *words)
        if ran.code:
            raise complaints.translated(ran.err.strip() or ran.out.strip(), doing)
        return ran.out

    def _check_conf(self, doing: str) -> None:
        """Slurm's programs would look for a minute for a slurm.conf that is not there."""
        conf = self._env.get("SLURM_CONF", "")
        if conf and not os.path.exists(conf):
            raise NoSlurmError(
                f"cannot {doing}: SLURM_CONF={conf} is not there", next_step="export SLURM_CONF=/etc/slurm/slurm.conf"
            )

    def _start(self, doing: str, words: Sequence[str]) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=self._env,
                start_new_session=True,  # a wrapper's children end with it
            )
        except OSError as failure:
            raise NoSlurmError(
                f"cannot {doing}: {words[0]} cannot be run: {failure.strerror or failure}", next_step=PACKAGES
            ) from failure

    def _wait(self, started: subprocess.Popen[str], doing: str, deadline: float, *, pings: bool) -> Ran:
        try:
            out, err = started.communicate(timeout=min(PATIENCE_S, self._bound_s))
        except subprocess.TimeoutExpired as late:
            if pings and self._down():
                raise complaints.away(doing, _said(late)) from None
            try:
                out, err = started.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired as later:
                raise complaints.away(doing, (*_said(later), f"no answer in {self._bound_s:g} s")) from None
        return Ran(started.returncode, out, err)

    def _down(self) -> bool:
        """Every slurmctld of the cluster is known to be down."""
        try:
            done = subprocess.run(
                ["scontrol", "ping"], capture_output=True, text=True, timeout=PING_S, env=self._env, errors="replace"
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return " is DOWN" in done.stdout and " is UP" not in done.stdout


def _said(late: subprocess.TimeoutExpired) -> tuple[str, ...]:
    said = late.stderr or b""
    text = said.decode(errors="replace") if isinstance(said, bytes) else said
    return tuple(line.strip() for line in text.splitlines() if line.strip())[-3:]


def _end(started: subprocess.Popen[str]) -> None:
    if started.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    for stream in (started.stdout, started.stderr):
        if stream:
            stream.close()
