"""Slurm's files, read as Slurm reads them."""
