"""Slurm's programs, run with a time limit.

If slurmctld is unavailable, they retry for 9 seconds and more. So after ``PATIENCE_S`` seconds a ``scontrol ping``,
which tries once, decides whether to keep waiting.
"""

from __future__ import annotations

import os

from aliquot.foundation import bounded_process
from aliquot.foundation.bounded_process import ProcessResult
from aliquot.slurm.client import error_messages as error_texts
from aliquot.slurm.client.errors import NoSlurmError
from aliquot.slurm.client.port import BOUND_S

PATIENCE_S = 3.0
PING_S = 2.0
PACKAGES = "install Slurm's programs: apt-get install slurm-client, or dnf install slurm"


MOST_BYTES = 256 << 20
"""Limit of the output in bytes. A large cluster has many jobs."""


class SlurmPrograms:
    """Slurm's programs in PATH, for the cluster of ``conf`` (default: SLURM_CONF, then Slurm's own default)."""

    def __init__(self, conf: str = "", bound_s: float = BOUND_S) -> None:
        self._bound_s = bound_s
        # English, and seconds since the epoch, because local times are ambiguous for an hour a year.
        self._env = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C", "SLURM_TIME_FORMAT": "%s"}
        self._env["SLURM_BITSTR_LEN"] = "0"  # the whole list of an array's tasks
        # A user's preferences for listings (SQUEUE_STATES, SACCT_FORMAT, SLURM_CLUSTERS) must not change our output.
        for name in [n for n in self._env if n.startswith(("SQUEUE_", "SCONTROL_", "SACCT_", "SLURM_CLUSTERS"))]:
            del self._env[name]
        if conf:
            self._env["SLURM_CONF"] = conf

    def run(self, purpose: str, *words: str) -> ProcessResult:
        """Run a program and return its result, whatever its exit status.

        Raises NoSlurmError if Slurm is not installed or slurm.conf is missing, and SlurmUnavailableError if slurmctld
        does not answer.
        """
        self._check_conf(purpose)
        pings = words[1:2] != ("ping",)
        patience = bounded_process.SlowCheck(PATIENCE_S, lambda err: self._ping(purpose, err)) if pings else None
        try:
            return bounded_process.run(words, self._bound_s, env=self._env, most=MOST_BYTES, check=patience)
        except bounded_process.ProcessTimeoutError as late:
            raise error_texts.unavailable(purpose, (*_last(late.err), f"no answer in {self._bound_s:g} s")) from None
        except OSError as failure:
            raise NoSlurmError(
                f"cannot {purpose}: {words[0]} cannot be run: {failure.strerror or failure}", next_step=PACKAGES
            ) from failure

    def ok(self, purpose: str, *words: str) -> str:
        """Run a program and return its stdout. Also raises the SlurmError that its error message stands for."""
        ran = self.run(purpose, *words)
        if ran.code:
            raise error_texts.slurm_error(ran.err.strip() or ran.out.strip(), purpose)
        return ran.out

    def _check_conf(self, purpose: str) -> None:
        """Raise NoSlurmError if SLURM_CONF does not exist: Slurm's programs would search for it for a minute."""
        conf = self._env.get("SLURM_CONF", "")
        if conf and not os.path.exists(conf):
            raise NoSlurmError(
                f"cannot {purpose}: SLURM_CONF={conf} does not exist",
                next_step="export SLURM_CONF=/etc/slurm/slurm.conf",
            )

    def _ping(self, purpose: str, err: str) -> None:
        """Raise SlurmUnavailableError if every slurmctld of the cluster is known to be down."""
        try:
            done = bounded_process.run(["scontrol", "ping"], PING_S, env=self._env)
        except OSError:  # a TimeoutError too
            return
        if " is DOWN" in done.out and " is UP" not in done.out:
            raise error_texts.unavailable(purpose, _last(err))


def _last(err: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in err.splitlines() if line.strip())[-3:]
