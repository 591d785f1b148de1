"""Slurm: gres.conf and node lines from the inventory, what slurmctld says, and what it is told."""
