"""v0.0.36 to v0.0.38 (Slurm 21.08, 22.05): plain numbers, states as one word and a list of flags."""

from __future__ import annotations

from aliquot.slurm.client.json_versions.coerce import Raw, text, words
from aliquot.slurm.client.json_versions.common import job_of, node_of
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition
from aliquot.slurm.client.states import node_states
from aliquot.slurm.conf import hostlist


def node(raw: Raw) -> SlurmNode:
    states = node_states((text(raw.get("state")), *words(raw.get("state_flags"))))
    return node_of(raw, states, version=text(raw.get("slurmd_version")))


def job(raw: Raw) -> SlurmJob:
    return job_of(raw, (text(raw.get("job_state")),), exclusive=raw.get("shared") == "none")


def partition(raw: Raw) -> SlurmPartition:
    """Parse a partition. There are no node sets in these versions: ``spec`` has the nodes that they stand for."""
    listed = text(raw.get("nodes"))
    return SlurmPartition(text(raw.get("name")), hostlist.expand(listed), listed, text(raw.get("state")) in ("", "UP"))
