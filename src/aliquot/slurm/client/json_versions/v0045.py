"""v0.0.45 and v0.0.46 (Slurm 26.05, 26.11): ``exclusive`` replaces ``shared``. From Slurm's source, not tested."""

from __future__ import annotations

from aliquot.slurm.client.json_versions import v0039 as wrapped
from aliquot.slurm.client.json_versions.coerce import Raw, words
from aliquot.slurm.client.json_versions.common import job_of
from aliquot.slurm.client.models import SlurmJob

node = wrapped.node
partition = wrapped.partition


def job(raw: Raw) -> SlurmJob:
    value = raw.get("exclusive")
    exclusive = value is True or bool({"true", "yes", "exclusive"} & {w.lower() for w in words(value)})
    return job_of(raw, words(raw.get("job_state")), exclusive=exclusive)
