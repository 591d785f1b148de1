"""v0.0.39 to v0.0.44 (Slurm 23.02 to 25.11): most numbers in wrappers, states as lists."""

from __future__ import annotations

from aliquot.slurm.client.json_versions.coerce import Raw, inner, text, words
from aliquot.slurm.client.json_versions.common import job_of, node_of
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition
from aliquot.slurm.client.states import node_states
from aliquot.slurm.conf import hostlist


def node(raw: Raw) -> SlurmNode:
    return node_of(raw, node_states(words(raw.get("state"))), version=text(raw.get("version")))


def job(raw: Raw) -> SlurmJob:
    # v0.0.39 to v0.0.41 also have ``exclusive``.
    return job_of(raw, words(raw.get("job_state")), exclusive="none" in words(raw.get("shared")))


def partition(raw: Raw) -> SlurmPartition:
    listed = text(inner(raw, "nodes").get("configured"))
    states = words(inner(raw, "partition").get("state"))  # v0.0.39 omits it
    sets = text(raw.get("node_sets"))
    return SlurmPartition(
        text(raw.get("name")), hostlist.expand(listed), sets or listed, not states or states == ("UP",)
    )
