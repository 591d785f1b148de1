"""Slurm: its files for GPUs, checks of them, safe changes of a node, layouts on demand."""
