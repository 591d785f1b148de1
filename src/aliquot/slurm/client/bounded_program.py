"""One of Slurm's programs, run to its end within a bound. Where slurmctld is away they try for 9 s and more: after
``PATIENCE_S`` a ``scontrol ping`` (which tries once) says whether to wait on.
"""

from __future__ import annotations

import os

from aliquot.foundation import bounded_process
from aliquot.foundation.bounded_process import ProcessResult
from aliquot.slurm.client import error_messages as complaints
from aliquot.slurm.client.errors import NoSlurmError
from aliquot.slurm.client.port import BOUND_S

PATIENCE_S = 3.0
PING_S = 2.0
PACKAGES = "install Slurm's programs: apt-get install slurm-client, or dnf install slurm"


MOST_BYTES = 256 << 20
"""Bytes of output: the jobs of a large cluster are many."""


class SlurmPrograms:
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

    def run(self, purpose: str, *words: str) -> ProcessResult:
        """To its end, whatever that is. Raises NoSlurmError (not installed, no slurm.conf), AwayError (no answer)."""
        self._check_conf(purpose)
        pings = words[1:2] != ("ping",)
        patience = bounded_process.SlowCheck(PATIENCE_S, lambda err: self._ping(purpose, err)) if pings else None
        try:
            return bounded_process.run(words, self._bound_s, env=self._env, most=MOST_BYTES, check=patience)
        except bounded_process.ProcessTimeoutError as late:
            raise complaints.unavailable(purpose, (*_last(late.err), f"no answer in {self._bound_s:g} s")) from None
        except OSError as failure:
            raise NoSlurmError(
                f"cannot {purpose}: {words[0]} cannot be run: {failure.strerror or failure}", next_step=PACKAGES
            ) from failure

    def ok(self, purpose: str, *words: str) -> str:
        """Its stdout. Raises what Slurm's complaint means, too."""
        ran = self.run(purpose, *words)
        if ran.code:
            raise complaints.slurm_error(ran.err.strip() or ran.out.strip(), purpose)
        return ran.out

    def _check_conf(self, purpose: str) -> None:
        """Slurm's programs would look for a minute for a slurm.conf that is not there."""
        conf = self._env.get("SLURM_CONF", "")
        if conf and not os.path.exists(conf):
            raise NoSlurmError(
                f"cannot {purpose}: SLURM_CONF={conf} is not there", next_step="export SLURM_CONF=/etc/slurm/slurm.conf"
            )

    def _ping(self, purpose: str, err: str) -> None:
        """Raises AwayError where every slurmctld of the cluster is known to be down."""
        try:
            done = bounded_process.run(["scontrol", "ping"], PING_S, env=self._env)
        except OSError:  # a TimeoutError too
            return
        if " is DOWN" in done.out and " is UP" not in done.out:
            raise complaints.unavailable(purpose, _last(err))


def _last(err: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in err.splitlines() if line.strip())[-3:]
