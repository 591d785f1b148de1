"""Errors of requests to Slurm."""

from __future__ import annotations

from aliquot.errors import BlockedError


class SlurmError(BlockedError):
    """A request to Slurm failed."""

    code = "SLURM"


class NoSlurmError(SlurmError):
    """Slurm's programs, or its configuration, are not on this host."""

    code = "NO_SLURM"


class SlurmUnavailableError(SlurmError):
    """slurmctld (or slurmrestd) does not answer."""

    code = "SLURM_AWAY"


class SlurmdbdUnavailableError(SlurmError):
    """slurmdbd does not answer, so the accounting cannot be read."""

    code = "SLURMDBD_AWAY"


class DeniedError(SlurmError):
    """Slurm denied the request: not an operator of the cluster, or an invalid token."""

    code = "SLURM_DENIED"


class NoNodeError(SlurmError):
    """Slurm has no node with that name."""

    code = "NO_SUCH_NODE"


class BusyError(SlurmError):
    """A job or a reservation uses the node."""

    code = "NODE_BUSY"


class RefusedError(SlurmError):
    """Slurm refused the request; the message quotes its reason."""

    code = "SLURM_REFUSED"


class OldSlurmError(SlurmError):
    """This release of Slurm does not support the request."""

    code = "SLURM_TOO_OLD"


class NoAccountingError(SlurmError):
    """The cluster has no slurmdbd, or its accounting lacks what is needed."""

    code = "NO_ACCOUNTING"
