"""A cluster of dynamic nodes has none for a moment, while its only one is registered anew."""

from __future__ import annotations

from aliquot.slurm.client import scontrol_output as text


def test_a_cluster_without_nodes_and_jobs_is_no_fault() -> None:
    assert text.nodes("No nodes in the system\n") == ()
    assert text.jobs("No jobs in the system\n") == ()
    assert text.nodes("") == ()
