"""Clusters of dynamic nodes: empty for a moment, while the only node is registered again."""

from __future__ import annotations

from aliquot.slurm.client import scontrol_output as text


def test_a_cluster_without_nodes_and_jobs_is_not_an_error() -> None:
    assert text.nodes("No nodes in the system\n") == ()
    assert text.jobs("No jobs in the system\n") == ()
    assert text.nodes("") == ()
