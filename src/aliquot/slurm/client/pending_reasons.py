"""Slurm's reasons why a job is pending, and which of them other GPU devices can resolve.

The words are those of ``job_state_reason_string`` in 22.05 and 24.11. A word that is not listed belongs to Slurm: new
releases add reasons (``AssocGrp...``, ``QOSMax...``), and each of them is a limit or a wait that no layout changes.
"""

from __future__ import annotations

RESOURCE_REASONS = frozenset({"", "none", "priority", "resources", "reqnodenotavail", "scheddefer"})
"""A job of one of these starts as soon as a node has what it requests and its turn has come.

Slurm has not considered a job yet that has no reason or SchedDefer. ReqNodeNotAvail has many causes, such as nodes that
are down, drained or reserved: the nodes themselves show whether they can serve the job.
"""
PRIORITY = "priority"
ARRAY_LIMIT = "jobarraytasklimit"
"""An array's own limit (``%4``). Slurm updates it only when it considers the job, so the tasks that run are counted."""
_OLD_RESOURCES = ("nodes_required_for_job_are", "nodenotavail")


def reason_key(reason: str) -> str:
    """Return a reason for comparison with the words of this module: in small letters, without its details."""
    return reason.partition(",")[0].strip().lower().replace(" ", "_")


def waits_for_resources(reason: str) -> bool:
    """Report whether other GPU devices can make a job start that waits for this reason."""
    key = reason_key(reason)
    return key in RESOURCE_REASONS or key.startswith(_OLD_RESOURCES)
