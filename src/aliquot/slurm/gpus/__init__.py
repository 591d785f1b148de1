"""GPUs in Slurm's terms: GRES types and cores."""
