"""Conversion of error messages of Slurm's programs and slurmrestd into our errors.

Slurm's sentences identify them; they are the same in every release since 17.11 (``slurm_errno.c``).
"""

from __future__ import annotations

from aliquot.slurm.client.errors import (
    BusyError,
    DeniedError,
    NoNodeError,
    NoSlurmError,
    RefusedError,
    SlurmError,
    SlurmUnavailableError,
)
from aliquot.slurm.client.models import SlurmNode

_UNAVAILABLE = (
    "unable to contact slurm controller",
    "slurm backup controller in standby mode",
    "unable to establish controller machine",
    "socket timed out",
    "zero bytes were transmitted",
    "connection refused",
    "communication connection failure",
    "communication shutdown failure",
    "message receive failure",
)
_MUNGE = ("munge", "authentication error", "protocol authentication error")
_DENIED = (
    "invalid user id",
    "access/permission denied",
    "access denied",
    "permission denied",
    "security violation",
    "authentication failure",
    "only root",
)
_NO_NODE = ("invalid node name", "not found", "unable to find node")
_BUSY = ("requested nodes are busy", "nodes are busy", "requested nodes are in use", "requested node in use")
_CONF = ("cannot stat file", "could not establish a configuration source", "fetch_config: dns srv lookup failed")
OPERATOR = "run it as root, as SlurmUser, or as an operator: sacctmgr modify user NAME set adminlevel=operator"


def slurm_error(output: str, purpose: str) -> SlurmError:
    """Return the error for a message that Slurm wrote when we tried to ``purpose`` (``drain n1``)."""
    words = tuple(line.strip() for line in output.splitlines() if line.strip())
    last = words[-1] if words else "it gave no reason"
    low = output.lower()
    if any(each in low for each in _CONF):
        return NoSlurmError(
            f"cannot {purpose}: this host has no Slurm configuration", details=words, next_step="export SLURM_CONF=FILE"
        )
    if any(each in low for each in _UNAVAILABLE):
        return unavailable(purpose, words)
    if any(each in low for each in _MUNGE):
        return DeniedError(
            f"cannot {purpose}: munge authentication failed: check that slurmctld's host uses the same munge.key",
            details=words,
            next_step="munge -n | unmunge; systemctl status munge",
        )
    if any(each in low for each in _DENIED):
        return DeniedError(f"not permitted to {purpose}: {last}", details=words[:-1], next_step=OPERATOR)
    if any(each in low for each in _BUSY):
        return BusyError(
            f"cannot {purpose}: a job or a reservation uses it", details=words, next_step="squeue --states=all -w NODE"
        )
    if any(each in low for each in _NO_NODE):
        return NoNodeError(f"cannot {purpose}: Slurm has no such node", details=words, next_step="scontrol show nodes")
    return RefusedError(f"Slurm refused to {purpose}: {last}", details=words[:-1])


def unavailable(purpose: str, words: tuple[str, ...] = ()) -> SlurmUnavailableError:
    """Return the error for a slurmctld that does not answer."""
    return SlurmUnavailableError(
        f"cannot {purpose}: slurmctld does not answer", details=words, next_step="scontrol ping"
    )


def raise_unless_in_service(now: SlurmNode, refused: RefusedError) -> None:
    """Raise the refusal, with the node's state, if the node cannot be resumed yet.

    Slurm refuses to resume such a node, and one that does not need it, with the same message.
    """
    if now.draining or now.invalid or now.states & {"DOWN", "FAIL", "FUTURE"}:
        state = "+".join(sorted(now.states))
        raise RefusedError(refused.brief, details=(f"{now.name} is {state}: {now.reason or 'no reason given'}",))
