"""GPUs as Slurm counts them: types and cores."""
