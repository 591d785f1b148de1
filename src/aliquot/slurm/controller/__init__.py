"""The Slurm controller: repartitions idle GPUs for pending jobs."""
