"""Client of slurmctld, through Slurm's commands or slurmrestd."""
