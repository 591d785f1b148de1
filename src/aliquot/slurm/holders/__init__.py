"""What Slurm's jobs have on this host."""
