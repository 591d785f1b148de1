"""What Slurm answers when it does not do as told."""

from __future__ import annotations

from aliquot.errors import BlockedError


class SlurmError(BlockedError):
    """Slurm did not do, or did not say, what was asked."""

    code = "SLURM"


class NoSlurmError(SlurmError):
    """Slurm's programs, or its configuration, are not on this host."""

    code = "NO_SLURM"


class SlurmUnavailableError(SlurmError):
    """slurmctld (or slurmrestd) does not answer."""

    code = "SLURM_AWAY"


class DeniedError(SlurmError):
    """We may not: not an operator of the cluster, or a token that does not hold."""

    code = "SLURM_DENIED"


class NoNodeError(SlurmError):
    """Slurm has no node of that name."""

    code = "NO_SUCH_NODE"


class BusyError(SlurmError):
    """A job or a reservation is on the node."""

    code = "NODE_BUSY"


class RefusedError(SlurmError):
    """Slurm refused; its words are in the sentence."""

    code = "SLURM_REFUSED"


class OldSlurmError(SlurmError):
    """This release of Slurm cannot do it."""

    code = "SLURM_TOO_OLD"
