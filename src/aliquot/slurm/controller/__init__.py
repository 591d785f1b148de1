"""Layouts on demand in Slurm: pending jobs decide which idle GPUs are cut anew."""
