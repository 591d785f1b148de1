"""Slurm jobs as holders of GPUs on this host."""
