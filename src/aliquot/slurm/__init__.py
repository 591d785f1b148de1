"""Slurm integration: its GPU files and their checks, safe changes of a node, and layouts on demand."""
