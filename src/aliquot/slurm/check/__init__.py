"""Rules for Slurm's GPU files."""
