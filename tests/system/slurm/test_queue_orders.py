"""A real Slurm starts the jobs of two of the recorded queues as the model does; ``queues`` records them all."""

from __future__ import annotations

from laws.oracle.test_slurm_starts import difference

from .bed import Bed
from .queues import QueueCluster

GROUP, SEEDS = "c", (2, 10)


def test_a_real_cluster_starts_what_the_model_starts(bed: Bed) -> None:
    cluster = QueueCluster(bed, GROUP)
    for seed in SEEDS:
        recording = cluster.play(seed, steps=4)
        assert len({job for step in recording.steps for job in step.running}) > 3, "the queue is too easy"
        assert not difference(recording)
