"""Rules about Slurm's files for GPUs."""
